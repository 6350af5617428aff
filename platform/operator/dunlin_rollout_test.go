package operator_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// fleet simulates the pods of a Dunlin's nodes, with the writes of a kubelet and of the StatefulSet controller, and responds to requests to the nodes.
type fleet struct {
	*world
	dunlin *v1alpha1.Dunlin
	now    time.Time
	guard  sync.Mutex
	// sessions of each address. One without any does not answer.
	sessions map[string]int
	outside  map[string]bool
	busy     float64
	recorder *record.FakeRecorder
}

func newFleet(t *testing.T, namespace string, nodes int, spec v1alpha1.DunlinSpec) *fleet {
	t.Helper()
	fleet := &fleet{world: newWorld(t, namespace), now: time.Now().Truncate(time.Second), sessions: map[string]int{}, outside: map[string]bool{}, recorder: record.NewFakeRecorder(100)}
	server := httptest.NewServer(http.HandlerFunc(fleet.answer))
	t.Cleanup(server.Close)
	fleet.operator.Recorder = fleet.recorder
	fleet.operator.Now = func() time.Time { return fleet.now }
	fleet.operator.DialNode = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
		if err == nil {
			// The request has the address of the node as its host.
			return connection, nil
		}
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	fleet.createSecret("keys", map[string]string{render.LabelUsable: "true"})
	spec.Image, spec.Keys.Secret = "dunlin:1", "keys"
	spec.NATS = &v1alpha1.NATS{URL: "nats://dunlin:$(NATS_PASSWORD)@10.0.0.1:4222"}
	fleet.dunlin = &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Name: "rt", Namespace: namespace}, Spec: spec}
	fleet.create(fleet.dunlin)
	fleet.converge("Dunlin", "rt")
	for number := range nodes {
		fleet.start(number, "old", 100)
	}
	fleet.report("old", nodes, nodes)
	return fleet
}

func (fleet *fleet) answer(writer http.ResponseWriter, request *http.Request) {
	fleet.guard.Lock()
	defer fleet.guard.Unlock()
	host, _, _ := net.SplitHostPort(request.Host)
	sessions, answers := fleet.sessions[host]
	if !answers {
		http.Error(writer, "starting", http.StatusServiceUnavailable)
		return
	}
	ready := 1
	if fleet.outside[host] {
		ready = 0
	}
	fmt.Fprintf(writer, "dunlin_sessions{shard=\"0\"} %d\ndunlin_rooms{thread=\"0\"} 0\ndunlin_build_info{version=\"0.1.0\"} 1\n", sessions)
	fmt.Fprintf(writer, "dunlin_shard_busy_ratio{shard=\"0\"} %f\ndunlin_cluster_ready %d\n", fleet.busy, ready)
}

func address(number int) string { return fmt.Sprintf("10.1.2.%d", 10+number) }

func (fleet *fleet) set(number, sessions int, isOutside bool) {
	fleet.guard.Lock()
	defer fleet.guard.Unlock()
	fleet.sessions[address(number)], fleet.outside[address(number)] = sessions, isOutside
	if sessions < 0 {
		delete(fleet.sessions, address(number))
	}
}

func (fleet *fleet) pod(number int) *corev1.Pod {
	fleet.t.Helper()
	var pod corev1.Pod
	if err := fleet.get(fmt.Sprintf("rt-%d", number), &pod); err != nil {
		fleet.t.Fatal(err)
	}
	return &pod
}

// start creates a ready pod. If the number of sessions is negative, the pod runs and is not ready.
func (fleet *fleet) start(number int, revision string, sessions int) {
	fleet.t.Helper()
	var set appsv1.StatefulSet
	if err := fleet.get("rt", &set); err != nil {
		fleet.t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("rt-%d", number), Namespace: fleet.namespace}, Spec: set.Spec.Template.Spec}
	pod.Labels = map[string]string{appsv1.StatefulSetRevisionLabel: revision}
	for name, value := range set.Spec.Template.Labels {
		pod.Labels[name] = value
	}
	fleet.create(pod)
	fleet.set(number, sessions, false)
	fleet.ready(number, sessions >= 0)
}

