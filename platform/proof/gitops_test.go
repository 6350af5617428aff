package proof

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/command"
	"github.com/dunlin-project/dunlin/platform/operator"
)

const (
	argoFolder = "../gitops/argocd"
	// argoAccount is what Argo CD's application controller runs as.
	argoAccount = "system:serviceaccount:argocd:argocd-application-controller"
	noticedMax  = 2 * time.Minute
)

// team has a copy of the sample repository, and a cluster with an operator, in which Argo CD has the rights of rights.yaml.
type team struct {
	t      *testing.T
	folder string
	home   string
	admin  client.WithWatch
	// argo applies what kustomize builds, as Argo CD does.
	argo   client.Client
	health string
}

func newTeam(t *testing.T) *team {
	t.Helper()
	team, _ := newTeamOn(t)
	return team
}

func newTeamOn(t *testing.T) (*team, *apiserver.Server) {
	t.Helper()
	server := apiserver.ForTest(t)
	log.SetLogger(logr.Discard())
	known := operator.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{rbacv1.AddToScheme, authenticationv1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := client.NewWithWatch(server.Admin, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	if err := apiserver.InstallOperator(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	if err := apiserver.NewOperatorNamespace(t.Context(), admin, "web"); err != nil {
		t.Fatal(err)
	}
	folder, home := t.TempDir(), t.TempDir()
	team := &team{t: t, folder: folder, home: home, admin: admin}
	if err := os.CopyFS(folder, os.DirFS("../gitops/sample")); err != nil {
		t.Fatal(err)
	}
	team.newKey()
	for _, object := range documents(t, argoFolder+"/rights.yaml") {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if team.argo, err = client.New(server.As(argoAccount, "system:serviceaccounts"), client.Options{}); err != nil {
		t.Fatal(err)
	}
	team.health = healthScript(t)
	team.inBackground(func(ctx context.Context) {
		err := operator.Run(ctx, server.AsOperator(), operator.Options{
			Namespaces: []string{"web"}, IdentityFile: team.identityFile(), HealthAddress: "0", MetricsAddress: "0", Log: logr.Discard(),
		})
		if err != nil {
			t.Errorf("the operator has ended: %v", err)
		}
	})
	return team, server
}

func (team *team) identityFile() string {
	return filepath.Join(team.home, ".config/roost/identity.txt")
}

// newKey makes an age identity, for which the .env file of the sample is encrypted anew: nobody has the one of the sample.
func (team *team) newKey() {
	team.t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		team.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(team.identityFile()), 0o700); err != nil {
		team.t.Fatal(err)
	}
	if err := os.WriteFile(team.identityFile(), []byte(identity.String()+"\n"), 0o600); err != nil {
		team.t.Fatal(err)
	}
	team.write("roost.yaml", "recipients: ["+identity.Recipient().String()+"]\n")
}

func (team *team) write(name, text string) {
	team.t.Helper()
	if err := os.WriteFile(filepath.Join(team.folder, name), []byte(text), 0o600); err != nil {
		team.t.Fatal(err)
	}
}

func (team *team) roost(exitCode int, arguments ...string) string {
	team.t.Helper()
	var output strings.Builder
	code := command.Run(arguments, command.Surroundings{
		In: strings.NewReader(""), Out: &output, Err: &output,
		// CI has no age identity.
		Variable: func(string) string { return "" },
	})
	if code != exitCode {
		team.t.Fatalf("roost %v: exit code %d, expected %d: %s", arguments, code, exitCode, &output)
	}
	return output.String()
}

func (team *team) inBackground(run func(context.Context)) func() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	stop := func() {
		cancel()
		<-ended
	}
	team.t.Cleanup(stop)
	return stop
}

// commit encrypts settings and changes the image, as a person does before a push.
func (team *team) commit(image, settings string) {
	team.t.Helper()
	manifest, err := os.ReadFile("../gitops/sample/apps/shop.yaml")
	if err != nil {
		team.t.Fatal(err)
	}
	team.write("apps/shop.yaml", strings.Replace(string(manifest), "shop:1.4.2", "shop:"+image, 1))
	team.write("apps/shop.env", settings)
	team.roost(command.ExitFine, "secrets", "encrypt", filepath.Join(team.folder, "apps/shop.env"), "--plain", "^LOG_")
	team.roost(command.ExitFine, "gitops", "--check", filepath.Join(team.folder, "apps"))
}

// sync does what Argo CD does with a commit: it builds, applies each object with its rights, and prunes what is gone.
func (team *team) sync() *unstructured.Unstructured {
	team.t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(team.folder, "apps"))
	if err != nil {
		team.t.Fatal(err)
	}
	var app *unstructured.Unstructured
	var names []string
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			team.t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			team.t.Fatal(err)
		}
		body, err := json.Marshal(object.Object)
		if err != nil {
			team.t.Fatal(err)
		}
		patch := client.RawPatch(types.ApplyPatchType, body)
		if err := team.argo.Patch(team.t.Context(), object, patch, client.FieldOwner("argocd-controller"), client.ForceOwnership); err != nil {
			team.t.Fatalf("%s: %v", object.GetName(), err)
		}
		if names = append(names, object.GetName()); object.GetKind() == "App" {
			app = object
		}
	}
	if len(names) != 2 || app == nil {
		team.t.Fatalf("kustomize has built %v", names)
	}
	return app
}

