package operator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	clusterNodes    = 50
	clusterApps     = 62
	podsOfApp       = 3
	clusterDunlins  = 3
	nodesOfDunlin   = 3
	serversOfDunlin = 3
	// nodesUsedMin is how many nodes have a pod if the scheduler spreads them.
	nodesUsedMin = 40
	labelOfKwok  = "test.roost.dev/kwok"
	// desiredSecondsMax is from the start of the operator until all pods are ready.
	desiredSecondsMax = 120
)

// TestManyNodes runs the controllers and the scheduler of Kubernetes. Kwok writes the status of nodes and pods as kubelets would: no pod has a process,
// and none responds at its address.
func TestManyNodes(t *testing.T) {
	if !isWhole() {
		t.Skip("ROOST_TEST_WHOLE is not set; `make operator` sets it")
	}
	cluster := newCluster(t, "many-nodes")
	program := programOfOperator(t)
	cluster.createSubjects(clusterApps, clusterDunlins)
	running := cluster.start(program)
	cluster.timed("all Apps and Dunlins are as desired", desiredSecondsMax, func() { cluster.untilWell("") })
	cluster.checkPods()
	if running.writes() == 0 {
		t.Error("the first operator counts no writes")
	}
	running.stop()

	running = cluster.start(program)
	running.waitForPasses(clusterApps, clusterDunlins)
	if writes := running.writes(); writes > 0 {
		t.Errorf("an operator that starts anew has written %d times", writes)
	}

	cluster.rollOut("shop:2")
	cluster.loseNodes()
	cluster.deleteApps()
	t.Logf("highest RSS of the operator: %d KiB", running.kib("VmHWM"))
	running.stop()
	if err := cluster.server.Failure(); err != nil {
		t.Error(err)
	}
}

// cluster is a world on its own server, with controllers and nodes.
type cluster struct {
	*world
	server *apiserver.Server
}

func newCluster(t *testing.T, namespace string) *cluster {
	t.Helper()
	programs, isThere := apiserver.ClusterProgramsOfTest()
	if !isThere {
		t.Fatal("ROOST_TEST_KUBE_CONTROLLER_MANAGER, ROOST_TEST_KUBE_SCHEDULER or ROOST_TEST_KWOK is not set; `make operator` sets them")
	}
	server := apiserver.ForTest(t)
	admin, err := client.New(server.Admin, client.Options{Scheme: operator.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "identity.txt")
	if err := os.WriteFile(file, []byte(identity.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := &cluster{server: server, world: &world{
		t: t, admin: admin, namespace: namespace, identity: identity, operator: &operator.Operator{IdentityFile: file},
	}}
	if err := apiserver.InstallOperator(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	if err := apiserver.NewOperatorNamespace(t.Context(), admin, namespace); err != nil {
		t.Fatal(err)
	}
	cluster.createNodes()
	if err := server.StartControllers(programs); err != nil {
		t.Fatal(err)
	}
	if err := server.StartNodes(programs, labelOfKwok+"=true"); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// start runs the operator as a program, with the rights of its manifest.
func (cluster *cluster) start(program string) *process {
	cluster.t.Helper()
	return cluster.startAt(cluster.server.AsOperator(), program)
}

// await returns when the condition holds. It fails the test if a process of the cluster exits.
func (cluster *cluster) await(what string, holds func() bool) {
	cluster.t.Helper()
	wait(cluster.t, what, func() bool {
		if err := cluster.server.Failure(); err != nil {
			cluster.t.Fatal(err)
		}
		return holds()
	})
}

// timed marks the test as failed if a step takes longer, and continues.
func (cluster *cluster) timed(what string, secondsMax int, step func()) {
	cluster.t.Helper()
	began := time.Now()
	step()
	took := time.Since(began)
	cluster.t.Logf("%s after %s", what, took.Round(100*time.Millisecond))
	if took > time.Duration(secondsMax)*time.Second {
		cluster.t.Errorf("%s after %s, more than %d s", what, took, secondsMax)
	}
}

func nodeName(index int) string { return fmt.Sprintf("node-%d", index) }

// createNodes creates nodes, and volumes on the first of them for the NATS servers.
func (cluster *cluster) createNodes() {
	cluster.t.Helper()
	for index := range clusterNodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(index)}}
		node.Labels = map[string]string{corev1.LabelHostname: node.Name, labelOfKwok: "true"}
		// Of a size at which the scheduler sees the difference that a pod makes.
		node.Status.Capacity = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}
		node.Status.Allocatable = node.Status.Capacity
		// Addresses for tests of networks: none is that of a real machine.
		node.Spec.PodCIDR = fmt.Sprintf("198.18.%d.0/24", index)
		node.Spec.PodCIDRs = []string{node.Spec.PodCIDR}
		cluster.create(node)
	}
	const class = "local"
	cluster.create(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
		"metadata": map[string]any{
			"name": class, "annotations": map[string]any{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
	}})
	for index := range clusterDunlins * serversOfDunlin {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("volume-%d", index)}}
		volume.Spec = corev1.PersistentVolumeSpec{
			StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Gi")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName(index)},
				}},
			}}}},
		}
		cluster.create(volume)
	}
}

