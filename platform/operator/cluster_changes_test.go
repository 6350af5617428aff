package operator_test

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	rolloutSecondsMax  = 240
	deletionSecondsMax = 120
	// A node without a sign of life counts as not ready after 50 s, by the controllers' default. Pods without a volume leave it 30 s later.
	silentSecondsMax = 90
	movedSecondsMax  = 120
	// The operator, which looks at nodes every 30 s, and a controller delete the pods of a node that somebody has said is off.
	givenUpSecondsMax = 120
	backSecondsMax    = 120
)

// rollOut changes the image of all Apps at once. No pod of the old revision is left, and each App has as many pods as before.
func (cluster *cluster) rollOut(image string) {
	t := cluster.t
	t.Helper()
	var apps v1alpha1.AppList
	if err := cluster.admin.List(t.Context(), &apps, client.InNamespace(cluster.namespace)); err != nil {
		t.Fatal(err)
	}
	cluster.timed(fmt.Sprintf("%d Apps have another image", len(apps.Items)), rolloutSecondsMax, func() {
		for index := range apps.Items {
			app := &apps.Items[index]
			before := client.MergeFrom(app.DeepCopy())
			app.Spec.Image = image
			if err := cluster.admin.Patch(t.Context(), app, before); err != nil {
				t.Fatal(err)
			}
		}
		cluster.untilWell("app-")
	})
	for _, pod := range cluster.pods("app-") {
		if used := pod.Spec.Containers[0].Image; used != image {
			t.Errorf("%s has image %s", pod.Name, used)
		}
	}
	cluster.checkPods()
}

// patchNode patches a node, as `kubectl label` and `kubectl taint` do.
func (cluster *cluster) patchNode(name string, change func(*corev1.Node)) {
	cluster.t.Helper()
	var node corev1.Node
	if err := cluster.admin.Get(cluster.t.Context(), types.NamespacedName{Name: name}, &node); err != nil {
		cluster.t.Fatal(err)
	}
	// Kwok and the controllers write the node all the time. What this overwrites of theirs, they write again.
	before := client.MergeFrom(node.DeepCopy())
	change(&node)
	if err := cluster.admin.Patch(cluster.t.Context(), &node, before); err != nil {
		cluster.t.Fatal(err)
	}
}

var offTaint = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

// isNodeReady reports whether the control plane considers a node ready.
func (cluster *cluster) isNodeReady(name string) bool {
	cluster.t.Helper()
	var node corev1.Node
	if err := cluster.admin.Get(cluster.t.Context(), types.NamespacedName{Name: name}, &node); err != nil {
		cluster.t.Fatal(err)
	}
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

// volatileNodes returns a node with a pod of an App and one with a pod of a Dunlin; both may be the same. Neither has a NATS server, which is bound to
// its node.
func (cluster *cluster) volatileNodes() (names []string, ofDunlin corev1.Pod) {
	cluster.t.Helper()
	hasNATS := map[string]bool{}
	for _, pod := range cluster.pods("rt-") {
		hasNATS[pod.Spec.NodeName] = hasNATS[pod.Spec.NodeName] || pod.Labels[render.LabelPart] == render.PartNATS
	}
	first := func(prefix string) corev1.Pod {
		pods := cluster.pods(prefix)
		at := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return !hasNATS[pod.Spec.NodeName] })
		if at < 0 {
			cluster.t.Fatalf("each pod of %s is on a node with a NATS server", prefix)
		}
		return pods[at]
	}
	ofDunlin = first("rt-")
	return slices.Compact([]string{first("app-").Spec.NodeName, ofDunlin.Spec.NodeName}), ofDunlin
}

