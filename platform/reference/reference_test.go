package reference_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/dunlin-project/dunlin/platform/command"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/reference"
	"github.com/dunlin-project/dunlin/platform/validate/problems"
)

var update = flag.Bool("update", false, "write the pages anew")

func pages(t *testing.T) map[string]string {
	t.Helper()
	made := map[string]string{"conditions.md": reference.Conditions(), "commands.md": reference.Commands(command.Root())}
	flags := flag.NewFlagSet("roost-operator", flag.ContinueOnError)
	operator.NewCommandLine(flags)
	made["operator.md"] = reference.OperatorFlags(flags)
	for name, file := range map[string]string{"app.md": "apps.roost.dev_apps.yaml", "dunlin.md": "apps.roost.dev_dunlins.yaml"} {
		text, err := os.ReadFile(filepath.Join("../crd", file))
		if err != nil {
			t.Fatal(err)
		}
		if made[name], err = reference.Kind(text); err != nil {
			t.Fatal(err)
		}
	}
	variables, err := reference.Variables(os.DirFS("../machines"))
	if err != nil {
		t.Fatal(err)
	}
	made["variables.md"] = variables
	return made
}

func TestThePagesAreFresh(t *testing.T) {
	made := pages(t)
	for name, page := range made {
		path := filepath.Join("../docs/reference", name)
		if *update {
			if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if found, err := os.ReadFile(path); err != nil || string(found) != page {
			t.Errorf("%s is not what would be generated; run platform/generate: %v", path, err)
		}
	}
	files, err := filepath.Glob("../docs/reference/*")
	if err != nil || len(files) != len(made) {
		t.Errorf("%d files for %d pages: %v", len(files), len(made), err)
	}
}

// TestThePagesAreWhole looks for a few of what each page must have.
func TestThePagesAreWhole(t *testing.T) {
	made := pages(t)
	for name, parts := range map[string][]string{
		"app.md": {
			"## spec.backup.repository\n", "| `image` * | string |", "write registry/name:tag", "[object](#specautoscaling)", "[list](#specports)",
			"| `port` * | integer |", "set 1024 to 65535", "| `replicas` | integer | The number of pods. 1 without it. | is out of range; set 0 to 100<br>",
		},
		"dunlin.md":    {"## spec.nats\n", "set 1, 3 or 5", "| `config` | object |", "| `trustedProxies` | list of strings |"},
		"commands.md":  {"## roost secrets keygen\n", "\nroost logs -n web shop --follow --since 10m\n", "## roost identity create\n", "| `--role` |", "-n, --namespace", "## roost completion bash\n"},
		"operator.md":  {"| `--lease-seconds` | `12` |", "| `--namespaces` |"},
		"variables.md": {"| `k3s_drain` | `true` |", "| `private_interface` |", "| `firewall_open_ports` | `[22, 80, 443]` |"},
	} {
		for _, part := range parts {
			if !strings.Contains(made[name], part) {
				t.Errorf("%s has no %q", name, part)
			}
		}
	}
	for _, reason := range reconcile.Reasons {
		if !strings.Contains(made["conditions.md"], fmt.Sprintf("| `%s` | ", reason.Reason)) || reason.Meaning == "" || reason.Remedy == "" {
			t.Errorf("%+v", reason)
		}
		for condition := range strings.SplitSeq(reason.Conditions, ", ") {
			name, _, _ := strings.Cut(condition, "=")
			isKnown := false
			for _, known := range reconcile.Conditions {
				isKnown = isKnown || known.Type == name
			}
			if !isKnown {
				t.Errorf("%s: %s is no condition", reason.Reason, condition)
			}
		}
	}
}

// TestThePagesHaveEachMessage looks for the message of each manifest that an API server refuses, in the row of its field.
func TestThePagesHaveEachMessage(t *testing.T) {
	made := pages(t)
	element, quoted := regexp.MustCompile(`\[[^\]]*\]`), regexp.MustCompile(`^("[^"]*"|-?\d+|the range from \d+ to \d+) `)
	found := 0
	for _, row := range problems.Rows(t) {
		if row.Server != "same" {
			continue
		}
		page := made[strings.ToLower(row.Kind)+".md"]
		message := quoted.ReplaceAllString(row.Message, "")
		// `write /shop` ends with the value.
		message, _, _ = strings.Cut(message, "; write /")
		message = strings.ReplaceAll(message, "|", `\|`)
		// A message is in the row of a field, in that of its list or map, or above the table of an object.
		path := element.ReplaceAllString(row.Path, "[]")
		if !isInRow(page, path, message) && !isAbove(page, path, message) {
			t.Errorf("%s: %s, %s: %q is not on the page", row.Name, row.Kind, path, message)
		}
		found++
	}
	if found < 100 {
		t.Errorf("%d messages", found)
	}
}

func section(page, path string) string {
	_, text, _ := strings.Cut(page, "\n## "+path+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

func isInRow(page, path, message string) bool {
	path = strings.TrimSuffix(path, "[]")
	parent, name := path[:max(0, strings.LastIndex(path, "."))], path[strings.LastIndex(path, ".")+1:]
	for line := range strings.Lines(section(page, parent)) {
		if strings.HasPrefix(line, "| `"+name+"`") {
			return strings.Contains(line, message)
		}
	}
	return false
}

func isAbove(page, path, message string) bool {
	above, _, _ := strings.Cut(section(page, path), "| field |")
	return strings.Contains(above, message)
}

func TestWhatIsNotDescribedIsRefused(t *testing.T) {
	text, err := os.ReadFile("../crd/apps.roost.dev_apps.yaml")
	if err != nil {
		t.Fatal(err)
	}
	without := strings.Replace(string(text), "description: Replicas is the number of pods. 1 without it.", "x: x", 1)
	if _, err := reference.Kind([]byte(without)); err == nil || !strings.Contains(err.Error(), "no description: spec.replicas") {
		t.Errorf("%v", err)
	}
	without = strings.Replace(string(text), "fieldPath: .backup.repository.file", "fieldPath: .backup.repository.fil", 1)
	if _, err := reference.Kind([]byte(without)); err == nil || !strings.Contains(err.Error(), "fields that do not exist: spec.backup.repository.fil") {
		t.Errorf("%v", err)
	}
	_, err = reference.Variables(fstest.MapFS{"roles/host/defaults/main.yml": {Data: []byte("---\n# A comment.\n\nhost_name: a\n")}})
	if err == nil || !strings.Contains(err.Error(), "host_name has no comment") {
		t.Errorf("%v", err)
	}
}
