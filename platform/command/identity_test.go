package command_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/command"
)

// noticedWithin is how long the API server caches the validity of a token, plus time for a busy machine.
const noticedWithin = 60 * time.Second

const (
	read  = "get list"
	watch = "get list watch"
	write = "get list watch create patch delete"
)

// rights of each role in its namespace. Rights that are not listed are forbidden.
var rights = []struct{ group, version, resource, deployer, reader, runner, operator, program, debugger string }{
	{"apps.roost.dev", "v1alpha1", "apps", "get list watch create patch", watch, watch, write, "get list watch delete", watch},
	{"apps.roost.dev", "v1alpha1", "dunlins", "get list watch create patch", watch, watch, write, watch, watch},
	{"apps.roost.dev", "v1alpha1", "apps/status", "", "", "", "", "get patch", ""},
	{"", "v1", "configmaps", "get list create patch delete", watch, "", write, write, ""},
	{"", "v1", "secrets", "", "", "", "", write, ""},
	{"", "v1", "services", "", watch, "", watch, write, ""},
	{"", "v1", "serviceaccounts", "", "", "", "", write, ""},
	{"", "v1", "serviceaccounts/token", "", "", "", "", "", ""},
	{"", "v1", "pods", "", watch, watch, "get list watch delete", "get list watch delete", watch},
	{"", "v1", "pods/log", "", watch, watch, watch, "", watch},
	{"", "v1", "pods/exec", "", "", "", "", "", "get create"},
	{"", "v1", "pods/portforward", "", "", "", "", "", "get create"},
	{"", "v1", "pods/attach", "", "", "", "", "", ""},
	{"", "v1", "events", "", watch, "", watch, "create patch", ""},
	{"", "v1", "persistentvolumeclaims", "", "", "", "", "get create", ""},
	{"", "v1", "resourcequotas", "", "", "", "", "", ""},
	{"apps", "v1", "controllerrevisions", read, watch, watch, watch, write, watch},
	{"apps", "v1", "deployments", "", watch, watch, watch, write, watch},
	{"apps", "v1", "deployments/scale", "", "", "", "", "", ""},
	{"apps", "v1", "replicasets", "", watch, watch, watch, "", watch},
	{"apps", "v1", "daemonsets", "", "", "", "", "", ""},
	{"apps", "v1", "statefulsets", "", watch, watch, watch, write, watch},
	{"batch", "v1", "cronjobs", "", watch, watch, watch, write, watch},
	{"batch", "v1", "jobs", "", watch, "get list watch create delete", "get list watch delete", write, watch},
	{"networking.k8s.io", "v1", "ingresses", "", watch, "", watch, write, ""},
	{"networking.k8s.io", "v1", "networkpolicies", "", watch, "", watch, write, ""},
	{"policy", "v1", "poddisruptionbudgets", "", watch, "", watch, write, ""},
	{"autoscaling", "v2", "horizontalpodautoscalers", "", watch, "", watch, write, ""},
	{"metrics.k8s.io", "v1beta1", "pods", "", read, "", read, "", read},
	{"coordination.k8s.io", "v1", "leases", "", "", "", "", "", ""},
	{"rbac.authorization.k8s.io", "v1", "roles", "", "", "", "", "", ""},
	{"rbac.authorization.k8s.io", "v1", "rolebindings", "", "", "", "", "", ""},
}

var verbs = []string{"get", "list", "watch", "create", "patch", "update", "delete", "deletecollection"}

// TestIdentitiesHaveTheRightsOfTheirRole queries a real API server as each role, and tries each call.
func TestIdentitiesHaveTheRightsOfTheirRole(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	site.asAdmin()
	site.namespace("other")
	for _, role := range []string{"deployer", "reader", "runner", "operator", "program", "debugger"} {
		connection := site.operatorConnection()
		if role != "program" {
			out, _ := site.roost(command.ExitFine, "identity", "create", "ci-"+role, "--role", role, "-n", "web")
			connection = site.connection(out)
		}
		asked, caller := 0, newCaller(t, connection)
		// The server's authorizer sees a new RoleBinding through a watch.
		waitUntil(t, "the role is known", func() bool {
			return isGranted(t, caller, attributesOf("apps.roost.dev", "v1alpha1", "apps", "get", "web"))
		})
		for _, row := range rights {
			allowed := strings.Fields(map[string]string{"deployer": row.deployer, "reader": row.reader, "runner": row.runner, "operator": row.operator, "program": row.program, "debugger": row.debugger}[role])
			for _, verb := range verbs {
				_, part, _ := strings.Cut(row.resource, "/")
				for _, namespace := range []string{"web", "other"} {
					// The operator program has its rights in both namespaces.
					isAllowed := slices.Contains(allowed, verb) && (namespace == "web" || role == "program")
					attributes := attributesOf(row.group, row.version, row.resource, verb, namespace)
					if isGranted(t, caller, attributes) != isAllowed {
						t.Errorf("%s: %s %s in %s: the server says %v", role, verb, row.resource, namespace, !isAllowed)
					}
					// Subresources cannot be listed.
					hasCall := part == "" || !slices.Contains([]string{"list", "watch", "deletecollection"}, verb)
					if hasCall && isPossible(t, caller, attributes) != isAllowed {
						t.Errorf("%s: %s %s in %s: the call is taken: %v", role, verb, row.resource, namespace, !isAllowed)
					}
					asked++
				}
			}
		}
		t.Logf("%s: %d rights asked for and tried", role, asked)
	}
}

