package operator_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// TestMountedFiles changes the content of files, which rolls out new pods, and makes one unreadable, which changes nothing.
func TestMountedFiles(t *testing.T) {
	world := newWorld(t, "mounted")
	app := world.app("shop")
	app.Spec.Files = v1alpha1.Files{
		{File: "files/shop.yml", Path: "/etc/shop/shop.yml"}, {File: "secret/tls.key", Path: "/etc/shop/tls.key", Mode: "0444"},
	}
	app.Annotations = map[string]string{render.AnnotationFiles: world.mounted(app)}
	world.create(app)
	world.converge("App", "shop")
	first := world.mountedTemplate()
	plain, secret := volumeOf(first, "mounted-plain-files").ConfigMap, volumeOf(first, "mounted-secret-files").Secret
	if plain == nil || secret == nil {
		t.Fatalf("%+v", first.Spec.Volumes)
	}
	var keys corev1.Secret
	var texts corev1.ConfigMap
	if err := world.get(secret.SecretName, &keys); err != nil || string(keys.Data["secret..tls.key"]) != "content of secret/tls.key" {
		t.Errorf("%v, %s", err, keys.Data)
	}
	if err := world.get(plain.Name, &texts); err != nil || texts.Data["files..shop.yml"] != "content of files/shop.yml" || len(texts.Data) != 1 {
		t.Errorf("%v, %s", err, texts.Data)
	}

	sealed := world.sealedContent("another key")
	world.switchFiles(app, world.writtenFiles("shop", map[string]string{"files/shop.yml": "content of files/shop.yml", "secret/tls.key": sealed}))
	world.converge("App", "shop")
	second := world.mountedTemplate()
	if status, message := world.status(app); status != well {
		t.Fatalf("%s\n%s", status, message)
	}
	if first.Annotations[render.AnnotationSettings] == second.Annotations[render.AnnotationSettings] {
		t.Error("other content does not start new pods")
	}
	name := volumeOf(second, "mounted-secret-files").Secret.SecretName
	if err := world.get(name, &keys); err != nil || name == secret.SecretName || string(keys.Data["secret..tls.key"]) != "another key" {
		t.Errorf("%s, %v, %s", name, err, keys.Data)
	}
	if err := world.get(secret.SecretName, &keys); err != nil {
		t.Errorf("pods of the earlier revision have lost their file: %v", err)
	}

	damaged := strings.Replace(sealed, "ENC[AES256_GCM,data:", "ENC[AES256_GCM,data:AAAA", 1)
	for message, files := range map[string]map[string]string{
		"secret/tls.key: data: the value was changed after it was encrypted; restore the file from Git":      {"files/shop.yml": "a", "secret/tls.key": damaged},
		"has no secret..tls.key; run `roost deploy`":                                                         {"files/shop.yml": "a"},
		`"files/shop.yml" has values that sops has encrypted, or is a part of an encrypted file; restore it`: {"files/shop.yml": sealed[:200], "secret/tls.key": sealed},
	} {
		world.switchFiles(app, world.writtenFiles("shop", files))
		world.converge("App", "shop")
		status, found := world.status(app)
		if !strings.Contains(status, "SettingsDecrypted=False SettingsUnreadable") || !strings.Contains(found, message) {
			t.Errorf("%s\n%s", status, found)
		}
		if now := world.mountedTemplate(); now.Annotations[render.AnnotationSettings] != second.Annotations[render.AnnotationSettings] {
			t.Error("files that cannot be read have changed the pods")
		}
	}
}

// TestFilesThatNoRevisionHolds writes files as Argo CD does, which does not check their size. A real API server takes a revision at the bound.
func TestFilesThatNoRevisionHolds(t *testing.T) {
	world := newWorld(t, "large")
	app := world.app("shop")
	app.Spec.Files = v1alpha1.Files{{File: "files/shop.txt", Path: "/etc/shop/shop.txt"}}
	world.create(app)
	spec, err := json.Marshal(app.Spec)
	if err != nil {
		t.Fatal(err)
	}
	// A line break takes two bytes in JSON, and a < six.
	room := render.RevisionBytesMax - len(spec) - len(`{"spec":,"files":{"files/shop.txt":""}}`)
	full := strings.Repeat("<", room/6) + strings.Repeat("x", room%6)
	carried := func(name, content string) {
		t.Helper()
		world.create(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: world.namespace, Labels: map[string]string{render.LabelFilesOf: "shop"}},
			Data:       map[string]string{render.FilesKey("files/shop.txt"): content},
		})
		world.switchFiles(app, name)
		world.converge("App", "shop")
	}
	carried("shop-files-full", full)
	if status, message := world.status(app); status != well {
		t.Fatalf("%s\n%s", status, message)
	}
	before := world.mountedTemplate()
	carried("shop-files-large", full+"x")
	status, message := world.status(app)
	wanted := fmt.Sprintf("spec.files: the spec and its files take %d bytes in a revision, more than the limit of %d; of them, files/shop.txt takes ", render.RevisionBytesMax+1, render.RevisionBytesMax)
	if !strings.Contains(status, "Degraded=True SpecInvalid") || !strings.HasPrefix(message, wanted) || !strings.HasSuffix(message, "; shorten the file, or mount its content as a volume") {
		t.Errorf("%s\n%s", status, message)
	}
	if now := world.mountedTemplate(); !reflect.DeepEqual(now, before) {
		t.Error("files that are too large have changed the pods")
	}
}

func (world *world) mountedTemplate() corev1.PodTemplateSpec {
	world.t.Helper()
	var deployment appsv1.Deployment
	if err := world.get("shop", &deployment); err != nil {
		world.t.Fatal(err)
	}
	return deployment.Spec.Template
}

func volumeOf(template corev1.PodTemplateSpec, name string) corev1.Volume {
	for _, volume := range template.Spec.Volumes {
		if volume.Name == name {
			return volume
		}
	}
	return corev1.Volume{}
}

// mounted writes the files of an app as `roost deploy` does, with those in a folder called secret encrypted.
func (world *world) mounted(app *v1alpha1.App) string {
	world.t.Helper()
	files := map[string]string{}
	for _, name := range app.Spec.MountedNames() {
		files[name] = "content of " + name
		if strings.HasPrefix(name, "secret/") {
			files[name] = world.sealedContent(files[name])
		}
	}
	if backup := app.Spec.Backup; backup != nil {
		files[string(backup.Repository.File)] = world.sealed("RESTIC_PASSWORD=c4n4ry-repository\n", world.identity)
	}
	return world.writtenFiles(app.Name, files)
}

func (world *world) sealedContent(text string) string {
	world.t.Helper()
	options := settings.Options{Recipients: []string{world.identity.Recipient().String()}, Now: time.Now()}
	content, err := settings.EncryptContent([]byte(text), options)
	if err != nil {
		world.t.Fatal(err)
	}
	return string(content)
}
