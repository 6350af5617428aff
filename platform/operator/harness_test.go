package operator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/dotenv"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
)

var (
	sharedServer *apiserver.Server
	sharedAdmin  client.Client
	sharedFolder string
	sharedOnce   sync.Once
)

// TestMain stops the server that the tests share, and removes its files.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	code := m.Run()
	if sharedServer != nil {
		sharedServer.Stop()
	}
	if sharedFolder != "" {
		if err := os.RemoveAll(sharedFolder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// world is a namespace on a real API server, with an operator whose passes the test calls.
type world struct {
	t         *testing.T
	admin     client.Client
	namespace string
	operator  *operator.Operator
	identity  *age.X25519Identity
	// calls of the operator, in order.
	calls *calls
	// variables are further environment variables of an operator that runs as a program.
	variables []string
}

// server starts an API server for all tests, with the CustomResourceDefinitions and the manifests of the operator.
func server(t *testing.T) (*apiserver.Server, client.Client) {
	t.Helper()
	programs, isThere := apiserver.ProgramsOfTest()
	if !isThere {
		t.Skip("ROOST_TEST_ETCD or ROOST_TEST_KUBE_APISERVER is not set; `make platform` sets them")
	}
	sharedOnce.Do(func() {
		var err error
		if sharedFolder, err = os.MkdirTemp("", "roost-operator-test"); err != nil {
			t.Fatal(err)
		}
		started, err := apiserver.Start(programs, sharedFolder)
		if err != nil {
			t.Fatal(err)
		}
		admin, err := client.New(started.Admin, client.Options{Scheme: operator.NewScheme()})
		if err == nil {
			err = apiserver.InstallOperator(context.Background(), admin)
		}
		if err != nil {
			started.Stop()
			t.Fatal(err)
		}
		sharedServer, sharedAdmin = started, admin
	})
	if sharedServer == nil {
		t.Fatal("the API server did not start")
	}
	return sharedServer, sharedAdmin
}

// newWorld creates a world. Its operator reads from the API server without a cache, so that each pass sees all earlier writes.
func newWorld(t *testing.T, namespace string) *world {
	t.Helper()
	server, admin := server(t)
	if err := apiserver.NewOperatorNamespace(t.Context(), admin, namespace); err != nil {
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
	calls := &calls{}
	connection := server.AsOperator()
	connection.Wrap(calls.wrap)
	direct, err := client.New(connection, client.Options{Scheme: operator.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	return &world{
		t: t, admin: admin, namespace: namespace, identity: identity, calls: calls,
		operator: &operator.Operator{
			Reader: direct, Live: direct, Writer: direct, Namespaces: []string{namespace}, IdentityFile: file,
		},
	}
}

// calls counts the calls of an operator, and makes one of them fail.
type calls struct {
	mutex sync.Mutex
	// all counts calls but for discovery and watches.
	all    int
	writes []string
	// failAt is the number of the call that fails. 0: none. isLost says that the server has done it nevertheless.
	failAt int
	isLost bool
	failed bool
}

func (calls *calls) hasFailed() bool {
	calls.mutex.Lock()
	defer calls.mutex.Unlock()
	return calls.failed
}

func (calls *calls) count() int {
	calls.mutex.Lock()
	defer calls.mutex.Unlock()
	return calls.all
}

var errInjected = errors.New("injected: the connection is gone")

type transport struct {
	calls *calls
	next  http.RoundTripper
}

func (calls *calls) wrap(next http.RoundTripper) http.RoundTripper { return &transport{calls, next} }

func (transport *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	isCounted := strings.Contains(request.URL.Path, "/namespaces/") && request.URL.Query().Get("watch") == ""
	if !isCounted {
		return transport.next.RoundTrip(request)
	}
	calls := transport.calls
	calls.mutex.Lock()
	calls.all++
	fails := calls.all == calls.failAt
	calls.failed = calls.failed || fails
	if request.Method != http.MethodGet {
		calls.writes = append(calls.writes, request.Method+" "+request.URL.Path)
	}
	isLost := calls.isLost
	calls.mutex.Unlock()
	if fails && !isLost {
		return nil, errInjected
	}
	response, err := transport.next.RoundTrip(request)
	if fails && err == nil {
		response.Body.Close()
		return nil, errInjected
	}
	return response, err
}

// reset resets the counts, and returns the earlier writes.
func (calls *calls) reset(failAt int, isLost bool) []string {
	calls.mutex.Lock()
	defer calls.mutex.Unlock()
	writes := calls.writes
	calls.all, calls.writes, calls.failAt, calls.isLost, calls.failed = 0, nil, failAt, isLost, false
	return writes
}

// runBehind runs an operator whose connection is wrapped, until the test ends.
func (world *world) runBehind(wrap func(http.RoundTripper) http.RoundTripper) {
	world.t.Helper()
	server, _ := server(world.t)
	connection := server.AsOperator()
	connection.Wrap(wrap)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(ctx, connection, operator.Options{
			Namespaces: []string{world.namespace}, IdentityFile: world.operator.IdentityFile, CallSeconds: 1,
			HealthAddress: "0", MetricsAddress: "0", Log: logr.Discard(),
		})
	}()
	world.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			world.t.Errorf("the operator has ended: %v", err)
		}
	})
}

func (world *world) app(name string) *v1alpha1.App {
	return &v1alpha1.App{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "App"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: world.namespace},
		Spec: v1alpha1.AppSpec{
			Image: "shop:1", Ports: []v1alpha1.Port{{Port: 8080}}, Health: v1alpha1.Health{Path: "/healthz"},
		},
	}
}

