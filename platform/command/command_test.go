package command_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/dunlin-project/dunlin/platform/command"
	"github.com/dunlin-project/dunlin/platform/dotenv"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// person is a user who works in a folder with an identity.
type person struct {
	t         *testing.T
	folder    string
	variables map[string]string
	// input is standard input.
	input string
	// all is the complete output, to search for secrets.
	all *bytes.Buffer
}

func newPerson(t *testing.T) *person {
	t.Helper()
	folder := t.TempDir()
	variables := map[string]string{"HOME": filepath.Join(folder, "home"), "PATH": os.Getenv("PATH")}
	return &person{t: t, folder: folder, variables: variables, all: &bytes.Buffer{}}
}

// roost runs the command. Arguments that begin with @ are paths in the folder.
func (person *person) roost(exitCode int, arguments ...string) (out, err string) {
	person.t.Helper()
	for index, argument := range arguments {
		if name, isPath := strings.CutPrefix(argument, "@"); isPath {
			arguments[index] = filepath.Join(person.folder, name)
		}
	}
	var stdout, stderr bytes.Buffer
	code := command.Run(arguments, command.Surroundings{
		In: strings.NewReader(person.input), Out: &stdout, Err: &stderr,
		Variable: func(name string) string { return person.variables[name] },
	})
	person.all.Write(stdout.Bytes())
	person.all.Write(stderr.Bytes())
	if code != exitCode {
		person.t.Fatalf("roost %v: exit code %d, expected %d\n%s%s", arguments, code, exitCode, &stdout, &stderr)
	}
	return stdout.String(), stderr.String()
}

func (person *person) write(name, text string) {
	person.t.Helper()
	path := filepath.Join(person.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		person.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		person.t.Fatal(err)
	}
}

func (person *person) read(name string) string {
	person.t.Helper()
	text, err := os.ReadFile(filepath.Join(person.folder, name))
	if err != nil {
		person.t.Fatal(err)
	}
	return string(text)
}

// editor sets $EDITOR to a program that runs a sed script on the file.
func (person *person) editor(script string) {
	person.t.Helper()
	person.editorProgram("exec sed -i '" + script + "' \"$1\"")
}