// loseNodes stops the reports of kwok for nodes, as if their machines were lost. The controllers of Kubernetes move the pods of Apps. The name of a
// Dunlin's pod is in use as long as the pod exists: it moves when the machine has the out-of-service taint. When the machines are back, none of the old
// pods is left.
func (cluster *cluster) loseNodes() {
	t := cluster.t
	t.Helper()
	names, ofDunlin := cluster.volatileNodes()
	for _, name := range names {
		cluster.patchNode(name, func(node *corev1.Node) { delete(node.Labels, labelOfKwok) })
	}
	cluster.timed(fmt.Sprintf("%v are not ready", names), silentSecondsMax, func() {
		cluster.await("the nodes are silent", func() bool { return !slices.ContainsFunc(names, cluster.isNodeReady) })
	})
	cluster.timed("the pods of Apps are ready on other nodes", movedSecondsMax, func() {
		cluster.await("the pods of Apps move", func() bool {
			return !slices.ContainsFunc(cluster.pods("app-"), func(pod corev1.Pod) bool { return slices.Contains(names, pod.Spec.NodeName) || !isReady(&pod) })
		})
		cluster.untilWell("app-")
	})
	cluster.timed("the node of a Dunlin is ready on another one", givenUpSecondsMax, func() {
		cluster.patchNode(ofDunlin.Spec.NodeName, func(node *corev1.Node) { node.Spec.Taints = append(node.Spec.Taints, offTaint) })
		cluster.await("the node of the Dunlin moves", func() bool {
			return slices.ContainsFunc(cluster.pods("rt-"), func(pod corev1.Pod) bool {
				return pod.Name == ofDunlin.Name && pod.UID != ofDunlin.UID && !slices.Contains(names, pod.Spec.NodeName) && isReady(&pod)
			})
		})
		cluster.untilWell("rt-")
	})
	for _, name := range names {
		cluster.patchNode(name, func(node *corev1.Node) {
			node.Labels[labelOfKwok] = "true"
			node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == offTaint.Key })
		})
	}
	cluster.timed(fmt.Sprintf("%v are back, and have no pod of before", names), backSecondsMax, func() {
		cluster.await("the nodes are back", func() bool {
			return !slices.ContainsFunc(names, func(name string) bool { return !cluster.isNodeReady(name) }) && len(cluster.podsThatEnd()) == 0
		})
	})
	cluster.checkPods()
}

// podsThatEnd returns the pods that are being deleted.
func (cluster *cluster) podsThatEnd() []corev1.Pod {
	cluster.t.Helper()
	var all corev1.PodList
	if err := cluster.admin.List(cluster.t.Context(), &all, client.InNamespace(cluster.namespace)); err != nil {
		cluster.t.Fatal(err)
	}
	return slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp == nil })
}

// deleteApps deletes Apps. The garbage collector deletes all objects that Apps own, with their pods. Objects that Dunlins own stay unchanged.
func (cluster *cluster) deleteApps() {
	t := cluster.t
	t.Helper()
	before, count := cluster.ownedBy("rt-"), len(cluster.ownedBy("app-"))
	if len(before) == 0 || count < clusterApps*6 {
		t.Fatalf("%d objects of Dunlins, and %d of Apps", len(before), count)
	}
	cluster.timed(fmt.Sprintf("%d Apps and their %d objects are gone", clusterApps, count), deletionSecondsMax, func() {
		for index := range clusterApps {
			app := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.namespace, Name: fmt.Sprintf("app-%d", index)}}
			if err := cluster.admin.Delete(t.Context(), app); err != nil {
				t.Fatal(err)
			}
		}
		cluster.await("all is collected", func() bool { return len(cluster.ownedBy("app-")) == 0 })
	})
	after := cluster.ownedBy("rt-")
	for name, uid := range before {
		if after[name] != uid {
			t.Errorf("%s of a Dunlin had the UID %s, and has %q", name, uid, after[name])
		}
	}
	cluster.untilWell("rt-")
}

// ownedBy returns the UIDs of the Apps or Dunlins with a name prefix, and of all objects with their labels. Encrypted files have an owner only if
// `roost deploy` has written them.
func (cluster *cluster) ownedBy(prefix string) map[string]types.UID {
	cluster.t.Helper()
	found := map[string]types.UID{}
	for kind := range versions {
		for _, object := range cluster.list(kind, "") {
			if strings.HasPrefix(object.GetLabels()[render.LabelApp], prefix) {
				found[kind+"/"+object.GetName()] = object.GetUID()
			}
		}
	}
	for _, subject := range cluster.all() {
		if strings.HasPrefix(subject.GetName(), prefix) {
			found["subject/"+subject.GetName()] = subject.GetUID()
		}
	}
	for _, pod := range cluster.pods(prefix) {
		found["Pod/"+pod.Name] = pod.UID
	}
	for _, pod := range cluster.podsThatEnd() {
		if strings.HasPrefix(pod.Labels[render.LabelApp], prefix) {
			found["Pod/"+pod.Name] = pod.UID
		}
	}
	return found
}
