package command_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/command"
)

// natsSite has a Dunlin with three NATS servers, each with a volume on its own machine.
type natsSite struct {
	*site
	nodes map[string]*corev1.Node
}

func newNATSSite(t *testing.T) *natsSite {
	t.Helper()
	site := &natsSite{newSite(t), map[string]*corev1.Node{}}
	site.write("kubeconfig", site.kubeconfig(site.server.Admin))
	site.variables["KUBECONFIG"] = filepath.Join(site.folder, "kubeconfig")
	dunlin := &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "realtime"}}
	dunlin.Spec = v1alpha1.DunlinSpec{
		Image: "dunlin:1", Nodes: new(int32(3)), Keys: v1alpha1.Keys{File: "keys.env"}, NATS: &v1alpha1.NATS{Servers: new(int32(3)), Image: "nats:2"},
	}
	site.create(dunlin)
	for index := range 3 {
		site.addServer(index)
	}
	return site
}

func (site *natsSite) create(object client.Object) {
	site.t.Helper()
	if err := site.admin.Create(site.t.Context(), object); err != nil {
		site.t.Fatal(err)
	}
}

func (site *natsSite) addServer(index int) {
	site.t.Helper()
	node, volume := fmt.Sprintf("m%d", index), fmt.Sprintf("pv-%d", index)
	site.nodes[node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelHostname: node}}}
	site.create(site.nodes[node])
	site.setNode(node, corev1.ConditionTrue)
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
	}}}
	site.create(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{
		Capacity: sizeOf("1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "local-path",
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
		NodeAffinity:                  &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}},
	}})
	site.create(claimOf(index, volume))
	site.addServerPod(site.t.Context(), index, node, corev1.ConditionTrue)
}

func sizeOf(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
}

func claimOf(index int, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: fmt.Sprintf("data-realtime-nats-%d", index)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: volume, StorageClassName: new("local-path"),
			Resources: corev1.VolumeResourceRequirements{Requests: sizeOf("1Gi")},
		},
	}
}

// addServerPod acts as the StatefulSet controller, the scheduler and the kubelet.
func (site *natsSite) addServerPod(ctx context.Context, index int, node string, ready corev1.ConditionStatus) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: fmt.Sprintf("realtime-nats-%d", index)}}
	pod.Spec = corev1.PodSpec{
		NodeName: node,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{Name: "nats", Image: "nats:2", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}
	if err := site.admin.Create(ctx, pod); err != nil {
		site.t.Error(err)
		return
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}
	if err := site.admin.Status().Update(ctx, pod); err != nil {
		site.t.Error(err)
	}
}

func (site *natsSite) setNode(name string, ready corev1.ConditionStatus) {
	site.t.Helper()
	node := site.nodes[name]
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	if err := site.admin.Status().Update(site.t.Context(), node); err != nil {
		site.t.Fatal(err)
	}
}

func (site *natsSite) setReady(index int, ready corev1.ConditionStatus) {
	site.t.Helper()
	var pod corev1.Pod
	site.get(fmt.Sprintf("realtime-nats-%d", index), &pod)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	if err := site.admin.Status().Update(site.t.Context(), &pod); err != nil {
		site.t.Fatal(err)
	}
}

// runSet recreates the pod and an empty claim when both are gone. Like Kubernetes, it removes a deleted claim only after its pod is gone.
func (site *natsSite) runSet(index int, node string) {
	site.inBackground(func(ctx context.Context) {
		pause := time.NewTicker(controllerPause)
		defer pause.Stop()
		key := types.NamespacedName{Namespace: "web", Name: fmt.Sprintf("realtime-nats-%d", index)}
		for ctx.Err() == nil {
			<-pause.C
			if err := site.admin.Get(ctx, key, &corev1.Pod{}); !apierrors.IsNotFound(err) {
				continue
			}
			var claim corev1.PersistentVolumeClaim
			err := site.admin.Get(ctx, types.NamespacedName{Namespace: "web", Name: "data-" + key.Name}, &claim)
			if err == nil && claim.DeletionTimestamp != nil {
				claim.Finalizers = nil
				_ = site.admin.Update(ctx, &claim)
				continue
			}
			if apierrors.IsNotFound(err) {
				if err := site.admin.Create(ctx, claimOf(index, "")); err != nil {
					site.t.Error(err)
				}
				site.addServerPod(ctx, index, node, corev1.ConditionTrue)
			}
		}
	})
}