func TestAnIdentityFromCreationToRevocation(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	admin := site.asAdmin()
	out, _ := site.roost(command.ExitFine, "identity", "create", "ci", "--role", "deployer", "-n", "web", "--lifetime", "10m")
	site.write("ci.kubeconfig", out)
	site.variables["KUBECONFIG"] = filepath.Join(site.folder, "ci.kubeconfig")
	site.roost(command.ExitFine, "deploy", "@apps/shop.yaml", "--dry-run")
	var taken []struct {
		Kind, Namespace, Name string
		DryRun                bool
	}
	site.json(command.ExitFine, &taken, "deploy", "@apps/shop.yaml", "--dry-run")
	if len(taken) != 1 || taken[0].Kind != "App" || taken[0].Namespace != "web" || taken[0].Name != "shop" || !taken[0].DryRun {
		t.Errorf("%+v", taken)
	}
	site.roost(command.ExitFine, "status", "-n", "web")
	_, stderr := site.roost(command.ExitFailed, "identity", "create", "mine", "--role", "deployer", "-n", "web")
	contains(t, stderr, "forbidden", "this needs the rights to serviceaccounts")

	site.variables["KUBECONFIG"] = admin
	_, stderr = site.roost(command.ExitFailed, "identity", "create", "ci", "--role", "reader", "-n", "web")
	contains(t, stderr, "access identity ci in web has the role deployer; revoke it first")
	out, _ = site.roost(command.ExitFine, "identity", "create", "ci", "--role", "deployer", "-n", "web", "-o", "json")
	var created struct {
		Name, Namespace, Role, Kubeconfig string
		Expires                           time.Time
	}
	if err := json.Unmarshal([]byte(out), &created); err != nil || created.Role != "deployer" || !strings.Contains(created.Kubeconfig, "token:") {
		t.Errorf("%v: %s", err, out)
	}
	if left := time.Until(created.Expires); left < 50*time.Minute || left > 70*time.Minute {
		t.Errorf("the token expires in %s", left)
	}
	out, _ = site.roost(command.ExitFine, "identity", "list", "-n", "web")
	contains(t, out, "NAME", "ci", "deployer")

	out, _ = site.roost(command.ExitFine, "identity", "create", "ci", "--role", "deployer", "-n", "web", "--server", "https://server.example.com:6443")
	if host := site.connection(out).Host; host != "https://server.example.com:6443" {
		t.Errorf("with --server, the kubeconfig has %s", host)
	}
	if host := site.connection(created.Kubeconfig).Host; host != site.server.Admin.Host {
		t.Errorf("without --server, the kubeconfig has %s", host)
	}

	var revoked struct{ Name, Namespace string }
	site.json(command.ExitFine, &revoked, "identity", "revoke", "ci", "-n", "web")
	if revoked.Name != "ci" || revoked.Namespace != "web" {
		t.Errorf("%+v", revoked)
	}
	_, stderr = site.roost(command.ExitFailed, "identity", "revoke", "ci", "-n", "web")
	contains(t, stderr, "there is no access identity ci in web")
	out, _ = site.roost(command.ExitFine, "identity", "list", "-n", "web", "-o", "json")
	if strings.TrimSpace(out) != "[]" {
		t.Errorf("%s", out)
	}
	caller := newCaller(t, site.connection(created.Kubeconfig))
	waitUntil(t, "the token of a revoked identity is void", func() bool {
		return caller.status(t, http.MethodGet, "/api", nil) == http.StatusUnauthorized
	})
	site.write("ci.kubeconfig", created.Kubeconfig)
	site.variables["KUBECONFIG"] = filepath.Join(site.folder, "ci.kubeconfig")
	_, stderr = site.roost(command.ExitFailed, "status", "-n", "web")
	contains(t, stderr, "the credentials in the file of --kubeconfig are wrong or have expired; get a new kubeconfig")
}

