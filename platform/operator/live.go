package operator

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// children returns the kinds of the rendered objects. PersistentVolumeClaim is not one of them: the operator has no right to change or delete claims.
func children() map[client.Object]client.ObjectList {
	return map[client.Object]client.ObjectList{
		&corev1.ServiceAccount{}: &corev1.ServiceAccountList{}, &corev1.ConfigMap{}: &corev1.ConfigMapList{},
		&corev1.Secret{}: &corev1.SecretList{}, &corev1.Service{}: &corev1.ServiceList{},
		&networkingv1.NetworkPolicy{}: &networkingv1.NetworkPolicyList{}, &networkingv1.Ingress{}: &networkingv1.IngressList{},
		&appsv1.Deployment{}: &appsv1.DeploymentList{}, &appsv1.StatefulSet{}: &appsv1.StatefulSetList{},
		&appsv1.ControllerRevision{}: &appsv1.ControllerRevisionList{},
		&batchv1.Job{}:               &batchv1.JobList{}, &batchv1.CronJob{}: &batchv1.CronJobList{},
		&policyv1.PodDisruptionBudget{}:          &policyv1.PodDisruptionBudgetList{},
		&autoscalingv2.HorizontalPodAutoscaler{}: &autoscalingv2.HorizontalPodAutoscalerList{},
	}
}

// objectName names an object in the namespace of its owner.
type objectName struct{ version, kind, name string }

func nameOf(object reconcile.Manifest) objectName {
	read := unstructured.Unstructured{Object: object}
	return objectName{read.GetAPIVersion(), read.GetKind(), read.GetName()}
}

// liveObjects returns the objects with the label of the subject, the objects with a desired name, and the objects of the inventory.
func (operator *Operator) liveObjects(ctx context.Context, subject *subject, desired []reconcile.Manifest) (map[objectName]reconcile.Manifest, error) {
	live, err := operator.labeled(ctx, subject)
	if err != nil {
		return nil, err
	}
	asked, err := operator.overtakeCache(ctx, subject, live)
	if err != nil {
		return nil, err
	}
	needed := make([]objectName, 0, len(desired)+len(subject.status.Inventory))
	for _, object := range desired {
		needed = append(needed, nameOf(object))
	}
	for _, recorded := range subject.status.Inventory {
		// A user may have removed its label.
		needed = append(needed, objectName{recorded.APIVersion, recorded.Kind, recorded.Name})
	}
	for _, name := range needed {
		if _, isThere := live[name]; isThere || asked[name] {
			continue
		}
		// The cache contains only objects with the operator's label. A foreign object may have the name.
		found, err := operator.ask(ctx, subject.object.GetNamespace(), name)
		if err != nil {
			return nil, err
		}
		asked[name] = true
		if found != nil {
			live[name] = found
		}
	}
	return live, nil
}

// fieldApp is the index of the cache by the label of the App or Dunlin that an object belongs to.
const fieldApp = "app"

func appOf(object client.Object) []string { return []string{object.GetLabels()[render.LabelApp]} }

// belongingTo returns list options that select the objects with the labels of a subject.
func (operator *Operator) belongingTo(subject *subject) []client.ListOption {
	name := subject.object.GetName()
	options := []client.ListOption{
		client.InNamespace(subject.object.GetNamespace()),
		client.MatchingLabels{render.LabelApp: name, render.LabelManagedBy: render.ManagedBy},
	}
	if operator.isIndexed {
		// Without the index, the cache scans all objects of the namespace.
		options = append(options, client.MatchingFields{fieldApp: name})
	}
	return options
}

func (operator *Operator) labeled(ctx context.Context, subject *subject) (map[objectName]reconcile.Manifest, error) {
	live := map[objectName]reconcile.Manifest{}
	// The objects are only converted, so no deep copy is needed.
	options := append(operator.belongingTo(subject), client.UnsafeDisableDeepCopy)
	for _, list := range children() {
		if err := operator.Reader.List(ctx, list, options...); err != nil {
			return nil, err
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			manifest, err := plain(item)
			if err == nil {
				live[nameOf(manifest)] = manifest
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return live, nil
}

// plain converts a typed object to a Manifest, and sets its kind, which elements of lists do not have.
func plain(object runtime.Object) (reconcile.Manifest, error) {
	manifest, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting an object: %w", err)
	}
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return nil, err
	}
	manifest["apiVersion"], manifest["kind"] = kind.GroupVersion().String(), kind.Kind
	return manifest, nil
}

// ask reads an object from the API server. It returns nil if the object does not exist.
func (operator *Operator) ask(ctx context.Context, namespace string, name objectName) (reconcile.Manifest, error) {
	var found unstructured.Unstructured
	found.SetAPIVersion(name.version)
	found.SetKind(name.kind)
	err := operator.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name.name}, &found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found.Object, err
}

// overtakeCache reads from the API server the objects that earlier passes have written and that the cache does not contain yet. Without it, a pass would
// write the same change again.
func (operator *Operator) overtakeCache(ctx context.Context, subject *subject, live map[objectName]reconcile.Manifest) (map[objectName]bool, error) {
	asked := map[objectName]bool{}
	for name, version := range operator.recent.of(subject.key()) {
		cached, isCached := live[name]
		isDeletion := version == deletedVersion
		if isCached && !isDeletion && versionOf(cached) >= version || !isCached && isDeletion {
			operator.recent.forget(subject.key(), name)
			continue
		}
		fresh, err := operator.ask(ctx, subject.object.GetNamespace(), name)
		if err != nil {
			return nil, err
		}
		asked[name] = true
		if fresh == nil {
			delete(live, name)
		} else {
			live[name] = fresh
		}
		if fresh == nil && !isCached || fresh != nil && isDeletion {
			operator.recent.forget(subject.key(), name)
		}
	}
	return asked, nil
}

// versionOf returns the resource version of an object, which increases with each write to the API server.
func versionOf(object reconcile.Manifest) uint64 {
	return versionIn(&unstructured.Unstructured{Object: object})
}

func versionIn(object client.Object) uint64 {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}
