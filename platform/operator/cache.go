package operator

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/render"
)

// cacheOptions returns the options of a cache with the objects that have the operator's label, without the fields that the operator does not read.
func cacheOptions(namespaces []string) cache.Options {
	options := cache.Options{
		DefaultNamespaces: map[string]cache.Config{},
		DefaultTransform:  lean,
		ByObject:          map[client.Object]cache.ByObject{},
	}
	for _, namespace := range namespaces {
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	own := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{render.LabelManagedBy: render.ManagedBy})}
	for object := range children() {
		options.ByObject[object] = own
	}
	options.ByObject[&corev1.Pod{}] = cache.ByObject{Label: own.Label, Transform: withoutPodSpec}
	return options
}

// withoutPodSpec removes the spec of a pod, except the volumes of claims.
func withoutPodSpec(object any) (any, error) {
	if pod, isPod := object.(*corev1.Pod); isPod {
		pod.Spec = corev1.PodSpec{Volumes: volumesOfClaims(pod)}
	}
	return lean(object)
}

// lean removes the managed fields of an object. Equal strings in the metadata of many objects share their memory.
func lean(object any) (any, error) {
	read, err := meta.Accessor(object)
	if err != nil {
		return object, nil
	}
	read.SetManagedFields(nil)
	read.SetNamespace(shared(read.GetNamespace()))
	read.SetName(shared(read.GetName()))
	if labels := read.GetLabels(); labels != nil {
		fresh := make(map[string]string, len(labels))
		for name, value := range labels {
			fresh[shared(name)] = shared(value)
		}
		read.SetLabels(fresh)
	}
	if annotations := read.GetAnnotations(); annotations != nil {
		fresh := make(map[string]string, len(annotations))
		for name, value := range annotations {
			fresh[shared(name)] = value
		}
		read.SetAnnotations(fresh)
	}
	for index, owner := range read.GetOwnerReferences() {
		owner.APIVersion, owner.Kind, owner.Name, owner.UID = shared(owner.APIVersion), shared(owner.Kind), shared(owner.Name), shared(owner.UID)
		read.GetOwnerReferences()[index] = owner
	}
	return object, nil
}

// shared returns an equal string that shares its memory with others.
func shared[Text ~string](text Text) Text { return unique.Make(text).Value() }
