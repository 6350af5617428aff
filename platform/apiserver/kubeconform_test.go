package apiserver_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/dunlin-project/dunlin/platform/apiserver"
)

const (
	schemasMin   = 150
	conformFiles = 60
)

// conforms has kubeconform check all golden objects, all cases, and the manifests of the operator, with schemas of the server. It reads them as
// YAML 1.1 does, without a server, as a team does in its CI.
func conforms(t *testing.T, connection *rest.Config) {
	program := os.Getenv("ROOST_TEST_KUBECONFORM")
	if program == "" {
		t.Skip("ROOST_TEST_KUBECONFORM is not set; `make platform` sets it")
	}
	folder := t.TempDir()
	schemas, err := apiserver.WriteSchemas(t.Context(), connection, folder)
	if err != nil || schemas < schemasMin {
		t.Fatalf("%d schemas, %v", schemas, err)
	}
	var files []string
	for _, pattern := range []string{"../render/testdata/golden/*.yaml", "../render/testdata/cases/*.yaml", "../deploy/*.yaml", "../crd/*.yaml", "../gitops/sample/apps/shop*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 2*conformFiles {
		t.Fatalf("%d files", len(files))
	}
	summary, output := conform(t, program, folder, files)
	if summary.Invalid+summary.Errors+summary.Skipped > 0 || summary.Valid < len(files) {
		t.Errorf("%+v\n%s", summary, output)
	}
	t.Logf("%d schemas, %d files: %+v", schemas, len(files), summary)

	for name, text := range map[string]string{
		"a number as text":   "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: \"3\", selector: {}, template: {}}\n",
		"a field misspelled": "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {portz: []}\n",
		"a truth value":      "apiVersion: apps.roost.dev/v1alpha1\nkind: App\nmetadata: {name: a}\nspec: {image: y, health: {path: /}}\n",
		"an unknown field":   "apiVersion: apps.roost.dev/v1alpha1\nkind: Dunlin\nmetadata: {name: a}\nspec: {image: \"d:1\", keys: {secret: k}, node: 3}\n",
	} {
		file := filepath.Join(t.TempDir(), "wrong.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if summary, output := conform(t, program, folder, []string{file}); summary.Invalid != 1 {
			t.Errorf("%s: %+v\n%s", name, summary, output)
		}
	}
}

type conformity struct{ Valid, Invalid, Errors, Skipped int }

func conform(t *testing.T, program, folder string, files []string) (conformity, string) {
	t.Helper()
	arguments := append([]string{"-strict", "-summary", "-output", "json", "-schema-location", apiserver.SchemaLocation(folder)}, files...)
	command := exec.Command(program, arguments...)
	var stderr strings.Builder
	command.Stderr = &stderr
	text, err := command.Output()
	var answer struct{ Summary conformity }
	if failure := json.Unmarshal(text, &answer); failure != nil {
		t.Fatalf("%v, %v: %s%s", err, failure, text, stderr.String())
	}
	return answer.Summary, string(text)
}
