package reference_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/dunlin-project/dunlin/platform/command"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/reference"
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
		"commands.md":  {"## roost secrets keygen\n", "## roost identity create\n", "| `--role` |", "-n, --namespace", "## roost completion bash\n"},
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

func TestWhatIsNotDescribedIsRefused(t *testing.T) {
	text, err := os.ReadFile("../crd/apps.roost.dev_apps.yaml")
	if err != nil {
		t.Fatal(err)
	}
	without := strings.Replace(string(text), "description: Replicas is the number of pods. 1 without it.", "x: x", 1)
	if _, err := reference.Kind([]byte(without)); err == nil || !strings.Contains(err.Error(), "no description: spec.replicas") {
		t.Errorf("%v", err)
	}
	_, err = reference.Variables(fstest.MapFS{"roles/host/defaults/main.yml": {Data: []byte("---\n# A comment.\n\nhost_name: a\n")}})
	if err == nil || !strings.Contains(err.Error(), "host_name has no comment") {
		t.Errorf("%v", err)
	}
}
