package platform

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheSizesOfTablesAreThoseOfTheDocuments compares docs/proofs.md with the tables themselves.
func TestTheSizesOfTablesAreThoseOfTheDocuments(t *testing.T) {
	text, err := os.ReadFile("docs/proofs.md")
	if err != nil {
		t.Fatal(err)
	}
	var problems []struct{ Server string }
	var readings []any
	readJSON(t, "validate/problems/problems.json", &problems)
	readJSON(t, "dotenv/testdata/readers.json", &readings)
	same, refused := 0, 0
	for _, problem := range problems {
		switch problem.Server {
		case "same":
			same++
		case "refuses":
			refused++
		}
	}
	golden, err := filepath.Glob("render/testdata/golden/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Glob("watching/rules/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, file := range rules {
		rule, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		alerts += strings.Count(string(rule), "- alert: ")
	}
	resources, verbs := rowsOf(t, "command/identity_test.go", "rights"), rowsOf(t, "command/identity_test.go", "verbs")
	for _, sentence := range []string{
		fmt.Sprintf("| %d rights (%d resources, %d verbs, 2 namespaces) ", resources*verbs*2, resources, verbs),
		fmt.Sprintf("A table of %d messages. For %d of them, a real API server answers with the same message, and for %d with its own. The other %d ",
			len(problems), same, refused, len(problems)-same-refused),
		fmt.Sprintf("| %d golden files. ", len(golden)),
		fmt.Sprintf("| %d cases end ", len(golden)),
		fmt.Sprintf("A table of %d rows, %d of them with what the three programs make of the text", rowsOf(t, "dotenv/dotenv_test.go", "rows", "differing"), len(readings)),
		fmt.Sprintf("promtool on %d alerts", alerts),
	} {
		if !strings.Contains(string(text), sentence) {
			t.Errorf("docs/proofs.md has no %q", sentence)
		}
	}
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// rowsOf returns the number of elements of some variables of a file.
func rowsOf(t *testing.T, path string, names ...string) int {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, isValue := node.(*ast.ValueSpec)
		if !isValue || len(spec.Values) != 1 {
			return true
		}
		for _, name := range names {
			if list, isList := spec.Values[0].(*ast.CompositeLit); isList && spec.Names[0].Name == name {
				count += len(list.Elts)
			}
		}
		return true
	})
	return count
}
