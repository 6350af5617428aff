package command_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/command"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/ports"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	developer = "developer"
	// controllerPause is the time between two passes of the simulated controllers of Kubernetes.
	controllerPause = 20 * time.Millisecond
)

// site is a real API server with an operator, and a user with the rights of the ClusterRole roost-deployer in `web`.
type site struct {
	*person
	server *apiserver.Server
	admin  client.WithWatch
	// log of the operator.
	log *sharedBuffer
}

func newSite(t *testing.T) *site {
	t.Helper()
	server := apiserver.ForTest(t)
	known := operator.NewScheme()
	if err := rbacv1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	admin, err := client.NewWithWatch(server.Admin, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	if err := apiserver.InstallOperator(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	site := &site{newPerson(t), server, admin, &sharedBuffer{}}
	site.namespace("web")
	site.repository()
	site.write("kubeconfig", site.kubeconfig(server.As(developer)))
	site.variables["KUBECONFIG"] = filepath.Join(site.folder, "kubeconfig")
	return site
}

func (site *site) kubeconfig(connection *rest.Config) string {
	site.t.Helper()
	text, err := apiserver.Kubeconfig(connection)
	if err != nil {
		site.t.Fatal(err)
	}
	return string(text)
}

// namespace creates a namespace with rights for the operator and for the developer.
func (site *site) namespace(name string) {
	site.t.Helper()
	if err := apiserver.NewOperatorNamespace(site.t.Context(), site.admin, name); err != nil {
		site.t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "roost-deployer"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: developer}},
	}
	binding.Namespace, binding.Name = name, developer
	if err := site.admin.Create(site.t.Context(), binding); err != nil {
		site.t.Fatal(err)
	}
}

// runOperator returns a function that stops the operator.
func (site *site) runOperator() func() {
	return site.inBackground(site.operate)
}

func (site *site) operate(ctx context.Context) {
	err := operator.Run(ctx, site.server.AsOperator(), operator.Options{
		Namespaces: []string{"web"}, IdentityFile: filepath.Join(site.variables["HOME"], ".config/roost/identity.txt"),
		HealthAddress: "0", MetricsAddress: "0", Log: logr.FromSlogHandler(slog.NewJSONHandler(site.log, nil)),
	})
	if err != nil {
		site.t.Errorf("the operator has ended: %v", err)
	}
}

// runControllers makes all pods ready, until the function that it returns is called.
func (site *site) runControllers() func() {
	return site.inBackground(func(ctx context.Context) {
		own := client.MatchingLabels{render.LabelManagedBy: render.ManagedBy}
		if err := apiserver.KeepFinished(ctx, site.admin, client.InNamespace("web"), own); err != nil {
			site.t.Error(err)
		}
	})
}

// forEach calls a function with each object of the namespace, and again after each of its changes.
func (site *site) forEach(list client.ObjectList, do func(context.Context, client.Object) error, options ...client.ListOption) func() {
	return site.inBackground(func(ctx context.Context) {
		err := apiserver.Each(ctx, site.admin, list, func(object client.Object) error { return do(ctx, object) }, append(options, client.InNamespace("web"))...)
		if err != nil {
			site.t.Error(err)
		}
	})
}