func (cluster *cluster) createSubjects(apps, dunlins int) {
	cluster.t.Helper()
	for index := range apps {
		app := cluster.app(fmt.Sprintf("app-%d", index))
		cluster.files(app, fmt.Sprintf("LOG_LEVEL=info\nTOKEN=value-%d\n", index))
		app.Spec.Host = app.Name + ".example.com"
		app.Spec.Replicas = new(int32(podsOfApp))
		cluster.create(app)
	}
	for index := range dunlins {
		dunlin := cluster.clustered(fmt.Sprintf("rt-%d", index))
		dunlin.Spec.Host = dunlin.Name + ".example.com"
		dunlin.Spec.Nodes, dunlin.Spec.NATS.Servers = new(int32(nodesOfDunlin)), new(int32(serversOfDunlin))
		cluster.create(dunlin)
	}
}

// untilWell waits until the operator reports that all Apps and Dunlins with a name prefix match their current specs.
func (cluster *cluster) untilWell(prefix string) {
	cluster.t.Helper()
	last := ""
	cluster.t.Cleanup(func() {
		if cluster.t.Failed() {
			cluster.t.Logf("at last: %s", last)
		}
	})
	cluster.await("all are well", func() bool {
		for _, subject := range cluster.all() {
			conditions := conditionsOf(subject)
			isSeen := statusOf(subject).ObservedGeneration == subject.GetGeneration()
			if strings.HasPrefix(subject.GetName(), prefix) && (!isSeen || conditions != well) {
				last = fmt.Sprintf("%s: %t, %s", subject.GetName(), isSeen, conditions)
				return false
			}
		}
		return true
	})
}

// pods returns the pods of the namespace that are not being deleted. The name of their App or Dunlin begins with the prefix.
func (cluster *cluster) pods(prefix string) []corev1.Pod {
	cluster.t.Helper()
	var all corev1.PodList
	if err := cluster.admin.List(cluster.t.Context(), &all, client.InNamespace(cluster.namespace)); err != nil {
		cluster.t.Fatal(err)
	}
	return slices.DeleteFunc(all.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || !strings.HasPrefix(pod.Labels[render.LabelApp], prefix)
	})
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// checkPods checks the number of pods and their spread over nodes.
func (cluster *cluster) checkPods() {
	cluster.t.Helper()
	pods, used := cluster.pods(""), map[string]int{}
	for index := range pods {
		if !isReady(&pods[index]) {
			cluster.t.Errorf("%s is not ready", pods[index].Name)
		}
		used[pods[index].Spec.NodeName]++
	}
	want := clusterApps*podsOfApp + clusterDunlins*(nodesOfDunlin+serversOfDunlin)
	if len(pods) != want || len(used) < nodesUsedMin || used[""] > 0 {
		cluster.t.Errorf("%d pods instead of %d, on %d nodes: %v", len(pods), want, len(used), used)
	}
	cluster.t.Logf("%d pods are ready on %d nodes", len(pods), len(used))
}

// writes returns the number of the operator's calls that are not reads.
func (process *process) writes() int {
	process.t.Helper()
	figures, err := process.figures()
	if err != nil {
		process.t.Fatalf("%v: %s", err, process.log)
	}
	reads, writes := 0, 0
	for name, count := range figures {
		switch {
		case !strings.HasPrefix(name, "rest_client_requests_total{"):
		case strings.Contains(name, `method="GET"`):
			reads += int(count)
		default:
			writes += int(count)
		}
	}
	if reads == 0 {
		process.t.Fatal("the operator does not count its calls")
	}
	return writes
}
