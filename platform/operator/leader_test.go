package operator_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAnotherOperatorTakesOver stops the leader.
func TestAnotherOperatorTakesOver(t *testing.T) {
	world := newWorld(t, "leader")
	program := programOfOperator(t)
	refusesArguments(t, program)
	world.create(world.app("first"))
	// On a busy machine, the leader may be late.
	arguments := []string{"--leader-namespace=roost-system", "--lease-seconds=40"}
	leader := world.start(program, arguments...)
	world.waitUntilWell(1)
	other := world.start(program, arguments...)
	if figures, err := other.figures(); err != nil || figures[`leader_election_master_status{name="roost-operator"}`] != 0 {
		t.Errorf("there are two leaders, or %v", err)
	}
	leader.stop()
	world.create(world.app("second"))
	world.waitUntilWell(2)
	if figures, err := other.figures(); err != nil || figures[`leader_election_master_status{name="roost-operator"}`] != 1 {
		t.Errorf("the other operator is not the leader, or %v", err)
	}
	other.stop()
}

const (
	takeoverSecondsMax = 20
	kills              = 3
)

// TestAKilledLeaderIsReplaced checks the time until another operator writes. The killed leader has not released its Lease.
func TestAKilledLeaderIsReplaced(t *testing.T) {
	if !isWhole() {
		t.Skip("ROOST_TEST_WHOLE is not set; `make operator` sets it")
	}
	world := newWorld(t, "killed")
	program := programOfOperator(t)
	world.create(world.app("first"))
	leader := world.start(program, "--leader-namespace=roost-system")
	world.waitUntilWell(1)
	for kill := range kills {
		other := world.start(program, "--leader-namespace=roost-system")
		if err := leader.command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-leader.ended
		begin := time.Now()
		name := fmt.Sprintf("after-%d", kill)
		world.create(world.app(name))
		wait(t, "the other operator writes", func() bool { return len(world.list("Service", name)) == 1 })
		took := time.Since(begin)
		t.Logf("another operator has taken over %s after the leader was killed", took.Round(time.Millisecond))
		if took > takeoverSecondsMax*time.Second {
			t.Errorf("more than %d s", takeoverSecondsMax)
		}
		leader = other
	}
	leader.stop()
}

// observed is a connection to the API server that counts the writes of one operator.
type observed struct {
	mutex  sync.Mutex
	writes []string
}

func (observed *observed) reset() []string {
	observed.mutex.Lock()
	defer observed.mutex.Unlock()
	writes := observed.writes
	observed.writes = nil
	return writes
}

// observe returns a connection to a proxy with the rights of the operator.
func (world *world) observe() (*observed, *rest.Config) {
	world.t.Helper()
	server, _ := server(world.t)
	connection := server.AsOperator()
	next, err := rest.TransportFor(connection)
	if err != nil {
		world.t.Fatal(err)
	}
	target, err := url.Parse(connection.Host)
	if err != nil {
		world.t.Fatal(err)
	}
	observed := &observed{}
	proxy := &httputil.ReverseProxy{
		Transport: next, FlushInterval: -1,
		Rewrite: func(request *httputil.ProxyRequest) { request.SetURL(target) },
	}
	front := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodGet {
			observed.mutex.Lock()
			observed.writes = append(observed.writes, request.Method+" "+request.URL.Path)
			observed.mutex.Unlock()
		}
		proxy.ServeHTTP(writer, request)
	}))
	world.t.Cleanup(front.CloseClientConnections)
	return observed, &rest.Config{Host: front.URL}
}

// TestADeposedLeaderWritesNothing stops a leader for longer than its Lease is valid. When it resumes, it has pending work, and there is another leader.
func TestADeposedLeaderWritesNothing(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "deposed")
	program := programOfOperator(t)
	arguments := []string{"--leader-namespace=roost-system", "--lease-seconds=8"}
	world.create(world.app("first"))
	observed, connection := world.observe()
	leader := world.startAt(connection, program, arguments...)
	world.waitUntilWell(1)
	if writes := observed.reset(); len(writes) == 0 {
		t.Fatal("the leader has written nothing")
	}
	other := world.start(program, arguments...)
	if err := leader.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	world.create(world.app("second"))
	wait(t, "the other operator writes", func() bool { return len(world.list("Service", "second")) == 1 })
	successor := world.holder()
	world.deleteOne("Service", "first")
	world.create(world.app("third"))
	observed.reset()
	if err := leader.command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-leader.ended
	if code := leader.command.ProcessState.ExitCode(); code != 1 {
		t.Errorf("the deposed leader has ended with %d: %s", code, leader.log)
	}
	if writes := observed.reset(); len(writes) > 0 {
		t.Errorf("the deposed leader has written: %q", writes)
	}
	world.waitUntilWell(3)
	if now := world.holder(); now != successor {
		t.Errorf("the Lease of %s has become that of %q", successor, now)
	}
	other.stop()
}

// holder returns the holder of the Lease.
func (world *world) holder() string {
	world.t.Helper()
	lease := &unstructured.Unstructured{}
	lease.SetAPIVersion("coordination.k8s.io/v1")
	lease.SetKind("Lease")
	if err := world.admin.Get(world.t.Context(), client.ObjectKey{Namespace: "roost-system", Name: "roost-operator"}, lease); err != nil {
		world.t.Fatal(err)
	}
	holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	return holder
}

func refusesArguments(t *testing.T, program string) {
	t.Helper()
	for _, row := range []struct {
		arguments []string
		sentence  string
	}{
		{nil, "--namespaces is missing; set it to the namespaces to reconcile"},
		{[]string{"--namespaces=web", "--lease-seconds=7"}, "--lease-seconds: 7 is less than 8; set it to 8 or more"},
	} {
		output, err := exec.Command(program, row.arguments...).CombinedOutput()
		if err == nil || !strings.Contains(string(output), row.sentence) {
			t.Errorf("%v: %v, %s", row.arguments, err, output)
		}
	}
}
