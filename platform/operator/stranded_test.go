package operator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/render"
)

// realtime creates a Dunlin on its own node, and makes the operator write its objects.
func (world *world) realtime(storage *v1alpha1.Storage) {
	world.t.Helper()
	dunlin := &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Name: "realtime", Namespace: world.namespace}}
	dunlin.Spec = v1alpha1.DunlinSpec{Image: "dunlin:1", Keys: v1alpha1.Keys{File: "keys.env"}, Storage: storage}
	files, err := render.Files(world.namespace, "realtime", map[string]string{
		"keys.env": world.sealed("api_key=0123456789abcdef0123456789abcdef\ntoken_hmac_secret_key=0123456789abcdef0123456789abcdef\n", world.identity),
	})
	if err != nil {
		world.t.Fatal(err)
	}
	world.create(files)
	dunlin.Annotations = map[string]string{render.AnnotationFiles: files.GetName()}
	world.create(dunlin)
	world.converge(operator.KindDunlin, "realtime")
}

// leavingPod creates the first pod of a StatefulSet on a node, and requests its deletion. No kubelet stops it.
func (world *world) leavingPod(set, node string) *corev1.Pod {
	world.t.Helper()
	var owner appsv1.StatefulSet
	if err := world.get(set, &owner); err != nil {
		world.t.Fatal(err)
	}
	pod := world.newPodOfSet(set)
	pod.Spec.NodeName = node
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&owner, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	world.create(pod)
	if err := world.admin.Delete(world.t.Context(), pod); err != nil {
		world.t.Fatal(err)
	}
	return pod
}

// keeps makes a pass, and returns whether the pod still exists. It checks whether the operator schedules another pass.
func (world *world) keeps(when string, pod *corev1.Pod) (isThere bool) {
	world.t.Helper()
	pause, err := world.operator.Pass(world.t.Context(), operator.KindDunlin, types.NamespacedName{Namespace: world.namespace, Name: "realtime"})
	if err != nil || pause == 0 {
		world.t.Fatalf("%s: %v, the next pass in %s", when, err, pause)
	}
	var found corev1.Pod
	err = world.get(pod.Name, &found)
	if client.IgnoreNotFound(err) != nil {
		world.t.Fatal(err)
	}
	return err == nil && found.UID == pod.UID
}

// TestAPodOfALostNodeIsGivenUp simulates the control plane, and deletes the pod with the operator's rights.
func TestAPodOfALostNodeIsGivenUp(t *testing.T) {
	world := newWorld(t, "stranded")
	now := time.Now().Truncate(time.Second)
	events := record.NewFakeRecorder(100)
	world.operator.Recorder, world.operator.Now = events, func() time.Time { return now }
	world.realtime(nil)
	lost := world.machine("stranded-m1", "stranded-m1")
	lost.is(corev1.ConditionTrue, now)
	pod := world.leavingPod("realtime", "stranded-m1")
	if !world.keeps("the node is ready", pod) {
		t.Error("the pod of a ready node is gone")
	}
	lost.is(corev1.ConditionUnknown, now)
	now = now.Add(300 * time.Second)
	if !world.keeps("at the limit", pod) {
		t.Error("the pod is gone before the node counts as lost")
	}
	lastOf(events.Events)
	now = now.Add(time.Second)
	if world.keeps("past the limit", pod) {
		t.Error("the pod of a lost node is there")
	}
	if event := lastOf(events.Events); !strings.HasPrefix(event, "Warning PodGivenUp realtime-0 was on node stranded-m1, which has not been ready since ") {
		t.Errorf("the last event: %q", event)
	}
}

func TestATaintGivesAPodUpAtOnce(t *testing.T) {
	world := newWorld(t, "stranded-taint")
	now := time.Now().Truncate(time.Second)
	world.operator.Now = func() time.Time { return now }
	world.realtime(nil)
	lost := world.machine("stranded-m2", "stranded-m2")
	lost.is(corev1.ConditionUnknown, now)
	pod := world.leavingPod("realtime", "stranded-m2")
	if !world.keeps("no taint", pod) {
		t.Error("the pod is gone before the node counts as lost")
	}
	lost.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
	if err := world.admin.Update(t.Context(), lost.node); err != nil {
		t.Fatal(err)
	}
	if world.keeps("a taint", pod) {
		t.Error("the pod of a node that is out of service is there")
	}
}

// A pod with a volume on the lost node could not start elsewhere, and its deletion would hide the loss.
func TestAPodWithAVolumeIsNotGivenUp(t *testing.T) {
	world := newWorld(t, "stranded-volume")
	now := time.Now().Truncate(time.Second)
	world.operator.Now = func() time.Time { return now }
	world.realtime(&v1alpha1.Storage{Size: resource.MustParse("1Gi")})
	lost := world.machine("stranded-m3", "stranded-m3")
	lost.is(corev1.ConditionUnknown, now.Add(-time.Hour))
	world.localClaim("storage-realtime-0", "stranded-pv", "stranded-m3")
	pod := world.leavingPod("realtime", "stranded-m3")
	if !world.keeps("a volume", pod) {
		t.Error("the pod with a volume is gone")
	}
	world.isKept("storage-realtime-0", "stranded-pv")
}

// An operator that was upgraded before its new rights are applied continues without them.
func TestWithoutTheRightToDeletePods(t *testing.T) {
	world := newWorld(t, "stranded-rights")
	now := time.Now().Truncate(time.Second)
	world.operator.Now = func() time.Time { return now }
	world.realtime(nil)
	lost := world.machine("stranded-m4", "stranded-m4")
	lost.is(corev1.ConditionUnknown, now.Add(-time.Hour))
	pod := world.leavingPod("realtime", "stranded-m4")
	world.operator.Writer = refusing{world.operator.Writer}
	if !world.keeps("no right", pod) {
		t.Error("the pod is gone")
	}
}

// refusing is a client whose deletions are forbidden.
type refusing struct{ client.Client }

func (refusing) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "realtime-0", errors.New("no right"))
}