// files encrypts a file and writes it as `roost deploy` does.
func (world *world) files(app *v1alpha1.App, text string) {
	world.t.Helper()
	app.Spec.EnvFiles = v1alpha1.EnvFiles{"shop.env"}
	app.Annotations = map[string]string{render.AnnotationFiles: world.encrypted(app.Name, "shop.env", text)}
}

func sealed(t *testing.T, text string, options settings.Options) string {
	t.Helper()
	lines, err := dotenv.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	content, err := settings.Encrypt(lines, options)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func (world *world) create(object client.Object) {
	world.t.Helper()
	if err := world.admin.Create(world.t.Context(), object); err != nil {
		world.t.Fatalf("%s: %v", object.GetName(), err)
	}
}

func (world *world) update(object client.Object) {
	world.t.Helper()
	if err := world.admin.Update(world.t.Context(), object); err != nil {
		world.t.Fatalf("%s: %v", object.GetName(), err)
	}
}

// get reads an object of the namespace.
func (world *world) get(name string, into client.Object) error {
	world.t.Helper()
	return world.admin.Get(world.t.Context(), types.NamespacedName{Namespace: world.namespace, Name: name}, into)
}

func (world *world) pass(kind, name string) error {
	_, err := world.operator.Pass(world.t.Context(), kind, types.NamespacedName{Namespace: world.namespace, Name: name})
	return err
}

const passesMax = 20

// converge repeats passes, and simulates the controllers between them, until a pass writes nothing.
func (world *world) converge(kind, name string) {
	world.t.Helper()
	var failures []error
	for range passesMax {
		before := len(world.calls.writes)
		err := world.pass(kind, name)
		failures = append(failures, err)
		if err == nil && len(world.calls.writes) == before && !world.settle(name) {
			return
		}
		world.settle(name)
	}
	world.t.Fatalf("no end after %d passes: %v\n%s", passesMax, errors.Join(failures...), strings.Join(world.calls.writes, "\n"))
}

// settle simulates the controllers of Kubernetes, and returns whether anything changed.
func (world *world) settle(name string) bool {
	world.t.Helper()
	options := []client.ListOption{client.InNamespace(world.namespace)}
	if name != "" {
		options = append(options, client.MatchingLabels{render.LabelApp: name})
	}
	hasChanged, err := apiserver.FinishWorkloads(world.t.Context(), world.admin, options...)
	if err != nil {
		world.t.Fatal(err)
	}
	return hasChanged
}

var versions = map[string]string{
	"Deployment": "apps/v1", "StatefulSet": "apps/v1", "ControllerRevision": "apps/v1", "Job": "batch/v1", "CronJob": "batch/v1",
	"Service": "v1", "ServiceAccount": "v1", "ConfigMap": "v1", "Secret": "v1", "PersistentVolumeClaim": "v1",
	"NetworkPolicy": "networking.k8s.io/v1", "Ingress": "networking.k8s.io/v1", "PodDisruptionBudget": "policy/v1",
	"HorizontalPodAutoscaler": "autoscaling/v2",
}

// list returns the objects of an app, or all objects if the name is empty.
func (world *world) list(kind, name string) []*unstructured.Unstructured {
	world.t.Helper()
	var list unstructured.UnstructuredList
	list.SetAPIVersion(versions[kind])
	list.SetKind(kind + "List")
	options := []client.ListOption{client.InNamespace(world.namespace)}
	if name != "" {
		options = append(options, client.MatchingLabels{render.LabelApp: name})
	}
	if err := world.admin.List(world.t.Context(), &list, options...); err != nil {
		world.t.Fatal(err)
	}
	var found []*unstructured.Unstructured
	for index := range list.Items {
		found = append(found, &list.Items[index])
	}
	return found
}

// names returns the names of all objects of an app.
func (world *world) names(app string) string {
	world.t.Helper()
	var names []string
	for kind := range versions {
		for _, object := range world.list(kind, app) {
			names = append(names, kind+"/"+object.GetName())
		}
	}
	return sortedText(names)
}

// status returns the types, states and reasons of an app's conditions, and the message of Degraded.
func (world *world) status(object client.Object) (text, message string) {
	world.t.Helper()
	if err := world.get(object.GetName(), object); err != nil {
		world.t.Fatal(err)
	}
	if degraded := meta.FindStatusCondition(statusOf(object).Conditions, reconcile.ConditionDegraded); degraded != nil {
		message = degraded.Message
	}
	return conditionsOf(object), message
}

func conditionsOf(object client.Object) string {
	var parts []string
	for _, condition := range statusOf(object).Conditions {
		parts = append(parts, fmt.Sprintf("%s=%s %s", condition.Type, condition.Status, condition.Reason))
	}
	return sortedText(parts)
}

func statusOf(object client.Object) v1alpha1.Status {
	if dunlin, isDunlin := object.(*v1alpha1.Dunlin); isDunlin {
		return dunlin.Status
	}
	return object.(*v1alpha1.App).Status
}
