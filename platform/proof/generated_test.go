package proof

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dunlin-project/dunlin/platform/crd"
)

// TestTheDefinitionsAreThoseOfTheTypes runs controller-gen, which `go tool` builds once.
func TestTheDefinitionsAreThoseOfTheTypes(t *testing.T) {
	folder := t.TempDir()
	command := exec.Command("go", "tool", "controller-gen", "object", "crd",
		"paths=github.com/dunlin-project/dunlin/platform/api/...", "output:dir="+folder)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	entries, err := crd.Files.ReadDir(".")
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	want := map[string]string{"zz_generated.deepcopy.go": "../api/v1alpha1/zz_generated.deepcopy.go"}
	for _, entry := range entries {
		want[entry.Name()] = filepath.Join("../crd", entry.Name())
	}
	for name, committed := range want {
		fresh, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(committed)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(fresh, text) {
			t.Errorf("%s is not what controller-gen writes; run platform/generate", committed)
		}
	}
}