func (fleet *fleet) ready(number int, isReady bool) {
	fleet.t.Helper()
	pod := fleet.pod(number)
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(fleet.now)}
	if isReady {
		condition.Status = corev1.ConditionTrue
	}
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address(number), PodIPs: []corev1.PodIP{{IP: address(number)}}, Conditions: []corev1.PodCondition{condition},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "dunlin", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(fleet.now)}},
		}},
	}
	if err := fleet.admin.Status().Update(fleet.t.Context(), pod); err != nil {
		fleet.t.Fatal(err)
	}
}

func (fleet *fleet) remove(number int) {
	fleet.t.Helper()
	if err := fleet.admin.Delete(fleet.t.Context(), fleet.pod(number), client.GracePeriodSeconds(0)); err != nil {
		fleet.t.Fatal(err)
	}
}

// report writes the status of the StatefulSet.
func (fleet *fleet) report(revision string, updated, ready int) {
	fleet.t.Helper()
	var set appsv1.StatefulSet
	if err := fleet.get("rt", &set); err != nil {
		fleet.t.Fatal(err)
	}
	set.Status = appsv1.StatefulSetStatus{
		ObservedGeneration: set.Generation, Replicas: *set.Spec.Replicas, UpdateRevision: revision, UpdatedReplicas: int32(updated), ReadyReplicas: int32(ready),
	}
	if err := fleet.admin.Status().Update(fleet.t.Context(), &set); err != nil {
		fleet.t.Fatal(err)
	}
}

// look makes a pass after some seconds, with an operator that has just started. It returns the pause until the next pass.
func (fleet *fleet) look(seconds int) time.Duration {
	fleet.t.Helper()
	fleet.now = fleet.now.Add(time.Duration(seconds) * time.Second)
	before := fleet.operator
	fleet.operator = &operator.Operator{
		Reader: before.Reader, Live: before.Live, Writer: before.Writer, Namespaces: before.Namespaces, IdentityFile: before.IdentityFile,
		Now: before.Now, DialNode: before.DialNode, Recorder: before.Recorder,
	}
	pause, err := fleet.operator.Pass(fleet.t.Context(), "Dunlin", types.NamespacedName{Namespace: fleet.namespace, Name: "rt"})
	if err != nil {
		fleet.t.Fatal(err)
	}
	return pause
}

// want compares the partition, the number of nodes, and a part of the conditions.
func (fleet *fleet) want(what string, partition, nodes int32, words string) {
	fleet.t.Helper()
	var set appsv1.StatefulSet
	if err := fleet.get("rt", &set); err != nil {
		fleet.t.Fatal(err)
	}
	if err := fleet.get("rt", fleet.dunlin); err != nil {
		fleet.t.Fatal(err)
	}
	var conditions []string
	for _, condition := range fleet.dunlin.Status.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
	}
	text := strings.Join(conditions, "\n")
	if found := *set.Spec.UpdateStrategy.RollingUpdate.Partition; found != partition || *set.Spec.Replicas != nodes || !strings.Contains(text, words) {
		fleet.t.Fatalf("%s: partition %d, %d nodes\n%s", what, found, *set.Spec.Replicas, text)
	}
}

// events returns the events since the last call, without their messages.
func (fleet *fleet) events() string {
	var reasons []string
	for {
		select {
		case text := <-fleet.recorder.Events:
			reasons = append(reasons, strings.Fields(text)[1])
		default:
			return strings.Join(reasons, " ")
		}
	}
}

func (fleet *fleet) edit(change func(*v1alpha1.DunlinSpec)) {
	fleet.t.Helper()
	if err := fleet.get("rt", fleet.dunlin); err != nil {
		fleet.t.Fatal(err)
	}
	change(&fleet.dunlin.Spec)
	fleet.update(fleet.dunlin)
}