func (site *site) inBackground(run func(context.Context)) func() {
	ctx, cancel := context.WithCancel(site.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	site.t.Cleanup(stop)
	return stop
}

// serving is the image and the settings of the newest pods.
type serving struct{ Image, LogLevel, Token string }

func (site *site) serving() serving {
	site.t.Helper()
	var deployment appsv1.Deployment
	site.get("shop", &deployment)
	container := deployment.Spec.Template.Spec.Containers[0]
	found := serving{Image: container.Image}
	for _, source := range container.EnvFrom {
		if source.SecretRef != nil {
			var secret corev1.Secret
			site.get(source.SecretRef.Name, &secret)
			found.Token = string(secret.Data["TOKEN"])
		}
		if source.ConfigMapRef != nil {
			var plain corev1.ConfigMap
			site.get(source.ConfigMapRef.Name, &plain)
			found.LogLevel = plain.Data["LOG_LEVEL"]
		}
	}
	return found
}

func (site *site) get(name string, into client.Object) {
	site.t.Helper()
	if err := site.admin.Get(site.t.Context(), types.NamespacedName{Namespace: "web", Name: name}, into); err != nil {
		site.t.Fatal(err)
	}
}

// change writes a manifest with another image, and encrypts other settings.
func (site *site) change(image, logLevel, token string, recipient ...string) {
	site.t.Helper()
	site.write("apps/shop.yaml", strings.Replace(app, "shop:1.4.2", "shop:"+image, 1))
	site.write("apps/shop.env", fmt.Sprintf("LOG_LEVEL=%s\nTOKEN=%s\n", logLevel, token))
	arguments := []string{"secrets", "encrypt", "@apps/shop.env", "--plain", "^LOG_"}
	for _, name := range recipient {
		arguments = append(arguments, "--recipient", name)
	}
	site.roost(command.ExitFine, arguments...)
}

// states returns the output of `roost status -o json`.
func (site *site) states(exitCode int, arguments ...string) []reportedState {
	site.t.Helper()
	out, _ := site.roost(exitCode, append([]string{"status", "-o", "json", "-n", "web"}, arguments...)...)
	var states []reportedState
	if err := json.Unmarshal([]byte(out), &states); err != nil {
		site.t.Fatalf("%v: %s", err, out)
	}
	return states
}

type reportedState struct {
	Kind, Namespace, Name, Image, Revision string
	Conditions                             []struct{ Type, Status, Reason, Message string }
	Revisions                              []struct {
		Revision string
		Number   int64
	}
}

func image(tag string) string { return "registry.example.com/shop:" + tag }

// TestDeployAndRollback has steps that build on one another.
func TestDeployAndRollback(t *testing.T) {
	site := newSite(t)
	site.runOperator()
	stopControllers := site.runControllers()
	site.failFirstRelease()
	site.change("1.4.2", "info", canary+"-one")
	first := serving{image("1.4.2"), "info", canary + "-one"}

	out, _ := site.roost(command.ExitFine, "deploy", "--dry-run", "@apps/shop.yaml")
	contains(t, out, "the API server accepts 1 manifest")
	if states := site.states(command.ExitFine); len(states) != 0 {
		t.Fatalf("--dry-run has written %v", states)
	}

	out, stderr := site.roost(command.ExitFine, "deploy", "@apps/shop.yaml")
	contains(t, out, "App web/shop: revision ", " serves: ")
	contains(t, stderr, "App web/shop: written")
	if found := site.serving(); found != first {
		t.Fatalf("%+v", found)
	}
	state := site.states(command.ExitFine, "shop")[0]
	if state.Image != first.Image || state.Revision == "" || len(state.Revisions) != 1 || state.Revisions[0].Revision != state.Revision {
		t.Errorf("%+v", state)
	}
	out, _ = site.roost(command.ExitFine, "status", "-n", "web", "shop")
	contains(t, out, "App web/shop", "image     "+first.Image, "Ready              True  AsDesired", "SettingsDecrypted", "revision 1  "+state.Revision)
	out, _ = site.roost(command.ExitFine, "status", "-n", "web")
	contains(t, out, "NAMESPACE  KIND  NAME  READY  REVISION", "web        App   shop  yes    "+state.Revision)

	site.deployAgain(state.Revision)
	site.rollBackAndForward(first)
	site.rollBackFromUnreadable()
	site.deployDunlin()
	site.deployWithoutPods(stopControllers)
	site.runLinesOfReadme()
	site.deployPinned()
	if strings.Contains(site.all.String(), canary) || strings.Contains(site.all.String(), "AGE-SECRET-KEY") {
		t.Error("a secret was printed")
	}
}

// deployAgain checks that a deploy without a change changes nothing, even if files are encrypted again.
func (site *site) deployAgain(revision string) {
	site.t.Helper()
	var before, after appsv1.Deployment
	site.get("shop", &before)
	site.roost(command.ExitFine, "deploy", "@apps/shop.yaml")
	site.change("1.4.2", "info", canary+"-one")
	out, _ := site.roost(command.ExitFine, "deploy", "-o", "json", "@apps/shop.yaml")
	var ended []struct {
		Kind, Namespace, Name, Revision string
		Serves                          bool
	}
	if err := json.Unmarshal([]byte(out), &ended); err != nil || len(ended) != 1 || !ended[0].Serves || ended[0].Revision != revision {
		site.t.Errorf("%v, %s", err, out)
	}
	if site.get("shop", &after); before.Generation != after.Generation {
		site.t.Error("the Deployment was changed though nothing has changed")
	}
}

func (site *site) rollBackAndForward(first serving) {
	site.t.Helper()
	second := serving{image("2.0.0"), "debug", canary + "-two"}
	site.change("2.0.0", "debug", second.Token)
	site.roost(command.ExitFine, "deploy", "@apps/shop.yaml")
	if found := site.serving(); found != second {
		site.t.Fatalf("%+v", found)
	}
	out, stderr := site.roost(command.ExitFine, "rollback", "-n", "web", "shop")
	contains(site.t, out, "App web/shop: revision ", " serves")
	contains(site.t, stderr, "back to revision")
	if found := site.serving(); found != first {
		site.t.Fatalf("after a rollback: %+v", found)
	}
	site.roost(command.ExitFine, "rollback", "-n", "web", "shop")
	if found := site.serving(); found != second {
		site.t.Fatalf("after two rollbacks: %+v", found)
	}
	state := site.states(command.ExitFine, "shop")[0]
	if len(state.Revisions) != 2 || state.Revisions[0].Number != 4 || state.Revisions[1].Number != 3 {
		site.t.Fatalf("%+v", state.Revisions)
	}
	site.roost(command.ExitFine, "rollback", "-n", "web", "shop", "--to", state.Revisions[1].Revision)
	if found := site.serving(); found != first {
		site.t.Fatalf("after --to: %+v", found)
	}
	// Only one ConfigMap of files exists at a time; the revisions contain copies.
	var files corev1.ConfigMapList
	if err := site.admin.List(site.t.Context(), &files, client.InNamespace("web"), client.HasLabels{"apps.roost.dev/files-of"}); err != nil || len(files.Items) != 1 {
		site.t.Errorf("%d ConfigMaps of files, %v", len(files.Items), err)
	}
}

// rollBackFromUnreadable rolls back to the serving revision: settings that could not be decrypted have never become a revision.
func (site *site) rollBackFromUnreadable() {
	site.t.Helper()
	before, served := site.serving(), site.states(command.ExitFine, "shop")[0].Revision
	other, err := age.GenerateX25519Identity()
	if err != nil {
		site.t.Fatal(err)
	}
	site.change("3.0.0", "info", canary+"-three", other.Recipient().String())
	home := site.variables["HOME"]
	site.variables["HOME"] = filepath.Join(site.folder, "elsewhere")
	out, stderr := site.roost(command.ExitFound, "deploy", "@apps/shop.yaml")
	contains(site.t, out, "SettingsUnreadable: shop.env: no age identity decrypts the file, which is encrypted for "+other.Recipient().String())
	contains(site.t, stderr, "App web/shop: the release does not serve; `roost rollback -n web shop --to "+served+"` rolls back to the revision that served last")
	site.variables["HOME"] = home
	if state := site.states(command.ExitFound, "shop")[0]; state.Image != image("3.0.0") {
		site.t.Errorf("%+v", state)
	}
	if found := site.serving(); found != before {
		site.t.Errorf("%+v", found)
	}
	site.roost(command.ExitFine, "rollback", "-n", "web", "shop")
	if found := site.serving(); found != before {
		site.t.Errorf("%+v, expected %+v", found, before)
	}
	if state := site.states(command.ExitFine, "shop")[0]; state.Image != before.Image {
		site.t.Errorf("%+v", state)
	}
}

// deployDunlin deploys the manifest of the README, and changes a key.
func (site *site) deployDunlin() {
	site.t.Helper()
	manifest := manifestOf(site.t, "Dunlin")
	site.write("dunlin/roost.yaml", site.read("apps/roost.yaml"))
	release := func(version, key string) {
		site.write("dunlin/realtime.yaml", strings.Replace(manifest, ":0.1.0", ":"+version, 1))
		site.write("dunlin/keys.env", fmt.Sprintf("api_key=%s\ntoken_hmac_secret_key=%s\nnats_password=letters\n", key, canary))
		site.roost(command.ExitFine, "secrets", "encrypt", "@dunlin/keys.env")
		site.roost(command.ExitFine, "deploy", "@dunlin")
	}
	secretOf := func() string {
		var set appsv1.StatefulSet
		site.get("realtime", &set)
		for _, volume := range set.Spec.Template.Spec.Volumes {
			if volume.Secret != nil {
				return volume.Secret.SecretName
			}
		}
		site.t.Fatal("the StatefulSet has no Secret")
		return ""
	}
	release("0.1.0", canary+"-key")
	first := secretOf()
	release("0.2.0", canary+"-other-key")
	if secretOf() == first {
		site.t.Error("another key has the same Secret")
	}
	out, _ := site.roost(command.ExitFine, "status", "-n", "web")
	contains(site.t, out, "web        Dunlin  realtime  yes")
	site.roost(command.ExitFine, "rollback", "-n", "web", "realtime")
	state := site.states(command.ExitFine, "realtime")[0]
	if found := secretOf(); found != first || state.Kind != "Dunlin" || state.Image != "registry.example.com/dunlin:0.1.0" {
		site.t.Errorf("%s, expected %s: %+v", found, first, state)
	}
}

// runLinesOfReadme deploys two releases first, so that a rollback is possible.
func (site *site) runLinesOfReadme() {
	site.t.Helper()
	if err := os.Remove(filepath.Join(site.folder, "apps/first.yaml")); err != nil {
		site.t.Fatal(err)
	}
	script := blocks(site.t, readme, "sh")[1]
	site.t.Chdir(site.folder)
	before := site.serving()
	site.change("5.0.0", "info", canary+"-five")
	ran := 0
	for line := range strings.Lines(script) {
		line, _, _ = strings.Cut(line, "#")
		site.roost(command.ExitFine, strings.Fields(line)[1:]...)
		ran++
	}
	if found := site.serving(); found != before || ran != 4 {
		site.t.Errorf("after %d lines: %+v, expected %+v", ran, found, before)
	}
}

func TestWhatTheAPIServerRefuses(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	closed := closedAddress(t)
	unreachable := rest.CopyConfig(site.server.As(developer))
	unreachable.Host = "https://" + closed
	site.write("closed", site.kubeconfig(unreachable))
	site.write("stranger", site.kubeconfig(site.server.As("stranger")))
	old := rest.CopyConfig(site.server.Admin)
	old.BearerToken = "old"
	site.write("old", site.kubeconfig(old))
	for _, row := range []struct {
		name      string
		arguments []string
		code      int
		sentence  string
	}{
		{"an unreachable server", []string{"status", "--kubeconfig", "@closed"}, command.ExitFailed, "roost: the API server at https://" + closed + " does not answer"},
		{"an unreachable server", []string{"deploy", "--kubeconfig", "@closed", "@apps"}, command.ExitFailed, "; check --kubeconfig and the network"},
		{"missing rights", []string{"deploy", "--kubeconfig", "@stranger", "@apps/shop.yaml"}, command.ExitFailed, "; ask an administrator for the ClusterRole roost-deployer in that namespace. Nothing is written"},
		{"missing rights", []string{"status", "--kubeconfig", "@stranger", "-n", "web"}, command.ExitFailed, "; ask an administrator for the ClusterRole roost-deployer in that namespace"},
		{"a namespace without rights", []string{"status"}, command.ExitFailed, "; ask an administrator for the ClusterRole roost-deployer in that namespace"},
		{"old credentials", []string{"status", "--kubeconfig", "@old"}, command.ExitFailed, "the credentials in the file of --kubeconfig are wrong or have expired; get a new kubeconfig"},
		{"no file", []string{"status", "--kubeconfig", "@none"}, command.ExitFailed, "; name a file with --kubeconfig"},
		{"no context", []string{"status", "--context", "none"}, command.ExitFailed, "; name a file with --kubeconfig"},
		{"an unknown app", []string{"status", "-n", "web", "none"}, command.ExitFailed, "there is no App and no Dunlin none in the namespace web; `roost status -n web` lists them"},
		{"an unknown app", []string{"rollback", "-n", "web", "none"}, command.ExitFailed, "there is no App and no Dunlin none in the namespace web"},
		{"no name", []string{"rollback"}, command.ExitUsage, "there are 0 arguments; name one App or Dunlin"},
		{"two names", []string{"status", "a", "b"}, command.ExitUsage, "there are 2 arguments; name one App or Dunlin, or none"},
		{"no operator", []string{"deploy", "--wait", "1s", "@apps/shop.yaml"}, command.ExitFound, "does not serve"},
		{"nothing is looked at", []string{"rollback", "-n", "web", "shop"}, command.ExitFailed, "the operator has not reconciled the newest spec yet; wait until it has, or name a revision with --to"},
		{"an unknown revision", []string{"rollback", "-n", "web", "shop", "--to", "0123456789"}, command.ExitFailed, "there is no revision 0123456789; `roost status -n web shop` lists them"},
		{"nothing is looked at", []string{"status", "-n", "web"}, command.ExitFound, "1 of 1 not ready or degraded"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, stderr := site.roost(row.code, row.arguments...)
			contains(t, stderr, row.sentence)
			if lines := strings.Count(strings.TrimSpace(stderr), "\n") + 1; row.code == command.ExitFailed && lines > 1 {
				t.Errorf("%d lines: %s", lines, stderr)
			}
		})
	}
	site.problemsBeforeAnythingIsWritten()
	site.readNoSecrets()
}

