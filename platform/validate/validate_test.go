package validate_test

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/validate"
	"github.com/dunlin-project/dunlin/platform/validate/problems"
)

// manifest is a valid one with other fields.
func manifest(t *testing.T, kind string, fields map[string]any) []byte {
	t.Helper()
	text, err := yaml.Marshal(problems.Manifest(t, kind, fields))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestEachWrongFieldHasItsSentence(t *testing.T) {
	rows := problems.Rows(t)
	if len(rows) < 100 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		t.Run(row.Kind+" "+row.Name, func(t *testing.T) {
			found := validate.File(manifest(t, row.Kind, row.Spec))[0].Problems
			want := validate.Problem{Path: row.Path, Message: row.Message}
			if len(found) != 1 || found[0] != want {
				t.Errorf("%v\nexpected: %v", found, want)
			}
			if _, remedy, isThere := strings.Cut(row.Message, "; "); !isThere || remedy == "" {
				t.Error("there is no remedy")
			}
		})
	}
}

func TestValidSpecsHaveNoProblem(t *testing.T) {
	for _, kind := range problems.Kinds {
		if documents := validate.File(manifest(t, kind, nil)); len(documents) != 1 || len(documents[0].Problems) != 0 {
			t.Errorf("%s: %+v", kind, documents)
		}
	}
}

func TestAllProblemsAreFoundAtOnce(t *testing.T) {
	found := validate.File(manifest(t, "App", map[string]any{"image": "shop", "replicas": 200, "hots": "x", "health": map[string]any{}}))[0].Problems
	var paths []string
	for _, problem := range found {
		paths = append(paths, problem.Path)
	}
	if fmt.Sprint(paths) != "[spec.hots spec.image spec.replicas spec.health]" {
		t.Fatalf("%v", found)
	}
}

func TestFiles(t *testing.T) {
	app, dunlin := string(manifest(t, "App", nil)), string(manifest(t, "Dunlin", nil))
	for _, row := range []struct {
		name, text string
		documents  int
		problem    string
	}{
		{"nothing", "", 0, ""},
		{"comments", "# nothing\n---\n# here\n", 0, ""},
		{"two documents", app + "---\n" + dunlin, 2, ""},
		{"document mark first", "---\n" + app, 1, ""},
		{"two marks", "---\n" + app + "\n---\n---\n" + dunlin, 2, ""},
		{"mark with a comment", app + "--- # second\n" + dunlin, 2, ""},
		{"marks with CRLF", strings.ReplaceAll(app+"---\n"+dunlin, "\n", "\r\n"), 2, ""},
		{"no YAML", "a: [", 1, "correct the YAML"},
		{"a list", "- a", 1, "the document is not a mapping"},
		{"a key twice", strings.Replace(app, "  image: shop:1\n", "  image: shop:1\n  image: shop:2\n", 1), 1, "already set in map"},
		{"another kind", strings.Replace(app, "kind: App", "kind: Deployment", 1), 1, `kind: "Deployment" is not a kind of Roost; write App or Dunlin`},
		{"another version", strings.Replace(app, "v1alpha1", "v1", 1), 1, `apiVersion: "apps.roost.dev/v1" is not a version that Roost knows; write apps.roost.dev/v1alpha1`},
		{"no name", strings.Replace(app, "name: shop", "labels: {}", 1), 1, "metadata.name: "},
		{"namespace", strings.Replace(app, "name: shop", "name: shop\n  namespace: My_Team", 1), 1, `metadata.namespace: "My_Team" is not the name of a namespace; use a-z, 0-9 and -`},
		{"value of a label", strings.Replace(app, "name: shop", "name: shop\n  labels: {team: a b}", 1), 1, `metadata.labels[team]: "a b" is not the value of a label; use at most 63`},
		{"label that is a number", strings.Replace(app, "name: shop", "name: shop\n  labels: {team: 1}", 1), 1, `metadata.labels[team]: 1 is a whole number; write text`},
		{"key of a label", strings.Replace(app, "name: shop", "name: shop\n  labels: {my team: a}", 1), 1, `metadata.labels[my team]: "my team" is not a key; write one such as team or example.com/team`},
		{"key of an annotation", strings.Replace(app, "name: shop", "name: shop\n  annotations: {a/b/c: a}", 1), 1, `metadata.annotations[a/b/c]: "a/b/c" is not a key; write one such as team or example.com/team`},
		{"annotations of 256 KiB and a byte", strings.Replace(app, "name: shop", "name: shop\n  annotations: {a: "+strings.Repeat("x", 256<<10)+"}", 1), 1, `metadata.annotations: there are 262145 bytes, more than 262144; shorten them`},
		{"annotations of 256 KiB", strings.Replace(app, "name: shop", "name: shop\n  annotations: {a: "+strings.Repeat("x", 256<<10-1)+"}", 1), 1, ""},
		{"metadata with a typing error", strings.Replace(app, "name: shop", "name: shop\n  lables: {a: b}", 1), 1, `metadata.lables: there is no such field; did you mean labels?`},
		{"metadata of the server", strings.Replace(app, "name: shop", "name: shop\n  uid: a\n  creationTimestamp: null", 1), 1, ""},
		{"too large", "# " + strings.Repeat("x", 3<<20), 1, "the file has 3145730 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			documents := validate.File([]byte(row.text))
			if len(documents) != row.documents {
				t.Fatalf("%d documents", len(documents))
			}
			var all []string
			for _, document := range documents {
				for _, problem := range document.Problems {
					all = append(all, problem.String())
				}
			}
			text := strings.Join(all, "\n")
			if row.problem == "" && text != "" || !strings.Contains(text, row.problem) {
				t.Fatalf("%s", text)
			}
		})
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("apiVersion: apps.roost.dev/v1alpha1\nkind: App\nmetadata: {name: shop}\nspec: {image: a:1}\n"))
	f.Add([]byte("kind: Dunlin\nspec: {config: {a: [1, {b: null}]}, nats: 1}\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, document := range validate.File(content) {
			if (len(document.Problems) == 0) != (document.App != nil || document.Dunlin != nil) {
				t.Fatalf("%+v", document)
			}
		}
	})
}
