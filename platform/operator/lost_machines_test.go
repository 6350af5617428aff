package operator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// machine is a node whose host name differs from its name.
type machine struct {
	world *world
	node  *corev1.Node
}

func (world *world) machine(name, host string) *machine {
	world.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: host}}}
	world.create(node)
	world.t.Cleanup(func() {
		if err := client.IgnoreNotFound(world.admin.Delete(context.Background(), node)); err != nil {
			world.t.Error(err)
		}
	})
	return &machine{world, node}
}

// is sets the Ready condition of the node and its time.
func (machine *machine) is(ready corev1.ConditionStatus, since time.Time) {
	machine.world.t.Helper()
	machine.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(since)}}
	if err := machine.world.admin.Status().Update(machine.world.t.Context(), machine.node); err != nil {
		machine.world.t.Fatal(err)
	}
}

// localClaim creates the claim of a pod, bound to a volume on a host, as the provisioner of k3s does.
func (world *world) localClaim(claim, volume, host string) {
	world.t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	world.create(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, StorageClassName: "local-path", PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data/" + volume}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}},
			}}}},
		},
	})
	world.create(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: world.namespace, Name: claim},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: volume, StorageClassName: new("local-path"), Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	})
}

// podOfSet returns the first pod of a StatefulSet, as its controller creates it.
func (world *world) podOfSet(name string) *corev1.Pod {
	world.t.Helper()
	pod := world.newPodOfSet(name)
	world.create(pod)
	return pod
}

func (world *world) newPodOfSet(name string) *corev1.Pod {
	world.t.Helper()
	var set appsv1.StatefulSet
	if err := world.get(name, &set); err != nil {
		world.t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
	pod.Name, pod.Namespace = name+"-0", world.namespace
	for _, claim := range set.Spec.VolumeClaimTemplates {
		source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + pod.Name}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source}})
	}
	return pod
}

func (world *world) setPod(pod *corev1.Pod, phase corev1.PodPhase, condition corev1.PodCondition) {
	world.t.Helper()
	pod.Status = corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{condition}}
	if err := world.admin.Status().Update(world.t.Context(), pod); err != nil {
		world.t.Fatal(err)
	}
}

var (
	unschedulable = corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity",
	}
	unready = corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse}
)

// TestANodeIsLost simulates the control plane, and reads with the operator's rights.
func TestANodeIsLost(t *testing.T) {
	world := newWorld(t, "nodes")
	now := time.Now().Truncate(time.Second)
	events := record.NewFakeRecorder(100)
	world.operator.Recorder = events
	world.operator.Now = func() time.Time { return now }
	app := world.app("shop")
	app.Spec.Volumes = []v1alpha1.Volume{{Name: "data", Path: "/data", Size: new(resource.MustParse("1Gi"))}}
	world.create(app)
	world.converge(operator.KindApp, "shop")
	first := world.machine("nodes-m1", "host1.example")
	first.is(corev1.ConditionTrue, now)
	world.localClaim("data-shop-0", "nodes-pv-1", "host1.example")
	pod := world.podOfSet("shop")
	expect := func(when, reason string, words ...string) {
		t.Helper()
		pause, err := world.operator.Pass(t.Context(), operator.KindApp, types.NamespacedName{Namespace: world.namespace, Name: "shop"})
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		text, message := world.status(app)
		if !strings.Contains(text, "Degraded="+reason) {
			t.Errorf("%s: %s: %s", when, text, message)
		}
		for _, word := range words {
			if !strings.Contains(message, word) {
				t.Errorf("%s: %q lacks %q", when, message, word)
			}
		}
		if strings.Contains(reason, reconcile.ReasonNodeLost) && pause == 0 {
			t.Errorf("%s: no further pass, and nodes are not watched", when)
		}
	}
	world.setPod(pod, corev1.PodPending, unschedulable)
	expect("the node is full", "True PodFailing", "didn't match")
	world.setPod(pod, corev1.PodRunning, unready)
	first.is(corev1.ConditionUnknown, now)
	expect("the node is silent", "False AsDesired")
	silent := now
	now = now.Add(301 * time.Second)
	expect("the node is silent for long", "True NodeLost", "shop-0 waits for node nodes-m1, which has not been ready since "+silent.UTC().Format(time.RFC3339),
		"volume nodes-pv-1 of claim data-shop-0", "Nothing is deleted")
	if event := lastOf(events.Events); !strings.HasPrefix(event, "Warning NodeLost shop-0 waits for node nodes-m1") {
		t.Errorf("the last event: %q", event)
	}
	first.is(corev1.ConditionTrue, now)
	expect("the node is back", "False AsDesired")
	if err := world.admin.Delete(t.Context(), first.node); err != nil {
		t.Fatal(err)
	}
	world.setPod(pod, corev1.PodPending, unschedulable)
	expect("the node is gone", "True NodeLost", "waits for node host1.example, which does not exist any more")
	world.isKept("data-shop-0", "nodes-pv-1")
	world.actsWithoutNodes()
	expect("without rights to nodes", "True PodFailing", "didn't match")
}

func lastOf(events <-chan string) (last string) {
	for {
		select {
		case last = <-events:
		default:
			return last
		}
	}
}

// isKept checks that the claim and its volume are unchanged.
func (world *world) isKept(claimName, volumeName string) {
	world.t.Helper()
	var claim corev1.PersistentVolumeClaim
	var volume corev1.PersistentVolume
	if err := world.get(claimName, &claim); err != nil || claim.DeletionTimestamp != nil || claim.Spec.VolumeName != volumeName {
		world.t.Errorf("the claim: %v, %+v", err, claim)
	}
	err := world.admin.Get(world.t.Context(), types.NamespacedName{Name: volumeName}, &volume)
	if err != nil || volume.DeletionTimestamp != nil || volume.Generation > 1 {
		world.t.Errorf("the volume: %v, %+v", err, volume)
	}
}

// actsWithoutNodes makes the operator use an account that has its rights only in the namespace.
func (world *world) actsWithoutNodes() {
	world.t.Helper()
	const account = "without-nodes"
	world.create(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
		"metadata": map[string]any{"namespace": world.namespace, "name": account},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "roost-operator"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": account}},
	}})
	server, _ := server(world.t)
	direct, err := client.New(server.As(account), client.Options{Scheme: operator.NewScheme()})
	if err != nil {
		world.t.Fatal(err)
	}
	// The server's authorizer learns of a new RoleBinding by a watch.
	name := types.NamespacedName{Namespace: world.namespace, Name: "shop"}
	for deadline := time.Now().Add(time.Minute); ; {
		err := direct.Get(world.t.Context(), name, &v1alpha1.App{})
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			world.t.Fatal(err)
		}
	}
	if err := direct.List(world.t.Context(), &corev1.NodeList{}); !apierrors.IsForbidden(err) {
		world.t.Fatalf("nodes are listed: %v", err)
	}
	world.operator.Reader, world.operator.Live, world.operator.Writer = direct, direct, direct
}
