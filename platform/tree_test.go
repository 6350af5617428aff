// Package platform holds checks of the platform's source tree.
package platform

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	fileLinesMax     = 500
	functionLinesMax = 70
)

// sources are the Go files, but for generated ones and the module of proofs.
func sources(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		isSource := strings.HasSuffix(path, ".go") && !strings.HasPrefix(filepath.Base(path), "zz_generated")
		if err == nil && isSource && !strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return files
}

func TestFilesAndFunctionsAreSmall(t *testing.T) {
	for _, file := range sources(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(text, []byte("\n")); lines > fileLinesMax {
			t.Errorf("%s has %d lines, more than %d; split it by concern", file, lines, fileLinesMax)
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			function, isFunction := declaration.(*ast.FuncDecl)
			if !isFunction {
				continue
			}
			if lines := set.Position(function.End()).Line - set.Position(function.Pos()).Line + 1; lines > functionLinesMax {
				t.Errorf("%s: %s has %d lines, more than %d", file, function.Name.Name, lines, functionLinesMax)
			}
		}
	}
}

// What is rendered and reconciled is a function of its input: no clock, no chance, no files, no network.
func TestPurePackagesDoNoIO(t *testing.T) {
	banned := []string{"time", "os", "net", "net/http", "crypto/rand", "math/rand", "math/rand/v2", "io/ioutil", "os/exec", "sync"}
	for _, file := range sources(t) {
		folder, _, _ := strings.Cut(filepath.ToSlash(file), "/")
		if folder != "render" && folder != "dotenv" && folder != "reconcile" {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range parsed.Imports {
			for _, name := range banned {
				if imported.Path.Value == `"`+name+`"` {
					t.Errorf("%s imports %s", file, name)
				}
			}
		}
	}
}

func TestEachDependencyHasItsReason(t *testing.T) {
	module, page := read(t, "go.mod"), read(t, "docs/dependencies.md")
	direct := 0
	for line := range strings.Lines(module) {
		name, version, isRequired := strings.Cut(strings.TrimSpace(line), " v")
		if !isRequired || strings.Contains(version, "// indirect") {
			continue
		}
		direct++
		if !strings.Contains(page, "| `"+name+"` |") {
			t.Errorf("docs/dependencies.md does not say why %s is here", name)
		}
	}
	if rows := strings.Count(page, "\n| `"); rows != direct || direct == 0 {
		t.Errorf("docs/dependencies.md has %d rows for %d dependencies", rows, direct)
	}
}

func TestTheReadmeNamesEachFolder(t *testing.T) {
	readme := read(t, "README.md")
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() && !strings.Contains(readme, "| `"+entry.Name()+"/` |") {
			t.Errorf("README.md does not name %s/", entry.Name())
		}
	}
	for line := range strings.Lines(readme) {
		name, _, isRow := strings.Cut(strings.TrimPrefix(line, "| `"), "/` |")
		if isRow && strings.HasPrefix(line, "| `") {
			if _, err := os.Stat(name); err != nil {
				t.Errorf("README.md names %s, which does not exist", name)
			}
		}
	}
}

// TestTheAcceptancePageNamesRealTests looks for the functions that docs/acceptance.md names.
func TestTheAcceptancePageNamesRealTests(t *testing.T) {
	files, err := filepath.Glob("*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := ""
	for _, file := range files {
		declared += read(t, file)
	}
	page := read(t, "docs/acceptance.md")
	names := regexp.MustCompile(`Test[A-Z][A-Za-z]+`).FindAllString(page, -1)
	for _, name := range names {
		if !strings.Contains(declared, "func "+name+"(t *testing.T)") {
			t.Errorf("docs/acceptance.md names %s, which is no test", name)
		}
	}
	if rows := len(regexp.MustCompile(`(?m)^\| \d+ \|`).FindAllString(page, -1)); rows != 23 || len(names) < 20 {
		t.Errorf("docs/acceptance.md has %d lines and names %d tests", rows, len(names))
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
