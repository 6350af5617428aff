package command_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/command"
	"github.com/dunlin-project/dunlin/platform/validate"
)

const (
	readme  = "../README.md"
	ofKinds = "../docs/kinds.md"
)

// blocks returns the code blocks of a page in a language.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, part := range strings.Split(string(text), "\n```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		found = append(found, block+"\n")
	}
	return found
}

func TestTheManifestsOfThePageAreRight(t *testing.T) {
	manifests := blocks(t, ofKinds, "yaml")
	manifests = slices.DeleteFunc(manifests, func(text string) bool { return !strings.HasPrefix(text, "apiVersion: ") })
	if len(manifests) != 2 {
		t.Fatalf("%d manifests", len(manifests))
	}
	for _, text := range manifests {
		for _, document := range validate.File([]byte(text)) {
			if len(document.Problems) > 0 {
				t.Errorf("%v\n%s", document.Problems, text)
			}
			if lines := strings.Count(text, "\n"); document.App != nil && lines > 15 {
				t.Errorf("a web app takes %d lines", lines)
			}
		}
	}
}

// The commands of the README run as written, in an empty folder.
func TestTheCommandsOfTheReadmeRun(t *testing.T) {
	person := newPerson(t)
	person.editor("s/change-me/changed/")
	script := blocks(t, readme, "sh")[0]
	t.Chdir(person.folder)
	ran := 0
	for line := range strings.Lines(script) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
		text, target, isRedirected := strings.Cut(line, " > ")
		appended, file, isAppended := strings.Cut(line, " >> ")
		words := strings.Fields(text)
		switch {
		case words[0] == "echo" && isAppended:
			person.write(file, person.read(file)+strings.Trim(strings.TrimPrefix(appended, "echo "), "'")+"\n")
		case words[0] == "echo":
			person.write(target, strings.Trim(strings.TrimPrefix(text, "echo "), "'")+"\n")
		case words[0] == "roost":
			out, _ := person.roost(command.ExitFine, words[1:]...)
			if isRedirected {
				person.write(target, out)
			}
			ran++
		default:
			t.Fatalf("%s", line)
		}
	}
	if ran < 8 || !strings.Contains(person.read("apps/shop.env"), "TOKEN=ENC[") {
		t.Errorf("%d commands", ran)
	}
}

func TestTheKeysOfADunlin(t *testing.T) {
	person := newPerson(t)
	person.roost(command.ExitFine, "init", "@apps", "first")
	person.write("apps/realtime.yaml", manifestOf(t, "Dunlin"))
	out, _ := person.roost(command.ExitFound, "validate", "@apps")
	contains(t, out, `spec.keys.file: "keys.env" does not exist; create it beside the manifest`)

	person.write("apps/keys.env", "api_key="+canary+"\ntoken_hmac_secret_key="+canary+"\n")
	out, _ = person.roost(command.ExitFound, "validate", "@apps")
	contains(t, out, `spec.keys.file: "keys.env" has no encrypted api_key; add it with `, "nats_password")
	person.roost(command.ExitFine, "secrets", "encrypt", "@apps/keys.env")
	out, _ = person.roost(command.ExitFound, "validate", "@apps")
	contains(t, out, `spec.keys.file: "keys.env" has no encrypted nats_password`)
	person.editor("$ a nats_password=c4n4ry@value")
	person.roost(command.ExitFine, "secrets", "edit", "@apps/keys.env")
	out, _ = person.roost(command.ExitFound, "validate", "@apps")
	contains(t, out, `spec.keys.file: "keys.env": nats_password may contain only letters, digits and . _ ~ -, because it becomes part of a URL`)
	person.editor("s/^nats_password=.*/nats_password=c4n4ry-value/")
	person.roost(command.ExitFine, "secrets", "edit", "@apps/keys.env")
	person.roost(command.ExitFine, "validate", "@apps")
	out, _ = person.roost(command.ExitFine, "render", "@apps")
	contains(t, out, "secretName: realtime-keys-")
	if strings.Contains(person.all.String(), canary) {
		t.Error("a key was printed")
	}
}

// manifestOf returns the manifest of a kind on the page of the kinds.
func manifestOf(t *testing.T, kind string) string {
	t.Helper()
	for _, block := range blocks(t, ofKinds, "yaml") {
		if strings.Contains(block, "kind: "+kind+"\n") {
			return block
		}
	}
	t.Fatalf("%s has no manifest of a %s", ofKinds, kind)
	return ""
}