func TestWrongIdentitiesAreRefused(t *testing.T) {
	person := newPerson(t)
	for _, row := range [][]string{
		{"--role is \"admin\"; write deployer, reader, runner, debugger or operator", "create", "ci", "--role", "admin"},
		{"--role is \"\"", "create", "ci"},
		{"--lifetime is 48h0m0s; write 10m0s to 24h0m0s", "create", "ci", "--role", "reader", "--lifetime", "48h"},
		{"--lifetime is 9m0s", "create", "ci", "--role", "reader", "--lifetime", "9m"},
		{"--server is \"http://x\"; write an address such as https://10.78.0.11:6443", "create", "ci", "--role", "reader", "--server", "http://x"},
		{"--server is \"10.78.0.11:6443\"", "create", "ci", "--role", "reader", "--server", "10.78.0.11:6443"},
		{"is not the name of an access identity", "create", "CI_1", "--role", "reader"},
		{"there are 0 arguments; name one access identity", "revoke"},
	} {
		_, stderr := person.roost(command.ExitUsage, append([]string{"identity"}, row[1:]...)...)
		contains(t, stderr, row[0])
	}
}

// asAdmin gives the user all rights, and returns the path of the kubeconfig.
func (site *site) asAdmin() string {
	site.write("admin.kubeconfig", site.kubeconfig(site.server.Admin))
	path := filepath.Join(site.folder, "admin.kubeconfig")
	site.variables["KUBECONFIG"] = path
	return path
}

func (site *site) connection(kubeconfig string) *rest.Config {
	site.t.Helper()
	connection, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil {
		site.t.Fatal(err)
	}
	return connection
}

// operatorConnection returns a connection with a token of the operator's own ServiceAccount.
func (site *site) operatorConnection() *rest.Config {
	site.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "roost-system", Name: "roost-operator"}}
	request := &authenticationv1.TokenRequest{}
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1.AddToScheme} {
		if err := add(known); err != nil {
			site.t.Fatal(err)
		}
	}
	admin, err := client.New(site.server.Admin, client.Options{Scheme: known})
	if err != nil {
		site.t.Fatal(err)
	}
	if err := admin.SubResource("token").Create(site.t.Context(), account, request); err != nil {
		site.t.Fatal(err)
	}
	connection := rest.AnonymousClientConfig(site.server.Admin)
	connection.BearerToken = request.Status.Token
	return connection
}

func attributesOf(group, version, resource, verb, namespace string) authorizationv1.ResourceAttributes {
	resource, part, _ := strings.Cut(resource, "/")
	attributes := authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: verb, Group: group, Version: version, Resource: resource, Subresource: part,
	}
	if !slices.Contains([]string{"list", "watch", "create", "deletecollection"}, verb) || part != "" {
		attributes.Name = "none"
	}
	return attributes
}

// isGranted queries a right of the caller.
func isGranted(t *testing.T, caller *caller, attributes authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
	}
	text, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	status, answer := caller.call(t, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", text)
	if err := json.Unmarshal(answer, &review); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %v: %s", status, err, answer)
	}
	return review.Status.Allowed
}

// isPossible makes the call on an object that does not exist or is not valid: authorization comes first.
func isPossible(t *testing.T, caller *caller, attributes authorizationv1.ResourceAttributes) bool {
	t.Helper()
	path := fmt.Sprintf("/apis/%s/%s/namespaces/%s/%s", attributes.Group, attributes.Version, attributes.Namespace, attributes.Resource)
	if attributes.Group == "" {
		path = fmt.Sprintf("/api/%s/namespaces/%s/%s", attributes.Version, attributes.Namespace, attributes.Resource)
	}
	if attributes.Name != "" {
		path += "/" + attributes.Name
	}
	if attributes.Subresource != "" {
		path += "/" + attributes.Subresource
	}
	method := map[string]string{
		"create": http.MethodPost, "patch": http.MethodPatch, "update": http.MethodPut, "delete": http.MethodDelete, "deletecollection": http.MethodDelete,
	}[attributes.Verb]
	query := map[string]string{"watch": "?watch=1&resourceVersion=0&timeoutSeconds=1", "deletecollection": "?dryRun=All"}[attributes.Verb]
	if method == "" {
		method = http.MethodGet
	}
	return caller.status(t, method, path+query, []byte("{}")) != http.StatusForbidden
}

// caller makes calls with one identity.
type caller struct {
	client *http.Client
	host   string
}

func newCaller(t *testing.T, connection *rest.Config) *caller {
	t.Helper()
	client, err := rest.HTTPClientFor(connection)
	if err != nil {
		t.Fatal(err)
	}
	return &caller{client, connection.Host}
}

// status does not read the response to its end: the response of a watch does not end.
func (caller *caller) status(t *testing.T, method, path string, body []byte) int {
	t.Helper()
	response := caller.do(t, method, path, body)
	response.Body.Close()
	return response.StatusCode
}

func (caller *caller) call(t *testing.T, method, path string, body []byte) (int, []byte) {
	t.Helper()
	response := caller.do(t, method, path, body)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}

func (caller *caller) do(t *testing.T, method, path string, body []byte) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, caller.host+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := caller.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func waitUntil(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for deadline := time.Now().Add(noticedWithin); !isSo(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in %s: %s", noticedWithin, what)
		}
		time.Sleep(50 * time.Millisecond) // between two looks
	}
}