// A release replaces the last node. The next node is replaced when that one is ready and in its cluster, and 98 % of the sessions have reconnected. The
// operator restarts before each pass.
func TestNodesAreReplacedOneByOne(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, "one-by-one", 3, v1alpha1.DunlinSpec{Nodes: new(int32(3))})
	fleet.look(60)
	fleet.want("at rest", 0, 3, "Progressing=False AsDesired")
	fleet.edit(func(spec *v1alpha1.DunlinSpec) { spec.Image = "dunlin:2" })
	fleet.look(1)
	fleet.want("released", 3, 3, "Progressing=True Applying")
	fleet.look(1)
	fleet.want("Kubernetes has not seen it", 3, 3, "Kubernetes has not observed the last change")
	fleet.report("new", 0, 3)
	fleet.look(1)
	fleet.want("the first one goes", 2, 3, "Progressing=True Applying")
	fleet.report("new", 0, 3)
	if pause := fleet.look(1); pause > 2*time.Second {
		t.Errorf("%v until the next pass", pause)
	}
	fleet.remove(2)
	fleet.set(2, -1, false)
	fleet.start(2, "new", -1)
	fleet.report("new", 1, 2)
	fleet.look(1)
	fleet.want("it starts", 2, 3, "rt-2 is not ready")
	fleet.look(reconcile.NotReadySeconds)
	fleet.want("it starts for long", 2, 3, "Degraded=True PodNotReady: rt-2 runs and has not been ready since")
	fleet.ready(2, true)
	fleet.set(2, 0, true)
	fleet.report("new", 1, 3)
	fleet.look(1)
	fleet.want("it is ready", 2, 3, "rt-2 has no connection to NATS")
	fleet.look(1000)
	fleet.want("it has no cluster for long", 2, 3, "Degraded=True NodeOutOfCluster: rt-2: no connection to NATS")
	fleet.ready(2, true)
	fleet.set(2, 93, false)
	fleet.look(1)
	fleet.want("sessions are missing", 2, 3, "until 294 of 300 sessions have reconnected")
	fleet.set(2, 94, false)
	fleet.look(2)
	fleet.want("they are back", 1, 3, "Degraded=False")
	fleet.report("new", 1, 3)
	fleet.remove(1)
	fleet.start(1, "new", 0)
	fleet.report("new", 2, 3)
	fleet.look(1)
	fleet.want("the second one", 1, 3, "until 289 of 294 sessions have reconnected")
	fleet.look(120)
	fleet.want("they have had their time", 0, 3, "")
	if events := fleet.events(); !strings.Contains(events, "NodeOutOfCluster") || !strings.Contains(events, "SessionsMissing") || strings.Contains(events, "DriftUndone") {
		t.Error(events)
	}
	fleet.remove(0)
	fleet.start(0, "new", 0)
	fleet.report("new", 3, 3)
	fleet.look(1)
	fleet.report("new", 3, 3)
	fleet.look(1)
	fleet.want("the end", 0, 3, "Progressing=False AsDesired")
	fleet.calls.reset(0, false)
	if fleet.look(0); len(fleet.calls.writes) > 0 {
		t.Error(fleet.calls.writes)
	}
}

// Nodes are added at once, and removed one by one. The operator reverts a manual change of their number.
func TestTheOperatorScalesNodes(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, "scaled-nodes", 2, v1alpha1.DunlinSpec{Autoscaling: &v1alpha1.NodeAutoscaling{Min: 2, Max: 5, SessionsPerNode: new(int32(100))}})
	desired := func(nodes int32) {
		t.Helper()
		if err := fleet.get("rt", fleet.dunlin); err != nil || fleet.dunlin.Status.Dunlin.NodesDesired != nodes {
			t.Fatalf("%v: %+v", err, fleet.dunlin.Status.Dunlin)
		}
	}
	if pause := fleet.look(60); pause != 15*time.Second {
		t.Errorf("%v until the next pass", pause)
	}
	fleet.want("as many as they can have", 0, 2, "Progressing=False")
	fleet.events()
	fleet.set(0, 300, false)
	fleet.look(60)
	fleet.want("more", 0, 4, "")
	if events := fleet.events(); events != "NodesScaled" {
		t.Error(events)
	}
	desired(4)
	fleet.start(2, "old", 0)
	fleet.start(3, "old", 0)
	fleet.report("old", 4, 4)
	fleet.look(1)
	fleet.events()

	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
	var set appsv1.StatefulSet
	if err := fleet.get("rt", &set); err != nil {
		t.Fatal(err)
	}
	if err := fleet.admin.SubResource("scale").Update(t.Context(), &set, client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	fleet.look(1)
	fleet.want("a person's number", 0, 4, "")
	if events := fleet.events(); !strings.Contains(events, "DriftUndone") {
		t.Error(events)
	}
	fleet.report("old", 4, 4)

	fleet.set(0, 50, false)
	fleet.look(60)
	fleet.look(299)
	desired(4)
	fleet.set(3, -1, false)
	fleet.look(60)
	desired(4)
	fleet.set(3, 0, false)
	fleet.look(60)
	fleet.look(300)
	desired(3)
	fleet.want("one goes", 0, 3, "")
	fleet.report("old", 3, 3)
	fleet.remove(3)
	fleet.look(1)
	fleet.report("old", 3, 3)
	fleet.look(60)
	fleet.look(299)
	desired(3)
	fleet.look(1)
	desired(2)
}