// isUntouched reports whether the claim, the volume and the pod are unchanged.
func (site *natsSite) isUntouched(when string) {
	site.t.Helper()
	var claim corev1.PersistentVolumeClaim
	var volume corev1.PersistentVolume
	var pod corev1.Pod
	site.get("data-realtime-nats-1", &claim)
	site.get("realtime-nats-1", &pod)
	if err := site.admin.Get(site.t.Context(), types.NamespacedName{Name: "pv-1"}, &volume); err != nil {
		site.t.Fatal(err)
	}
	if claim.DeletionTimestamp != nil || pod.DeletionTimestamp != nil || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		site.t.Errorf("%s: something was changed", when)
	}
}

func TestALostNATSServerGetsAnEmptyVolume(t *testing.T) {
	site := newNATSSite(t)
	refused := func(when string, words ...string) {
		t.Helper()
		_, stderr := site.roost(command.ExitFailed, "replace-nats", "-n", "web", "realtime", "realtime-nats-1")
		contains(t, stderr, words...)
		site.isUntouched(when)
	}
	site.setReady(1, corev1.ConditionFalse)
	refused("the machine is there", "node m1 with volume pv-1 is ready", "nothing was changed")
	site.setNode("m1", corev1.ConditionUnknown)
	site.setReady(2, corev1.ConditionFalse)
	refused("another server is not ready", "realtime-nats-2 is not ready", "nothing was changed")
	site.setReady(2, corev1.ConditionTrue)
	_, stderr := site.roost(command.ExitFailed, "replace-nats", "-n", "web", "realtime", "realtime-0")
	contains(t, stderr, "realtime-0 is not a NATS server of realtime; its NATS servers are realtime-nats-0, realtime-nats-1, realtime-nats-2")
	site.roost(command.ExitUsage, "replace-nats", "-n", "web", "realtime")
	site.isUntouched("wrong arguments")

	// The pod is not recreated: the completed steps stay completed, and the next run continues.
	_, stderr = site.roost(command.ExitFound, "replace-nats", "-n", "web", "--wait", "1s", "realtime", "realtime-nats-1")
	contains(t, stderr, "volume pv-1 is kept", "did not become ready within 1s", "The other servers serve")
	site.runSet(1, "m0")
	out, _ := site.roost(command.ExitFine, "replace-nats", "-n", "web", "realtime", "realtime-nats-1")
	contains(t, out, "realtime-nats-1 is ready on node m0, with the streams of the other servers")
	var volume corev1.PersistentVolume
	if err := site.admin.Get(t.Context(), types.NamespacedName{Name: "pv-1"}, &volume); err != nil || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		t.Errorf("the old volume: %v, %s", err, volume.Spec.PersistentVolumeReclaimPolicy)
	}
	var claims corev1.PersistentVolumeClaimList
	if err := site.admin.List(t.Context(), &claims, client.InNamespace("web")); err != nil {
		t.Fatal(err)
	}
	kept := slices.DeleteFunc(claims.Items, func(claim corev1.PersistentVolumeClaim) bool { return claim.Spec.VolumeName == "" })
	if len(claims.Items) != 3 || len(kept) != 2 {
		t.Errorf("%d claims, %d with a volume", len(claims.Items), len(kept))
	}
}

// With fewer than three servers, no other server has the streams.
func TestTheOnlyNATSServerIsNotReplaced(t *testing.T) {
	site := newNATSSite(t)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nats":{"servers":1}}}`))
	dunlin := &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "realtime"}}
	if err := site.admin.Patch(t.Context(), dunlin, patch); err != nil {
		t.Fatal(err)
	}
	site.setNode("m1", corev1.ConditionUnknown)
	_, stderr := site.roost(command.ExitFailed, "replace-nats", "-n", "web", "realtime", "realtime-nats-1")
	contains(t, stderr, "no other server has the streams")
	site.isUntouched("one server")
}
