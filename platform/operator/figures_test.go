package operator_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

const metricsText = `# HELP dunlin_sessions Connected sessions.
# TYPE dunlin_sessions gauge
dunlin_sessions{shard="0"} 3
dunlin_sessions{shard="1"} 4
dunlin_sessions_behind{over_seconds="1"} 99
dunlin_rooms{thread="0"} 2
dunlin_build_info{version="0.1.0",reactor="epoll"} 1
`

// A node that responds, with its response and the number of requests.
func (world *world) node(text string) *atomic.Int64 {
	asked := &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if asked.Add(1); request.URL.Path != "/metrics" {
			http.NotFound(writer, request)
			return
		}
		fmt.Fprint(writer, text)
	}))
	world.t.Cleanup(server.Close)
	world.operator.DialNode = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "10.1.2.3:9000" {
			return nil, fmt.Errorf("%s is no node", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	return asked
}

// runningNode creates the pod of a node with the status that a kubelet would write.
func (world *world) runningNode(name string) {
	world.t.Helper()
	var set appsv1.StatefulSet
	if err := world.get(name, &set); err != nil {
		world.t.Fatal(err)
	}
	template := set.Spec.Template
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-0", Namespace: world.namespace, Labels: template.Labels}, Spec: template.Spec,
	}
	world.create(pod)
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	if err := world.admin.Status().Update(world.t.Context(), pod); err != nil {
		world.t.Fatal(err)
	}
}

func TestTheStatusHasTheFiguresOfTheNodes(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		text, want string
	}{
		"answers":     {metricsText, "1 of 1 ready, 1 answer: 7 sessions, 2 rooms, version 0.1.0"},
		"another":     {"up 1\n", "1 of 1 ready, 0 answer: 0 sessions, 0 rooms, version "},
		"nonsense":    {strings.Replace(metricsText, "} 3", "} NaN", 1), "1 of 1 ready, 1 answer: 4 sessions, 2 rooms, version 0.1.0"},
		"endless":     {metricsText + strings.Repeat("x", 2<<20), "1 of 1 ready, 0 answer: 0 sessions, 0 rooms, version "},
		"longversion": {strings.Replace(metricsText, "0.1.0", strings.Repeat("9", 65), 1), "1 of 1 ready, 0 answer: 0 sessions, 0 rooms, version "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := newWorld(t, "figures-"+name)
			now := time.Now()
			world.operator.Now = func() time.Time { return now }
			asked := world.node(row.text)
			world.createSecret("keys", map[string]string{render.LabelUsable: "true"})
			dunlin := &v1alpha1.Dunlin{
				ObjectMeta: metav1.ObjectMeta{Name: "rt", Namespace: world.namespace},
				Spec:       v1alpha1.DunlinSpec{Image: "dunlin:1", Keys: v1alpha1.Keys{Secret: "keys"}},
			}
			world.create(dunlin)
			world.converge("Dunlin", "rt")
			world.runningNode("rt")
			world.converge("Dunlin", "rt")
			if err := world.get("rt", dunlin); err != nil {
				t.Fatal(err)
			}
			found := dunlin.Status.Dunlin
			if text := fmt.Sprintf("%d of %d ready, %d answer: %d sessions, %d rooms, version %s", found.NodesReady, found.NodesDesired,
				found.NodesAnswering, found.Sessions, found.Rooms, found.Version); text != row.want {
				t.Error(text)
			}
			// Passes that follow each other ask once, and write nothing.
			world.calls.reset(0, false)
			if err := world.pass("Dunlin", "rt"); err != nil || len(world.calls.writes) > 0 || asked.Load() != 1 {
				t.Errorf("%v, %v, asked %d times", err, world.calls.writes, asked.Load())
			}
			now = now.Add(time.Minute)
			if err := world.pass("Dunlin", "rt"); err != nil || len(world.calls.writes) > 0 || asked.Load() != 2 {
				t.Errorf("%v, %v, asked %d times", err, world.calls.writes, asked.Load())
			}
		})
	}
}