// problemsBeforeAnythingIsWritten has one valid manifest before an invalid one.
func (site *site) problemsBeforeAnythingIsWritten() {
	site.t.Helper()
	other := strings.NewReplacer("name: shop", "name: other", "shop.example.com", "other.example.com")
	site.write("apps/a.yaml", other.Replace(app))
	site.write("apps/b.yaml", strings.Replace(other.Replace(app), ":1.4.2", ":latest", 1))
	_, stderr := site.roost(command.ExitFound, "deploy", "@apps")
	contains(site.t, stderr, `has the tag latest`, "Nothing is written")
	site.write("apps/b.yaml", strings.NewReplacer("name: other", "name: third", "other.example.com", "third.example.com", "namespace: web", "namespace: none").Replace(other.Replace(app)))
	_, stderr = site.roost(command.ExitFailed, "deploy", "@apps/a.yaml", "@apps/b.yaml")
	contains(site.t, stderr, "App none/third: ", "Nothing is written")
	if states := site.states(command.ExitFound); len(states) != 1 || states[0].Name != "shop" {
		site.t.Errorf("%+v", states)
	}
}

// readNoSecrets makes real calls with the rights of a deployer.
func (site *site) readNoSecrets() {
	t := site.t
	t.Helper()
	known := runtime.NewScheme()
	if err := corev1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	person, err := client.New(site.server.As(developer), client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.PodList{}} {
		if err := person.List(t.Context(), list, client.InNamespace("web")); !apierrors.IsForbidden(err) {
			t.Errorf("%T: %v", list, err)
		}
	}
	if err := person.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("web")); err != nil {
		t.Error(err)
	}
}

// closedAddress returns an address at which nothing listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprint("127.0.0.1:", ports.One(t))
}
