package render_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/dotenv"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
	"github.com/dunlin-project/dunlin/platform/validate"
)

var update = flag.Bool("update", false, "write the golden files anew")

const casesMin = 40

// rendered returns the rendered objects of a case of testdata. Keys of its .env file that begin with SECRET_ count as encrypted.
func rendered(t *testing.T, file string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documents := validate.File(text)
	if len(documents) != 1 || len(documents[0].Problems) > 0 {
		t.Fatalf("%s: %+v", file, documents)
	}
	document := documents[0]
	if document.Dunlin != nil {
		keys, err := settings.Merge(filesOf(t, file), nil)
		if err != nil {
			t.Fatal(err)
		}
		keys = withRepository(t, keys, document.Dunlin.Spec.Backup)
		objects, err := render.Dunlin(document.Dunlin, keys, render.Cluster{})
		if err != nil {
			t.Fatal(err)
		}
		return objects
	}
	env := map[string]string{}
	for key, value := range document.App.Spec.Env {
		env[key] = string(value)
	}
	values, err := settings.Merge(filesOf(t, file), env)
	if err != nil {
		t.Fatal(err)
	}
	values = withRepository(t, withContents(values, document.App), document.App.Spec.Backup)
	objects, err := render.App(document.App, values, render.Cluster{})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// withContents adds the files that pods mount. Those in a folder called secret count as encrypted.
func withContents(values settings.Settings, app *v1alpha1.App) settings.Settings {
	var contents []settings.Content
	for _, name := range app.Spec.MountedNames() {
		contents = append(contents, settings.Content{Name: name, Text: "content of " + name + "\n", IsSecret: strings.HasPrefix(name, "secret/")})
	}
	if len(contents) == 0 {
		return values
	}
	return values.WithContents(contents)
}

// withRepository adds the password of a repository, if a backup has one.
func withRepository(t *testing.T, values settings.Settings, backup *v1alpha1.Backup) settings.Settings {
	t.Helper()
	if backup == nil || backup.Repository == nil {
		return values
	}
	lines, err := dotenv.Parse([]byte("RESTIC_PASSWORD=s3cret\n"))
	if err != nil {
		t.Fatal(err)
	}
	file := settings.File{Name: "backup.env", Decrypted: settings.Decrypted{Lines: lines, Secrets: map[string]bool{"RESTIC_PASSWORD": true}}}
	if values, err = values.WithRepository(file); err != nil {
		t.Fatal(err)
	}
	return values
}

func filesOf(t *testing.T, file string) []settings.File {
	t.Helper()
	text, err := os.ReadFile(strings.TrimSuffix(file, ".yaml") + ".env")
	if os.IsNotExist(err) {
		return nil
	}
	lines, err := dotenv.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]bool{}
	for _, line := range lines {
		secrets[line.Key] = strings.HasPrefix(line.Key, "SECRET_") || strings.HasPrefix(file, "testdata/cases/dunlin-")
	}
	return []settings.File{{Name: "shop.env", Decrypted: settings.Decrypted{Lines: lines, Secrets: secrets}}}
}

func cases(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/cases/*.yaml")
	if err != nil || len(files) < casesMin {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	return files
}

func TestGolden(t *testing.T) {
	for _, file := range cases(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := render.YAML(rendered(t, file))
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.Replace(file, "/cases/", "/golden/", 1)
			if *update {
				if err := os.WriteFile(golden, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(text, want) {
				t.Errorf("%s is not what is rendered. Look at the difference that `go test ./render -update` makes", golden)
			}
		})
	}
}

func TestEachGoldenFileHasACase(t *testing.T) {
	golden, err := filepath.Glob("testdata/golden/*.yaml")
	if err != nil || len(golden) != len(cases(t)) {
		t.Fatalf("%d golden files for %d cases, %v", len(golden), len(cases(t)), err)
	}
}

// Kubernetes can read the rendered YAML: each document decodes into its type without an unknown field.
func TestGoldenFilesDecodeStrictly(t *testing.T) {
	types := map[string]func() any{
		"ServiceAccount": func() any { return &corev1.ServiceAccount{} }, "ConfigMap": func() any { return &corev1.ConfigMap{} },
		"Secret": func() any { return &corev1.Secret{} }, "Service": func() any { return &corev1.Service{} },
		"NetworkPolicy": func() any { return &networkingv1.NetworkPolicy{} }, "Ingress": func() any { return &networkingv1.Ingress{} },
		"Deployment": func() any { return &appsv1.Deployment{} }, "StatefulSet": func() any { return &appsv1.StatefulSet{} },
		"Job": func() any { return &batchv1.Job{} }, "CronJob": func() any { return &batchv1.CronJob{} },
		"PersistentVolumeClaim":   func() any { return &corev1.PersistentVolumeClaim{} },
		"PodDisruptionBudget":     func() any { return &policyv1.PodDisruptionBudget{} },
		"HorizontalPodAutoscaler": func() any { return &autoscalingv2.HorizontalPodAutoscaler{} },
	}
	seen := map[string]int{}
	for _, file := range cases(t) {
		text, err := os.ReadFile(strings.Replace(file, "/cases/", "/golden/", 1))
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			var head struct{ Kind string }
			if err := yaml.Unmarshal(document, &head); err != nil {
				t.Fatal(err)
			}
			target, isKnown := types[head.Kind]
			if !isKnown {
				t.Fatalf("%s: no type for %s", file, head.Kind)
			}
			if err := yaml.UnmarshalStrict(document, target()); err != nil {
				t.Errorf("%s: %s: %v", file, head.Kind, err)
			}
			seen[head.Kind]++
		}
	}
	for kind := range types {
		if seen[kind] == 0 {
			t.Errorf("no case renders a %s", kind)
		}
	}
}