// prune deletes the ConfigMaps of earlier commits.
func (team *team) prune(app *unstructured.Unstructured) {
	team.t.Helper()
	var files unstructured.UnstructuredList
	files.SetAPIVersion("v1")
	files.SetKind("ConfigMapList")
	if err := team.argo.List(team.t.Context(), &files, client.InNamespace("web"), client.HasLabels{"apps.roost.dev/files-of"}); err != nil {
		team.t.Fatal(err)
	}
	for index := range files.Items {
		if files.Items[index].GetName() == app.GetAnnotations()["apps.roost.dev/files"] {
			continue
		}
		if err := team.argo.Delete(team.t.Context(), &files.Items[index]); err != nil {
			team.t.Fatal(err)
		}
	}
}

func (team *team) app() *unstructured.Unstructured {
	team.t.Helper()
	app := &unstructured.Unstructured{}
	app.SetAPIVersion("apps.roost.dev/v1alpha1")
	app.SetKind("App")
	if err := team.admin.Get(team.t.Context(), types.NamespacedName{Namespace: "web", Name: "shop"}, app); err != nil {
		team.t.Fatal(err)
	}
	return app
}

// waitFor the health that Argo CD would show.
func (team *team) waitFor(status, message string) {
	team.t.Helper()
	found := health{}
	for deadline := time.Now().Add(noticedMax); found.status != status || !strings.Contains(found.message, message); {
		if time.Now().After(deadline) {
			team.t.Fatalf("%+v, expected %s: %s", found, status, message)
		}
		time.Sleep(50 * time.Millisecond) // between two looks
		found = healthOf(team.t, team.health, team.app().Object)
	}
}