// editorProgram sets $EDITOR to a shell script that gets the name of the file as its argument.
func (person *person) editorProgram(script string) {
	person.t.Helper()
	person.write("editor", "#!/bin/sh\nprintf '%s\\n' \"$1\" >>\"$(dirname \"$0\")/edited\"\n"+script+"\n")
	path := filepath.Join(person.folder, "editor")
	if err := os.Chmod(path, 0o700); err != nil {
		person.t.Fatal(err)
	}
	person.variables["EDITOR"] = path
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

const app = `apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: { name: shop, namespace: web }
spec:
  image: registry.example.com/shop:1.4.2
  host: shop.example.com
  ports: [{ port: 8080 }]
  health: { path: /healthz }
  envFiles: [shop.env]
`

const canary = "c4n4ry-value"

func (person *person) repository() {
	person.t.Helper()
	person.roost(command.ExitFine, "init", "@apps", "first")
	person.write("apps/shop.yaml", app)
	person.write("apps/shop.env", "LOG_LEVEL=info\nTOKEN="+canary+"\n")
	person.roost(command.ExitFine, "secrets", "encrypt", "@apps/shop.env", "--plain", "^LOG_")
}

func TestFromInitToRender(t *testing.T) {
	person := newPerson(t)
	person.repository()
	out, _ := person.roost(command.ExitFine, "validate", "@apps")
	contains(t, out, "2 manifests, no problem")
	out, stderr := person.roost(command.ExitFine, "render", "@apps/shop.yaml")
	contains(t, out, "kind: Deployment", "LOG_LEVEL: info")
	contains(t, stderr, "omitted: Secret web/shop-env-")
	if strings.Contains(out, "kind: Secret") {
		t.Error("the Secret was printed")
	}
	out, _ = person.roost(command.ExitFine, "render", "-o", "json", "@apps")
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Items) < 10 {
		t.Errorf("%d items, %v", len(list.Items), err)
	}
	person.roost(command.ExitFailed, "init", "@apps", "first")
	info, err := os.Stat(filepath.Join(person.folder, "home/.config/roost/identity.txt"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if strings.Contains(person.all.String(), canary) || strings.Contains(person.all.String(), "AGE-SECRET-KEY") {
		t.Error("a secret was printed")
	}
	out, _ = person.roost(command.ExitFine, "render", "--with-secrets", "@apps/shop.yaml")
	contains(t, out, "kind: Secret", "TOKEN: YzRuNHJ5LXZhbHVl")
}

func TestProblemsOfManifests(t *testing.T) {
	person := newPerson(t)
	person.repository()
	out, stderr := person.roost(command.ExitFine, "validate", "@apps")
	contains(t, out, "no problem")
	contains(t, stderr, "")

	person.write("apps/shop.yaml", strings.Replace(app, ":1.4.2", ":latest", 1)+"  replicas: 200\n")
	out, stderr = person.roost(command.ExitFound, "validate", "@apps")
	contains(t, out, `shop.yaml: spec.image: "registry.example.com/shop:latest" has the tag latest`, "spec.replicas: 200 is out of range")
	contains(t, stderr, "2 problems")
	person.roost(command.ExitFound, "render", "@apps")
	out, _ = person.roost(command.ExitFound, "validate", "-o", "json", "@apps")
	var report struct {
		Problems []struct{ File, Path, Message string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Problems) != 2 || report.Problems[0].Path != "spec.image" {
		t.Errorf("%+v, %v", report, err)
	}

	for name, row := range map[string][2]string{
		"two apps at one host":   {strings.Replace(app, "name: shop", "name: other", 1), "spec.host: App web/"},
		"two apps of a name":     {strings.Replace(app, "shop.example.com", "b.example.com", 1), "metadata.name: App web/shop"},
		"a file that is missing": {strings.NewReplacer("shop.env", "no.env", "shop.example.com", "b.example.com", "name: shop", "name: b").Replace(app), `spec.envFiles[0]: "no.env" does not exist; create it beside the manifest`},
		"a key in two places":    {strings.NewReplacer("shop.example.com", "b.example.com", "name: shop", "name: b").Replace(app) + "  env: { TOKEN: x }\n", "spec.envFiles: spec.env: TOKEN is already set in shop.env"},
	} {
		t.Run(name, func(t *testing.T) {
			person.write("apps/shop.yaml", app)
			person.write("apps/other.yaml", row[0])
			out, _ := person.roost(command.ExitFound, "validate", "@apps")
			contains(t, out, row[1])
		})
	}
}

func TestWithoutTheKey(t *testing.T) {
	person := newPerson(t)
	person.repository()
	home := person.variables["HOME"]
	person.variables["HOME"] = filepath.Join(person.folder, "elsewhere")
	_, stderr := person.roost(command.ExitFine, "validate", "@apps")
	contains(t, stderr, "shop.env is encrypted and was not decrypted")
	_, stderr = person.roost(command.ExitFailed, "render", "@apps")
	contains(t, stderr, "name its file with --identity")

	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	person.write("other.txt", other.String()+"\n")
	out, _ := person.roost(command.ExitFound, "validate", "--identity", "@other.txt", "@apps")
	contains(t, out, "spec.envFiles[0]: shop.env: no age identity decrypts the file, which is encrypted for age1")
	person.variables["ROOST_IDENTITY_FILE"] = filepath.Join(home, ".config/roost/identity.txt")
	person.roost(command.ExitFine, "render", "@apps")
	person.write("broken.txt", "AGE-SECRET-KEY-1BROKEN\n")
	_, stderr = person.roost(command.ExitFailed, "validate", "--identity", "@broken.txt", "@apps")
	if strings.Contains(stderr, "SECRET-KEY") {
		t.Error(stderr)
	}
	person.roost(command.ExitFailed, "validate", "--identity", "@missing.txt", "@apps")
}

func TestDiff(t *testing.T) {
	person := newPerson(t)
	person.repository()
	rendered, _ := person.roost(command.ExitFine, "render", "--with-secrets", "@apps")
	person.all.Reset()
	person.write("live/all.yaml", rendered)
	out, _ := person.roost(command.ExitFine, "diff", "--against", "@live", "@apps")
	contains(t, out, "no difference")

	person.write("apps/shop.yaml", strings.Replace(app, "1.4.2", "1.4.3", 1)+"  replicas: 2\n")
	out, stderr := person.roost(command.ExitFound, "diff", "--against", "@live/all.yaml", "@apps")
	contains(t, out, "~ Deployment web/shop\n", `spec.replicas: 1 -> 2`,
		`spec.template.spec.containers[0].image: "registry.example.com/shop:1.4.2" -> "registry.example.com/shop:1.4.3"`)
	contains(t, stderr, "1 object differs")

	person.editor("s/TOKEN=.*/TOKEN=0ther-c4n4ry-value/")
	person.roost(command.ExitFine, "secrets", "edit", "@apps/shop.env")
	out, _ = person.roost(command.ExitFound, "diff", "-o", "json", "--against", "@live", "@apps")
	var found []struct{ Object, Change string }
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found) != 5 {
		t.Errorf("%+v, %v", found, err)
	}

	tampered := strings.Replace(person.read("live/all.yaml"), "TOKEN: YzRuNHJ5LXZhbHVl", "TOKEN: b2xk", 1)
	person.write("live/all.yaml", tampered)
	person.editor("s/TOKEN=.*/TOKEN=" + canary + "/")
	person.roost(command.ExitFine, "secrets", "edit", "@apps/shop.env")
	out, _ = person.roost(command.ExitFound, "diff", "--against", "@live", "@apps")
	contains(t, out, "~ Secret web/shop-env-", `data.TOKEN: "(hidden)" -> "(hidden)"`)
	for _, secret := range []string{canary, "YzRuNHJ5LXZhbHVl", "b2xk"} {
		if strings.Contains(person.all.String(), secret) {
			t.Errorf("%s was printed", secret)
		}
	}
}

// The terminal sends signals to the editor and to roost, which runs in the process of this test.
func TestSignalsLeaveNoDecryptedText(t *testing.T) {
	person := newPerson(t)
	person.repository()
	before := person.read("apps/shop.env")
	person.editorProgram("kill -INT $PPID; exec sed -i 's/^TOKEN=.*/TOKEN=new/' \"$1\"")
	person.roost(command.ExitFine, "secrets", "edit", "@apps/shop.env")
	after := person.read("apps/shop.env")
	if after == before {
		t.Error("the editor went on after SIGINT, and its text was not written")
	}
	for _, signal := range []string{"TERM", "HUP"} {
		person.editorProgram("trap 'exit 0' " + signal + "; echo TOKEN=other >\"$1\"; kill -" + signal + " $PPID; for look in $(seq 600); do sleep 0.1; done; exit 9")
		_, stderr := person.roost(command.ExitFailed, "secrets", "edit", "@apps/shop.env")
		contains(t, stderr, "roost received the signal", "nothing is written")
	}
	if person.read("apps/shop.env") != after {
		t.Error("the text of an editor that was ended is written")
	}
	edited := strings.Fields(person.read("edited"))
	for _, path := range edited {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is there still", path)
		}
	}
	if len(edited) < 3 {
		t.Errorf("%q", edited)
	}
}

func TestEdit(t *testing.T) {
	person := newPerson(t)
	person.repository()
	before := person.read("apps/shop.env")
	person.editor("s/x/x/")
	_, stderr := person.roost(command.ExitFine, "secrets", "edit", "@apps/shop.env")
	contains(t, stderr, "no change")
	if person.read("apps/shop.env") != before {
		t.Error("a file without a change was written")
	}
	// The first run breaks the file. The second run, with the same script, does not change it, which means to give up.
	person.editor("s/^TOKEN=/TOKEN = /")
	_, stderr = person.roost(command.ExitFailed, "secrets", "edit", "@apps/shop.env")
	contains(t, stderr, "there is a space before `=`", "To cancel, leave the text unchanged")
	if person.read("apps/shop.env") != before {
		t.Error("a broken file was written")
	}
	person.editor("s/^TOKEN=.*/TOKEN='ENC['/")
	_, stderr = person.roost(command.ExitFailed, "secrets", "edit", "@apps/shop.env")
	contains(t, stderr, "begins with ENC[")
	person.variables["EDITOR"] = "false"
	person.roost(command.ExitFailed, "secrets", "edit", "@apps/shop.env")
	person.variables["EDITOR"] = ""
	_, stderr = person.roost(command.ExitFailed, "secrets", "edit", "@apps/shop.env")
	contains(t, stderr, "$EDITOR is not set")
	if person.read("apps/shop.env") != before {
		t.Error("the file was changed")
	}
	for _, path := range strings.Fields(person.read("edited")) {
		if _, err := os.Stat(path); err == nil || !strings.HasPrefix(path, "/dev/shm/") {
			t.Errorf("%s is there still, or was not in memory", path)
		}
	}
	left, err := filepath.Glob(filepath.Join(person.folder, "apps/.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestEditOfAValueWithoutASharedForm edits a file of an earlier version.
func TestEditOfAValueWithoutASharedForm(t *testing.T) {
	person := newPerson(t)
	person.repository()
	recipients, err := settings.RecipientsOf([]byte(person.read("apps/shop.env")))
	if err != nil {
		t.Fatal(err)
	}
	lines := []dotenv.Line{{Key: "ODD", Value: "it's $5\nand a "}, {Key: "KEY", Value: "1\n2"}, {Key: "TOKEN", Value: "old"}}
	sealed, err := settings.Encrypt(lines, settings.Options{Recipients: recipients, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	person.write("apps/shop.env", string(sealed))
	person.editor("s/^TOKEN=old/TOKEN=new/")
	person.roost(command.ExitFine, "secrets", "edit", "@apps/shop.env")
	person.editorProgram(`cat "$1" >"$(dirname "$0")/shown"`)
	person.roost(command.ExitFine, "secrets", "edit", "@apps/shop.env")
	if shown := person.read("shown"); shown != "ODD=\"it's \\$5\\nand a \"\nKEY='1\n2'\nTOKEN=new\n" {
		t.Errorf("%q", shown)
	}
	person.editor("s/^ODD=.*/ODD=\"other \\$6\"/")
	_, stderr := person.roost(command.ExitFailed, "secrets", "edit", "@apps/shop.env")
	contains(t, stderr, "line 1: a $, a backtick or a backslash is in double quotes", "use single quotes")
}

func TestEncryptAndCheck(t *testing.T) {
	person := newPerson(t)
	person.repository()
	_, stderr := person.roost(command.ExitFailed, "secrets", "encrypt", "@apps/shop.env")
	contains(t, stderr, "already encrypted")
	out, _ := person.roost(command.ExitFine, "secrets", "check", "@apps")
	contains(t, out, "shop.env: encrypted for 1 recipient, decrypted")

	person.write("apps/plain.env", "LOG_LEVEL=info\n")
	person.write("apps/leak.env", "A=1\nDB_PASSWORD="+canary+"\n")
	person.write("apps/cut.env", person.read("apps/shop.env")[:60])
	person.write("apps/wrong.env", "A = 1\n")
	out, stderr = person.roost(command.ExitFound, "secrets", "check", "@apps")
	contains(t, out, "plain.env: plain", "leak.env: line 2: DB_PASSWORD looks like a secret", "cut.env: the value of TOKEN begins with ENC[", "wrong.env: line 1: there is a space before `=`")
	contains(t, stderr, "3 problems")
	out, _ = person.roost(command.ExitFound, "secrets", "check", "-o", "json", "@apps")
	var states []map[string]any
	if err := json.Unmarshal([]byte(out), &states); err != nil || len(states) != 5 {
		t.Errorf("%v, %v", states, err)
	}
	if strings.Contains(person.all.String(), canary) {
		t.Error("a secret was printed")
	}
}

func TestNamesInTheRepositoryFileAreChecked(t *testing.T) {
	person := newPerson(t)
	person.repository()
	whole := person.read("apps/roost.yaml")
	for added, sentence := range map[string]string{
		"cluster: { ingressClass: My_Class }":              `roost.yaml: cluster.ingressClass: "My_Class" is not the name of an IngressClass; use a-z, 0-9, - and .`,
		"cluster: { monitoringNamespace: a.b }":            `roost.yaml: cluster.monitoringNamespace: "a.b" is not the name of a namespace; use a-z, 0-9 and -`,
		"cluster: { backupImage: registry.example.com/b }": `roost.yaml: cluster.backupImage: "registry.example.com/b" has no tag and no digest`,
		"plainKeys: !PUBLIC_":                              "roost.yaml: plainKeys: the value begins with !",
		"cluster: { ingressClass: nginx }":                 "",
	} {
		person.write("apps/roost.yaml", whole+added+"\n")
		if sentence == "" {
			person.roost(command.ExitFine, "validate", "@apps")
			continue
		}
		_, stderr := person.roost(command.ExitFailed, "validate", "@apps")
		contains(t, stderr, sentence)
	}
}

func TestRotate(t *testing.T) {
	person := newPerson(t)
	person.repository()
	hash, _ := person.roost(command.ExitFine, "render", "@apps/shop.yaml")
	colleague, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	person.write("colleague.txt", colleague.String()+"\n")
	alone := person.read("apps/roost.yaml")
	person.write("apps/roost.yaml", alone+"- "+colleague.Recipient().String()+"\n")
	out, _ := person.roost(command.ExitFound, "secrets", "check", "@apps")
	contains(t, out, "the recipients differ from those in roost.yaml; run `roost secrets rotate ")
	person.roost(command.ExitFine, "secrets", "rotate", "@apps")
	person.roost(command.ExitFine, "secrets", "check", "@apps")
	person.roost(command.ExitFine, "secrets", "check", "--identity", "@colleague.txt", "@apps")
	if after, _ := person.roost(command.ExitFine, "render", "@apps/shop.yaml"); after != hash {
		t.Error("a rotation changes what is rendered")
	}
	person.write("apps/roost.yaml", alone)
	person.roost(command.ExitFine, "secrets", "rotate", "--new-data-key", "@apps")
	out, _ = person.roost(command.ExitFound, "secrets", "check", "--identity", "@colleague.txt", "@apps")
	contains(t, out, "no age identity decrypts the file")
	recipients, err := settings.RecipientsOf([]byte(person.read("apps/shop.env")))
	if err != nil || len(recipients) != 1 || slices.Contains(recipients, colleague.Recipient().String()) {
		t.Errorf("%v, %v", recipients, err)
	}
	person.roost(command.ExitFailed, "secrets", "rotate", "@apps/roost.yaml")
}

func TestUsage(t *testing.T) {
	person := newPerson(t)
	for _, arguments := range [][]string{
		{"dance"}, {"validate"}, {"render"}, {"diff", "x.yaml"}, {"validate", "--wrong", "x"}, {"validate", "-o", "xml", "x"},
		{"secrets", "dance"}, {"secrets", "edit"}, {"secrets", "encrypt", "a", "b"}, {"init", "x"}, {"init", "x", "y", "--kind", "job"},
	} {
		_, stderr := person.roost(command.ExitUsage, arguments...)
		contains(t, stderr, "roost: ")
	}
	person.roost(command.ExitFailed, "validate", "@missing.yaml")
	person.write("empty/x.txt", "")
	_, stderr := person.roost(command.ExitFailed, "validate", "@empty")
	contains(t, stderr, "has no manifest of apps.roost.dev/v1alpha1")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, _ := person.roost(command.ExitFine, "completion", shell); !strings.Contains(out, "roost") {
			t.Errorf("%s: %s", shell, out)
		}
	}
	for _, arguments := range [][]string{{}, {"help"}, {"secrets"}, {"help", "diff"}} {
		if out, _ := person.roost(command.ExitFine, arguments...); len(out) < 100 {
			t.Errorf("%v: %s", arguments, out)
		}
	}
}

// The output of init is valid for all names that the rules admit. Other names are refused with a message.
func TestInit(t *testing.T) {
	person := newPerson(t)
	for index, kind := range []string{"app", "dunlin"} {
		person.roost(command.ExitFine, "init", fmt.Sprintf("@%d", index), "realtime", "--kind", kind, "--namespace", "web", "--image", "r.example.com/a:1", "--host", "a.example.com")
		person.roost(command.ExitFine, "validate", fmt.Sprintf("@%d", index))
	}
	out, _ := person.roost(command.ExitFound, "init", "@9", "shop", "--image", "shop:latest")
	contains(t, out, `spec.image: "shop:latest" has the tag latest`)
	if _, err := os.Stat(filepath.Join(person.folder, "9")); err == nil {
		t.Error("something was written")
	}
}

// TestJSONOfChanges checks that each command that writes files prints them as JSON, without secrets.
func TestJSONOfChanges(t *testing.T) {
	person := newPerson(t)
	var made struct {
		Written   []string
		Recipient string
		Problems  []struct{ Path, Message string }
	}
	person.json(command.ExitFound, &made, "init", "@apps", "first", "--image", "shop:latest")
	if len(made.Written) != 0 || len(made.Problems) != 1 || made.Problems[0].Path != "spec.image" {
		t.Errorf("%+v", made)
	}
	made.Problems = nil
	person.json(command.ExitFine, &made, "init", "@apps", "first")
	want := []string{"home/.config/roost/identity.txt", "apps/first.yaml", "apps/roost.yaml"}
	for index, path := range want {
		if len(made.Written) != len(want) || made.Written[index] != filepath.Join(person.folder, path) || !strings.HasPrefix(made.Recipient, "age1") {
			t.Fatalf("%+v", made)
		}
	}
	person.json(command.ExitFine, &made, "init", "@apps", "second")
	if len(made.Written) != 1 {
		t.Errorf("%+v", made)
	}

	person.write("apps/shop.yaml", app)
	person.write("apps/shop.env", "LOG_LEVEL=info\nTOKEN="+canary+"\n")
	person.write("apps/other.env", "TOKEN="+canary+"\n")
	for _, row := range []struct {
		editor  string
		changed []bool
		command []string
	}{
		{"", []bool{true}, []string{"encrypt", "@apps/shop.env", "--plain", "^LOG_"}},
		{"", []bool{true}, []string{"encrypt", "@apps/other.env"}},
		{"s/x/x/", []bool{false}, []string{"edit", "@apps/shop.env"}},
		{"s/info/debug/", []bool{true}, []string{"edit", "@apps/shop.env"}},
		{"", []bool{true, true}, []string{"rotate", "@apps"}},
	} {
		if row.editor != "" {
			person.editor(row.editor)
		}
		var changes []struct {
			File       string
			Changed    bool
			Recipients []string
		}
		person.json(command.ExitFine, &changes, append([]string{"secrets"}, row.command...)...)
		if len(changes) != len(row.changed) {
			t.Fatalf("%v: %+v", row.command, changes)
		}
		for index, change := range changes {
			isNamed := strings.HasSuffix(change.File, ".env") && filepath.IsAbs(change.File)
			if change.Changed != row.changed[index] || !isNamed || !slices.Equal(change.Recipients, []string{made.Recipient}) {
				t.Errorf("%v: %+v", row.command, change)
			}
		}
	}
	if strings.Contains(person.all.String(), canary) || strings.Contains(person.all.String(), "AGE-SECRET-KEY") {
		t.Error("a secret was printed")
	}
}

// json runs a command with -o json, and reads all of its standard output.
func (person *person) json(exitCode int, into any, arguments ...string) {
	person.t.Helper()
	out, _ := person.roost(exitCode, append(arguments, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		person.t.Fatalf("%v: %v\n%s", arguments, err, out)
	}
}