// A pod that runs and never becomes ready is reported within 30 seconds, regardless of its startup limit.
func TestAPodThatIsNeverReadyIsReported(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]*resource.Quantity{"deployment": nil, "statefulset": new(resource.MustParse("1Gi"))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := newWorld(t, "never-ready-"+name)
			app := world.app("shop")
			if size != nil {
				app.Spec.Volumes = []v1alpha1.Volume{{Name: "data", Path: "/data", Size: size}}
			}
			world.create(app)
			world.converge("App", "shop")
			world.failPod("shop", "")
			var pod corev1.Pod
			if err := world.get("shop-1", &pod); err != nil {
				t.Fatal(err)
			}
			began := time.Now().Truncate(time.Second)
			pod.Status = corev1.PodStatus{
				Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(began.Add(-time.Minute))}},
				ContainerStatuses: []corev1.ContainerStatus{{
					Name: "app", Started: new(false), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began)}},
				}},
			}
			if err := world.admin.Status().Update(t.Context(), &pod); err != nil {
				t.Fatal(err)
			}
			now := began
			world.operator.Now = func() time.Time { return now }
			look := func() time.Duration {
				pause, err := world.operator.Pass(t.Context(), "App", types.NamespacedName{Namespace: world.namespace, Name: "shop"})
				if err != nil {
					t.Fatal(err)
				}
				return pause
			}
			pause := look()
			if status, message := world.status(app); !strings.Contains(status, "Degraded=False") || pause == 0 || pause > 30*time.Second {
				t.Fatalf("after %v: %s, %s", pause, status, message)
			}
			now = now.Add(pause)
			look()
			want := "shop-1 runs and has not been ready since " + began.UTC().Format(time.RFC3339) + ": its health check does not pass"
			if status, message := world.status(app); !strings.Contains(status, "Degraded=True PodNotReady") || message != want {
				t.Errorf("%s\n%s", status, message)
			}
		})
	}
}

// A change of a user's Secret restarts the nodes. If a required key is missing, nothing changes.
func TestASecretOfOthersChanges(t *testing.T) {
	t.Parallel()
	fleet := newFleet(t, "changed-keys", 3, v1alpha1.DunlinSpec{Nodes: new(int32(3))})
	fleet.look(60)
	var secret corev1.Secret
	if err := fleet.get("keys", &secret); err != nil {
		t.Fatal(err)
	}
	hash := func() string {
		t.Helper()
		var set appsv1.StatefulSet
		if err := fleet.get("rt", &set); err != nil {
			t.Fatal(err)
		}
		return set.Spec.Template.Annotations[render.AnnotationKeys]
	}
	change := func(content map[string]string) {
		t.Helper()
		secret.Data = nil
		secret.StringData = content
		fleet.update(&secret)
		fleet.look(31)
	}
	first := hash()
	if fleet.look(31); first == "" || hash() != first {
		t.Errorf("%q, %q", first, hash())
	}
	change(map[string]string{"api_key": "c4n4ry-api", "token_hmac_secret_key": "c4n4ry-token"})
	second := hash()
	if second == first {
		t.Error("a changed Secret does not restart the nodes")
	}
	fleet.want("the nodes are replaced one by one", 3, 3, "")
	for words, content := range map[string]map[string]string{
		"has no api_key; add it with `kubectl -n changed-keys edit secret keys`": {"token_hmac_secret_key": "c4n4ry-token"},
		"cannot be used: nats_password may contain only letters":                 {"api_key": "c4n4ry-api", "token_hmac_secret_key": "c4n4ry-token", "nats_password": "c4n4ry@"},
	} {
		change(content)
		if status, message := fleet.status(fleet.dunlin); !strings.Contains(status, "Degraded=True SecretRefused") || !strings.Contains(message, words) || strings.Contains(message, "c4n4ry") {
			t.Errorf("%s\n%s", status, message)
		}
		if hash() != second {
			t.Error("a Secret that is refused restarts the nodes")
		}
	}
}