// serving is the image, and the secret of the newest pods.
func (team *team) serving() string {
	team.t.Helper()
	deployment := &unstructured.Unstructured{}
	deployment.SetAPIVersion("apps/v1")
	deployment.SetKind("Deployment")
	err := team.admin.Get(team.t.Context(), types.NamespacedName{Namespace: "web", Name: "shop"}, deployment)
	if apierrors.IsNotFound(err) {
		return "nothing"
	}
	if err != nil {
		team.t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	container := containers[0].(map[string]any)
	for _, source := range container["envFrom"].([]any) {
		reference, isSecret := source.(map[string]any)["secretRef"].(map[string]any)
		if !isSecret {
			continue
		}
		secret := &unstructured.Unstructured{}
		secret.SetAPIVersion("v1")
		secret.SetKind("Secret")
		name := types.NamespacedName{Namespace: "web", Name: reference["name"].(string)}
		if err := team.admin.Get(team.t.Context(), name, secret); err != nil {
			team.t.Fatal(err)
		}
		token, _, _ := unstructured.NestedString(secret.Object, "data", "TOKEN")
		return container["image"].(string) + " " + token
	}
	return container["image"].(string)
}

// runControllers has all pods become ready.
func (team *team) runControllers() func() {
	return team.inBackground(func(ctx context.Context) {
		if err := apiserver.KeepFinished(ctx, team.admin, client.InNamespace("web")); err != nil {
			team.t.Error(err)
		}
	})
}

// TestGitOps syncs the sample repository as Argo CD does: kustomize builds, its service account applies, and its health script
// reads what a real operator reports. Argo CD itself does not run here.
func TestGitOps(t *testing.T) {
	team := newTeam(t)
	team.commit("1.4.2", "LOG_LEVEL=info\nTOKEN=one\n")
	app := team.sync()
	if found := healthOf(t, team.health, app.Object); found.status != "Progressing" || !strings.Contains(found.message, "has not reconciled the newest spec yet") {
		t.Errorf("before the operator has looked: %+v", found)
	}
	team.waitFor("Progressing", "RollingOut: ")
	stop := team.runControllers()
	team.waitFor("Healthy", "all objects match the spec")
	if found := team.serving(); found != "registry.example.com/shop:1.4.2 b25l" {
		t.Error(found)
	}

	before := app.GetAnnotations()["apps.roost.dev/files"]
	team.commit("2.0.0", "LOG_LEVEL=info\nTOKEN=two\n")
	app = team.sync()
	if after := app.GetAnnotations()["apps.roost.dev/files"]; after == before || !strings.HasPrefix(after, "shop-files-") {
		t.Errorf("the files %s became %s", before, after)
	}
	team.waitFor("Healthy", "all objects match the spec")
	team.prune(app)
	if found := team.serving(); found != "registry.example.com/shop:2.0.0 dHdv" {
		t.Error(found)
	}

	// Encrypted for somebody else: what serves goes on.
	identity, err := os.ReadFile(team.identityFile())
	if err != nil {
		t.Fatal(err)
	}
	team.newKey()
	if err := os.Rename(team.identityFile(), team.identityFile()+".other"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(team.identityFile(), identity, 0o600); err != nil {
		t.Fatal(err)
	}
	team.commit("3.0.0", "LOG_LEVEL=info\nTOKEN=three\n")
	team.sync()
	team.waitFor("Degraded", "SettingsUnreadable: shop.env: no age identity decrypts the file")
	if found := team.serving(); found != "registry.example.com/shop:2.0.0 dHdv" {
		t.Error(found)
	}
	stop()
	team.argoReadsNoSecrets()
	team.argoTakesTheManifests()
}

func (team *team) argoReadsNoSecrets() {
	team.t.Helper()
	for kind, version := range map[string]string{"Secret": "v1", "Deployment": "apps/v1", "Pod": "v1"} {
		var list unstructured.UnstructuredList
		list.SetAPIVersion(version)
		list.SetKind(kind + "List")
		if err := team.argo.List(team.t.Context(), &list, client.InNamespace("web")); !apierrors.IsForbidden(err) {
			team.t.Errorf("Argo CD lists %s: %v", kind, err)
		}
	}
}

// argoTakesTheManifests has a real API server check them against Argo CD's own definitions.
func (team *team) argoTakesTheManifests() {
	t := team.t
	t.Helper()
	definitions, err := filepath.Glob(filepath.Join(os.Getenv("ROOST_TEST_ARGOCD"), "*-crd.yaml"))
	if os.Getenv("ROOST_TEST_ARGOCD") == "" || err != nil || len(definitions) == 0 {
		t.Log("skipped: ROOST_TEST_ARGOCD has no definitions of Argo CD; `scripts/need argocd-definitions` makes them")
		return
	}
	for _, file := range definitions {
		for _, definition := range documents(t, file) {
			if err := team.admin.Create(t.Context(), definition); err != nil {
				t.Fatal(err)
			}
		}
	}
	namespace := &unstructured.Unstructured{}
	namespace.SetAPIVersion("v1")
	namespace.SetKind("Namespace")
	namespace.SetName("argocd")
	if err := team.admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"project.yaml", "application.yaml", "argocd-cm.yaml"} {
		for _, object := range documents(t, filepath.Join(argoFolder, name)) {
			team.createWhenServed(object, client.DryRunAll)
			unknown := object.DeepCopy()
			unknown.SetName("unknown")
			if err := unstructured.SetNestedField(unknown.Object, "x", "spec", "unknown"); err != nil {
				t.Fatal(err)
			}
			if err := team.createStrictly(unknown, client.DryRunAll); err == nil {
				t.Errorf("%s: an unknown field is taken, so nothing is checked", name)
			}
		}
	}
}

// createWhenServed waits until the server has taken over the definition.
func (team *team) createWhenServed(object *unstructured.Unstructured, options ...client.CreateOption) {
	team.t.Helper()
	for deadline := time.Now().Add(noticedMax); ; {
		err := team.createStrictly(object.DeepCopy(), options...)
		if err == nil {
			return
		}
		isServed := !apierrors.IsNotFound(err) && !strings.Contains(err.Error(), "no matches for kind")
		if isServed || time.Now().After(deadline) {
			team.t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
		time.Sleep(50 * time.Millisecond) // between two looks
	}
}

func (team *team) createStrictly(object *unstructured.Unstructured, options ...client.CreateOption) error {
	return team.admin.Create(team.t.Context(), object, append(options, client.FieldValidation(metav1.FieldValidationStrict))...)
}

// documents of a file with YAML.
func documents(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []*unstructured.Unstructured
	for _, part := range strings.Split("\n"+string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(part), &object.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(object.Object) > 0 {
			found = append(found, object)
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no object", file)
	}
	return slices.Clip(found)
}
