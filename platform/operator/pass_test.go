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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
	"github.com/dunlin-project/dunlin/platform/validate"
)

const (
	casesMin = 40
	well     = "Degraded=False AsDesired, Progressing=False AsDesired, Ready=True AsDesired, SettingsDecrypted=True AsDesired"
)

func sortedText(parts []string) string {
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// TestEachCaseEndsWithoutAWrite applies each case of the golden files with the operator. Defaults and changes of the server do not make the operator
// write an object again.
func TestEachCaseEndsWithoutAWrite(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../render/testdata/cases/*.yaml")
	if err != nil || len(files) < casesMin {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := newWorld(t, "all-"+name)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			document := validate.File(text)[0]
			kind, object := "App", client.Object(document.App)
			if document.Dunlin != nil {
				kind, object = "Dunlin", document.Dunlin
			}
			object.SetNamespace(world.namespace)
			if env, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".env"); err == nil {
				object.SetAnnotations(map[string]string{render.AnnotationFiles: world.encrypted(object.GetName(), fileOf(object), string(env))})
			}
			if document.Dunlin != nil && document.Dunlin.Spec.Keys.Secret != "" {
				world.createSecret(document.Dunlin.Spec.Keys.Secret, map[string]string{render.LabelUsable: "true"})
			}
			if backup := backupOf(object); backup != nil && backup.Repository != nil {
				files := world.encrypted(object.GetName(), string(backup.Repository.File), "RESTIC_PASSWORD=c4n4ry-repository\n")
				object.SetAnnotations(map[string]string{render.AnnotationFiles: files})
			}
			if app := document.App; app != nil && len(app.Spec.Files) > 0 {
				object.SetAnnotations(map[string]string{render.AnnotationFiles: world.mounted(app)})
			}
			world.create(object)
			world.converge(kind, object.GetName())
			world.calls.reset(0, false)
			if err := world.pass(kind, object.GetName()); err != nil || len(world.calls.writes) > 0 {
				t.Errorf("%v, %v", err, world.calls.writes)
			}
			if status, message := world.status(object); withoutBackupFresh(status) != well {
				t.Errorf("%s\n%s", status, message)
			}
		})
	}
}

// withoutBackupFresh removes the condition that depends on backups, because these tests have none.
func withoutBackupFresh(status string) string {
	parts := slices.DeleteFunc(strings.Split(status, ", "), func(part string) bool { return strings.HasPrefix(part, "BackupFresh=") })
	return strings.Join(parts, ", ")
}

func backupOf(object client.Object) *v1alpha1.Backup {
	if dunlin, isDunlin := object.(*v1alpha1.Dunlin); isDunlin {
		return dunlin.Spec.Backup
	}
	return object.(*v1alpha1.App).Spec.Backup
}

func fileOf(object client.Object) string {
	if dunlin, isDunlin := object.(*v1alpha1.Dunlin); isDunlin {
		return string(dunlin.Spec.Keys.File)
	}
	return string(object.(*v1alpha1.App).Spec.EnvFiles[0])
}

// large returns an App with each kind of write.
func (world *world) large() *v1alpha1.App {
	app := world.app("shop")
	world.files(app, "LOG_LEVEL=info\nTOKEN=one\n")
	app.Spec.Host = "shop.example.com"
	app.Spec.Migrate = &v1alpha1.Migration{Command: v1alpha1.Command{"migrate"}}
	app.Spec.Cron = []v1alpha1.CronTask{{Name: "a", Schedule: "0 * * * *", Command: v1alpha1.Command{"x"}}}
	return app
}

// shrink removes the fields whose objects are pruned.
func (world *world) shrink() {
	var app v1alpha1.App
	if err := world.get("shop", &app); err != nil {
		world.t.Fatal(err)
	}
	app.Spec.Host, app.Spec.Cron, app.Spec.Image = "", nil, "shop:2"
	world.update(&app)
}

// hashless removes hashes, which depend on the namespace.
func hashless(names string) string {
	var cut []string
	for _, name := range strings.Split(names, ", ") {
		parts := strings.Split(name, "-")
		if last := parts[len(parts)-1]; len(last) == 10 {
			name = strings.TrimSuffix(name, last)
		}
		cut = append(cut, name)
	}
	return sortedText(cut)
}

func TestDriftIsUndoneAndWhatIsOfOthersStays(t *testing.T) {
	world := newWorld(t, "drift")
	app := world.app("shop")
	world.create(app)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "data-shop-0", Namespace: world.namespace,
		Labels: map[string]string{render.LabelApp: "shop", render.LabelManagedBy: render.ManagedBy},
	}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	world.create(claim)
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop-tls", Namespace: world.namespace, Labels: claim.Labels}}
	world.create(foreign)
	world.converge("App", "shop")

	var deployment appsv1.Deployment
	if err := world.get("shop", &deployment); err != nil {
		t.Fatal(err)
	}
	deployment.Spec.Replicas = new(int32(7))
	deployment.Labels["team"] = "web"
	world.update(&deployment)
	if err := world.admin.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: world.namespace}}); err != nil {
		t.Fatal(err)
	}
	world.converge("App", "shop")
	if err := world.get("shop", &deployment); err != nil || *deployment.Spec.Replicas != 1 || deployment.Labels["team"] != "web" {
		t.Errorf("%v: %d replicas, labels %v", err, *deployment.Spec.Replicas, deployment.Labels)
	}
	if err := world.get("shop", &corev1.Service{}); err != nil {
		t.Error(err)
	}
	for _, object := range []client.Object{claim, foreign} {
		before := object.GetResourceVersion()
		if err := world.get(object.GetName(), object); err != nil || object.GetResourceVersion() != before {
			t.Errorf("%s: %v, changed: %v", object.GetName(), err, object.GetResourceVersion() != before)
		}
	}
}

func TestANameOfSomebodyElseIsNotTaken(t *testing.T) {
	world := newWorld(t, "taken")
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: world.namespace}}
	foreign.Spec.Ports = []corev1.ServicePort{{Port: 1}}
	world.create(foreign)
	version := foreign.ResourceVersion
	app := world.app("shop")
	world.create(app)
	world.converge("App", "shop")
	status, message := world.status(app)
	if !strings.Contains(status, "Degraded=True NameTaken") || !strings.Contains(message, "Service/shop; rename or delete them") {
		t.Errorf("%s\n%s", status, message)
	}
	if err := world.get("shop", foreign); err != nil || foreign.ResourceVersion != version {
		t.Errorf("%v, version %s", err, foreign.ResourceVersion)
	}
	if err := world.admin.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	world.converge("App", "shop")
	if status, message := world.status(app); status != well {
		t.Errorf("%s\n%s", status, message)
	}
}

// TestAnOwnerThatIsMadeAgainWaits checks that a new owner waits until Kubernetes has deleted the objects of the earlier one.
func TestAnOwnerThatIsMadeAgainWaits(t *testing.T) {
	world := newWorld(t, "again")
	world.create(world.app("shop"))
	world.converge("App", "shop")
	before := world.names("shop")
	if err := world.admin.Delete(t.Context(), world.app("shop")); err != nil {
		t.Fatal(err)
	}
	if err := world.pass("App", "shop"); err != nil || world.names("shop") != before {
		t.Fatalf("%v: %s", err, world.names("shop"))
	}
	app := world.app("shop")
	world.create(app)
	world.converge("App", "shop")
	if status, message := world.status(app); !strings.Contains(status, "Progressing=True WaitingForDeletion") {
		t.Fatalf("%s\n%s", status, message)
	}
	for kind := range versions {
		for _, object := range world.list(kind, "shop") {
			if owner := metav1.GetControllerOf(object); owner != nil && owner.UID != app.UID {
				if err := client.IgnoreNotFound(world.admin.Delete(t.Context(), object, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	world.converge("App", "shop")
	if status, message := world.status(app); status != well || world.names("shop") != before {
		t.Errorf("%s\n%s\n%s", status, message, world.names("shop"))
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "settings")
	app := world.app("shop")
	world.files(app, "LOG_LEVEL=info\nTOKEN=c4n4ry\n")
	world.create(app)
	world.converge("App", "shop")
	secrets := world.list("Secret", "shop")
	if len(secrets) != 1 || secrets[0].Object["data"].(map[string]any)["TOKEN"] != "YzRuNHJ5" {
		t.Fatalf("%v", secrets)
	}
	template := world.template("shop")

	// The same content, encrypted anew, restarts nothing.
	world.switchFiles(app, world.encrypted("shop", "shop.env", "LOG_LEVEL=info\nTOKEN=c4n4ry\n"))
	if world.converge("App", "shop"); !equality.Semantic.DeepEqual(world.template("shop"), template) {
		t.Error("pods would restart though nothing changed")
	}
	good := app.Annotations[render.AnnotationFiles]
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	sealed := world.sealed("TOKEN=c4n4ry\n", other)
	for name, row := range map[string]struct{ content, message string }{
		"missing":    {"", "does not exist; run `roost deploy`"},
		"wrong key":  {sealed, "no age identity decrypts the file, which is encrypted for " + other.Recipient().String()},
		"tampered":   {strings.Replace(world.sealed("TOKEN=a\nB=b\n", world.identity), "B=", "C=", 1), "restore the file from Git"},
		"cut":        {world.sealed("TOKEN=a\n", world.identity)[:80], "begins with ENC["},
		"ciphertext": {"TOKEN=ENC[AES256_GCM]\n", "the value of TOKEN begins with ENC["},
	} {
		files := "missing"
		if row.content != "" {
			files = world.written("shop", "shop.env", row.content)
		}
		world.switchFiles(app, files)
		world.calls.reset(0, false)
		world.converge("App", "shop")
		status, message := world.status(app)
		isNamed := strings.Contains(status, "SettingsDecrypted=False SettingsUnreadable") && strings.Contains(status, "Ready=True")
		if !isNamed || !strings.Contains(message, row.message) {
			t.Errorf("%s: %s\n%s", name, status, message)
		}
		for _, write := range world.calls.writes {
			if !strings.HasSuffix(write, "/apps/shop/status") {
				t.Errorf("%s: %s", name, write)
			}
		}
	}
	world.switchFiles(app, good)
	world.converge("App", "shop")
	world.switchFiles(app, world.encrypted("shop", "shop.env", "LOG_LEVEL=info\nTOKEN=other\n"))
	if world.converge("App", "shop"); equality.Semantic.DeepEqual(world.template("shop"), template) {
		t.Error("pods would not restart though a value changed")
	}
	if text := fmt.Sprint(statusOf(app)); strings.Contains(text, "c4n4ry") {
		t.Error("a value is in the status")
	}
}

// sealed returns an encrypted file.
func (world *world) sealed(text string, identity *age.X25519Identity) string {
	world.t.Helper()
	return sealed(world.t, text, settings.Options{
		Recipients: []string{identity.Recipient().String()}, PlainKeys: "^LOG_", Now: time.Unix(1_000_000_000, 0),
	})
}

func (world *world) encrypted(app, file, text string) string {
	world.t.Helper()
	return world.written(app, file, world.sealed(text, world.identity))
}

// written creates a ConfigMap with one file, and returns its name.
func (world *world) written(app, file, content string) string {
	world.t.Helper()
	return world.writtenFiles(app, map[string]string{file: content})
}

func (world *world) writtenFiles(app string, contents map[string]string) string {
	world.t.Helper()
	files, err := render.Files(world.namespace, app, contents)
	if err != nil {
		world.t.Fatal(err)
	}
	if err := world.admin.Create(world.t.Context(), files); err != nil && !apierrors.IsAlreadyExists(err) {
		world.t.Fatal(err)
	}
	return files.Name
}

func (world *world) switchFiles(app *v1alpha1.App, files string) {
	world.t.Helper()
	if err := world.get(app.Name, app); err != nil {
		world.t.Fatal(err)
	}
	app.Annotations = map[string]string{render.AnnotationFiles: files}
	world.update(app)
}

func (world *world) template(name string) any {
	world.t.Helper()
	for _, object := range world.list("Deployment", name) {
		template, _, _ := unstructured.NestedMap(object.Object, "spec", "template")
		return template
	}
	world.t.Fatal("there is no Deployment")
	return nil
}

func TestOneHostHasOneApp(t *testing.T) {
	world := newWorld(t, "hosts")
	first, second := world.app("first"), world.app("second")
	world.create(world.app("elder"))
	world.converge("App", "elder")
	for _, app := range []*v1alpha1.App{first, second} {
		app.Spec.Host = "shop.example.com"
		world.create(app)
		world.converge("App", app.Name)
	}
	status, message := world.status(second)
	if !strings.Contains(status, "Degraded=True HostTaken") || message != "App hosts/first has the same host and path; change one of them" {
		t.Errorf("%s\n%s", status, message)
	}
	if names := world.names("second"); names != "" {
		t.Errorf("%s was written", names)
	}
	if err := world.admin.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	world.converge("App", "second")
	world.oldAppClaims("elder", second)
	if status, message := world.status(second); status != well {
		t.Errorf("%s\n%s", status, message)
	}
	third := world.app("third")
	third.Spec.Host, third.Spec.Hosts = "www.example.com", []v1alpha1.HostName{"static.example.com", "shop.example.com"}
	world.create(third)
	world.converge("App", "third")
	status, message = world.status(third)
	if !strings.Contains(status, "Degraded=True HostTaken") || message != "App hosts/second has the host shop.example.com and the same path; change one of them" {
		t.Errorf("%s\n%s", status, message)
	}
	third.Spec.Hosts = third.Spec.Hosts[:1]
	world.update(third)
	world.converge("App", "third")
	if status, message := world.status(third); status != well {
		t.Errorf("%s\n%s", status, message)
	}
	var ingress networkingv1.Ingress
	if err := world.get("third", &ingress); err != nil || len(ingress.Spec.Rules) != 2 || ingress.Spec.Rules[1].Host != "static.example.com" {
		t.Errorf("%v, %+v", err, ingress.Spec.Rules)
	}
	// A host that only a further name claims is taken as well.
	fourth := world.app("fourth")
	fourth.Spec.Host = "static.example.com"
	world.create(fourth)
	world.converge("App", "fourth")
	if status, message := world.status(fourth); !strings.Contains(status, "HostTaken") || !strings.HasPrefix(message, "App hosts/third has the same host and path") {
		t.Errorf("%s\n%s", status, message)
	}
}

// oldAppClaims the host of a newer one, which serves under it.
func (world *world) oldAppClaims(name string, holder *v1alpha1.App) {
	world.t.Helper()
	elder := world.app(name)
	if err := world.get(name, elder); err != nil {
		world.t.Fatal(err)
	}
	elder.Spec.Host = holder.Spec.Host
	world.update(elder)
	for _, app := range []string{name, holder.Name, name} {
		world.converge("App", app)
	}
	status, message := world.status(elder)
	if !strings.Contains(status, "Degraded=True HostTaken") || !strings.Contains(message, "App hosts/"+holder.Name) {
		world.t.Errorf("%s\n%s", status, message)
	}
	if ingresses := world.list("Ingress", name); len(ingresses) != 0 {
		world.t.Errorf("%s has %d Ingresses", name, len(ingresses))
	}
}

// TestAFailingPodIsReported checks the message of a failing pod, which has the status that a kubelet would write.
func TestAFailingPodIsReported(t *testing.T) {
	world := newWorld(t, "failing")
	app := world.app("shop")
	world.create(app)
	world.converge("App", "shop")
	world.failPod("shop", "panic: no database\n")
	world.converge("App", "shop")
	status, message := world.status(app)
	if !strings.Contains(status, "Degraded=True PodFailing") || message != "shop-1: CrashLoopBackOff: exit code 3: panic: no database" {
		t.Errorf("%s\n%s", status, message)
	}
}

// failPod writes the status of a failing pod, as a kubelet would.
func (world *world) failPod(app, words string) {
	world.t.Helper()
	var deployment appsv1.Deployment
	var set appsv1.StatefulSet
	err := world.get(app, &deployment)
	template := deployment.Spec.Template
	if apierrors.IsNotFound(err) {
		err = world.get(app, &set)
		template = set.Spec.Template
		// The claims are those of the controller of StatefulSets.
		template.Spec.Containers[0].VolumeMounts = nil
	}
	if err != nil {
		world.t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: app + "-1", Namespace: world.namespace, Labels: template.Labels}, Spec: template.Spec,
	}
	world.create(pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: words}},
	}}
	if err := world.admin.Status().Update(world.t.Context(), pod); err != nil {
		world.t.Fatal(err)
	}
}

// TestAPassFollowsEachWrite has passes write and delete. If the cache is filled again after an object was written and deleted, it has no event of either, so the
// status would say forever that objects are being written.
func TestAPassFollowsEachWrite(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "follows")
	world.create(world.large())
	name := types.NamespacedName{Namespace: world.namespace, Name: "shop"}
	written := ""
	for _, change := range []func(){func() {}, world.shrink} {
		change()
		for range passesMax {
			world.calls.reset(0, false)
			pause, err := world.operator.Pass(t.Context(), "App", name)
			if err != nil {
				t.Fatal(err)
			}
			writes := slices.DeleteFunc(world.calls.reset(0, false), func(write string) bool { return strings.HasSuffix(write, "/status") })
			if len(writes) > 0 && (pause == 0 || pause > 30*time.Second) {
				t.Errorf("%v until the pass after %v", pause, writes)
			}
			if len(writes) == 0 && pause != 0 {
				t.Errorf("%v until the pass after one without a write", pause)
			}
			written += strings.Join(writes, "\n")
			world.settle("shop")
		}
	}
	if !strings.Contains(written, "DELETE") || !strings.Contains(written, "PATCH") {
		t.Errorf("kinds of writes are missing:\n%s", written)
	}
}
