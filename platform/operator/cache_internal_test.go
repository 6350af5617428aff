package operator

import (
	"maps"
	"reflect"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A cached object has the same content as the object from the server, in less memory.
func TestWhatTheCacheKeeps(t *testing.T) {
	sent := func() *corev1.Pod {
		// Each text in memory of its own, as it is decoded.
		text := func(text string) string { return string([]byte(text)) }
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: text("web"), Name: text("shop"), UID: "uid-1", Labels: map[string]string{text("app"): text("shop")},
				Annotations:     map[string]string{text("hash"): text("1")},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: text("v1"), Kind: text("App"), Name: text("shop"), UID: "uid-2", Controller: new(true)}},
				ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "roost"}},
			},
			Spec: corev1.PodSpec{NodeName: "m1", Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-shop-0"},
			}}, {Name: "tmp"}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
	}
	var kept []*corev1.Pod
	for range 2 {
		pod := sent()
		if _, err := withoutPodSpec(pod); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, pod)
	}
	want := sent()
	want.ManagedFields, want.Spec = nil, corev1.PodSpec{Volumes: want.Spec.Volumes[:1]}
	if !reflect.DeepEqual(kept[0], want) {
		t.Errorf("%+v", kept[0])
	}
	key := func(table map[string]string) string {
		for name := range maps.Keys(table) {
			return name
		}
		return ""
	}
	for name, text := range map[string]func(*corev1.Pod) string{
		"namespace": func(pod *corev1.Pod) string { return pod.Namespace }, "name": func(pod *corev1.Pod) string { return pod.Name },
		"label": func(pod *corev1.Pod) string { return key(pod.Labels) }, "value": func(pod *corev1.Pod) string { return pod.Labels["app"] },
		"annotation": func(pod *corev1.Pod) string { return key(pod.Annotations) },
		"owner":      func(pod *corev1.Pod) string { return pod.OwnerReferences[0].Name },
	} {
		if first, second := text(kept[0]), text(kept[1]); first == "" || unsafe.StringData(first) != unsafe.StringData(second) {
			t.Errorf("%s: %q is in memory twice", name, first)
		}
	}
	// What a watch sends of an object that was deleted meanwhile may be none.
	if same, err := lean("text"); err != nil || same != "text" {
		t.Errorf("%v, %v", same, err)
	}
}
