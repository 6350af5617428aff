package command_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/command"
)

// failingServer is a proxy of an API server that fails one request.
type failingServer struct {
	mutex sync.Mutex
	// path is a part of the path of the write that fails once. If isLost is set, the write is performed, and only its response is lost.
	path   string
	isLost bool
	failed int
	next   http.Handler
}

func newFailingServer(t *testing.T, connection *rest.Config) (*failingServer, *rest.Config) {
	t.Helper()
	transport, err := rest.TransportFor(connection)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(connection.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	failing := &failingServer{next: proxy}
	listening := httptest.NewServer(failing)
	t.Cleanup(listening.Close)
	return failing, &rest.Config{Host: listening.URL}
}

func (failing *failingServer) breaks(path string, isLost bool) {
	failing.mutex.Lock()
	defer failing.mutex.Unlock()
	failing.path, failing.isLost, failing.failed = path, isLost, 0
}

// count returns the number of writes that have failed since the call of breaks.
func (failing *failingServer) count() int {
	failing.mutex.Lock()
	defer failing.mutex.Unlock()
	return failing.failed
}

func (failing *failingServer) takes(request *http.Request) (fails, isLost bool) {
	failing.mutex.Lock()
	defer failing.mutex.Unlock()
	isWrite := request.Method != http.MethodGet && !request.URL.Query().Has("dryRun")
	if !isWrite || failing.path == "" || failing.failed > 0 || !strings.Contains(request.URL.Path, failing.path) {
		return false, false
	}
	failing.failed++
	return true, failing.isLost
}

func (failing *failingServer) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	fails, isLost := failing.takes(request)
	if !fails {
		failing.next.ServeHTTP(writer, request)
		return
	}
	if isLost {
		failing.next.ServeHTTP(httptest.NewRecorder(), request)
	}
	_, _ = io.Copy(io.Discard, request.Body)
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(http.StatusInternalServerError)
	fmt.Fprint(writer, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"planted","reason":"InternalError","code":500}`)
}

// TestBootstrapGoesOnAfterAFailureInAnyStep makes each step fail in its middle, and checks that the next run continues there. A failed write may
// have been performed or not; the user cannot know.
func TestBootstrapGoesOnAfterAFailureInAnyStep(t *testing.T) {
	site := bare(t)
	failing, connection := newFailingServer(t, site.server.Admin)
	site.makeNodes("v1.36.3+k3s1")
	site.runOperatorPods()

	// SSH fails after the playbook: the first step is not done, because it is unknown whether the nodes are ready.
	site.write("kubeconfig", "")
	_, stderr := site.roost(command.ExitFailed, "bootstrap", "@cluster")
	contains(t, stderr, "step 1 of 6, machines: ", "run the command again")
	site.write("kubeconfig", site.kubeconfig(connection))

	for number, row := range []struct{ path, sentence string }{
		{"/customresourcedefinitions/dunlins", "step 3 of 6, operator: CustomResourceDefinition dunlins."},
		{"/secrets", "step 3 of 6, operator: "},
		{"/deployments/roost-operator", "step 3 of 6, operator: Deployment roost-operator in roost-system"},
		{"/namespaces/web/serviceaccounts", "step 4 of 6, identities: "},
		{"/namespaces/web/rolebindings", "step 4 of 6, identities: "},
		{"/configmaps/argocd-cm", "step 5 of 6, argocd: ConfigMap argocd-cm in argocd"},
		{"/apps/shop", "step 6 of 6, apps: "},
	} {
		failing.breaks(row.path, number%2 == 1)
		_, stderr := site.roost(command.ExitFailed, "bootstrap", "@cluster")
		if failing.count() != 1 {
			t.Fatalf("%s: %d writes have failed:\n%s", row.path, failing.count(), stderr)
		}
		contains(t, stderr, row.sentence)
		if row.path == "/secrets" && site.hasOperator() {
			t.Error("the operator is started before its age identities are written")
		}
	}
	failing.breaks("", false)
	site.runOperator()
	site.runControllers()
	out, _ := site.roost(command.ExitFine, "bootstrap", "@cluster")
	contains(t, out, "machines: already done", "operator: already done", "argocd: already done")
	out, _ = site.roost(command.ExitFine, "bootstrap", "@cluster")
	if strings.Contains(out, "done in") {
		t.Errorf("a second run has done something:\n%s", out)
	}
}

func (site *site) hasOperator() bool {
	site.t.Helper()
	err := site.admin.Get(site.t.Context(), client.ObjectKey{Namespace: "roost-system", Name: "roost-operator"}, &appsv1.Deployment{})
	if client.IgnoreNotFound(err) != nil {
		site.t.Fatal(err)
	}
	return err == nil
}

// A ready node that is cordoned does not count as done: a failed upgrade leaves such a node.
func TestBootstrapFindsACordonedNode(t *testing.T) {
	site := bare(t)
	site.makeNodes("v1.36.3+k3s1")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker1"}}
	cordon := func(isCordoned bool) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, isCordoned))
		if err := site.admin.Patch(t.Context(), node, patch); err != nil {
			t.Fatal(err)
		}
	}
	cordon(true)
	_, stderr := site.roost(command.ExitFailed, "bootstrap", "@cluster")
	contains(t, stderr, "step 1 of 6, machines: still pending: worker1 is cordoned", "kubectl uncordon worker1")
	plays := site.linesOf("plays")

	// The playbook does the rest.
	site.stands("ansible-playbook", `echo "$*" >> "`+site.folder+`/plays"; touch "`+site.folder+`/uncordoned"`)
	_, stderr = site.roost(command.ExitFailed, "bootstrap", "@cluster")
	contains(t, stderr, "machines: worker1 is cordoned")
	if _, err := os.Stat(filepath.Join(site.folder, "uncordoned")); err != nil || site.linesOf("plays") != plays+1 {
		t.Errorf("the playbook has not run again: %v", err)
	}
	cordon(false)
	out, _ := site.roost(command.ExitFine, "bootstrap", "--plan", "@cluster")
	contains(t, out, "machines    nothing")
}
