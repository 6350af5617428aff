package operator

import (
	"context"
	"maps"
	"reflect"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
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

// Lists are in pages, unless the client requests a certain version. Pages have no managed fields.
func TestListsAreInPages(t *testing.T) {
	var asked metav1.ListOptions
	whole := &toolscache.ListWatch{ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		asked = options
		if _, has := ctx.Deadline(); !has {
			t.Error("a list that is never answered has no end")
		}
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "shop-0", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "roost"}}}}
		return &corev1.PodList{Items: []corev1.Pod{pod, pod}}, nil
	}}
	for _, row := range []struct {
		name       string
		options    metav1.ListOptions
		version    string
		limit      int64
		continueAt string
	}{
		{"first", metav1.ListOptions{ResourceVersion: "0", Limit: 500}, "", pageObjects, ""},
		{"next", metav1.ListOptions{Limit: 500, Continue: "a"}, "", pageObjects, "a"},
		{"at a version", metav1.ListOptions{ResourceVersion: "7"}, "7", 0, ""},
	} {
		list, err := paged(whole).ListWithContextFunc(t.Context(), row.options)
		if err != nil || asked.ResourceVersion != row.version || asked.Limit != row.limit || asked.Continue != row.continueAt {
			t.Errorf("%s: %v, %+v", row.name, err, asked)
		}
		pods := list.(*corev1.PodList).Items
		if len(pods) != 2 || pods[0].ManagedFields != nil || pods[1].ManagedFields != nil {
			t.Errorf("%s: %+v", row.name, pods)
		}
	}
	whole.ListWithContextFunc = func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, context.Canceled }
	if _, err := paged(whole).ListWithContextFunc(t.Context(), metav1.ListOptions{}); err != context.Canceled {
		t.Errorf("a list that has failed: %v", err)
	}
}
