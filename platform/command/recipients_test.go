package command_test

import (
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/command"
)

// TestRecipientsByFolder follows docs/identities.md: a namespace's identity decrypts the files of its folder, and no others.
func TestRecipientsByFolder(t *testing.T) {
	person := newPerson(t)
	person.repository()
	keys := map[string]string{}
	for _, name := range []string{"staging", "production"} {
		key, _ := person.roost(command.ExitFine, "secrets", "keygen", "@"+name+".txt")
		keys[name] = strings.TrimSpace(key)
		if !strings.HasPrefix(key, "age1") || !strings.Contains(person.read(name+".txt"), "AGE-SECRET-KEY-1") {
			t.Fatalf("%s: %s", name, key)
		}
	}
	_, stderr := person.roost(command.ExitFailed, "secrets", "keygen", "@staging.txt")
	contains(t, stderr, "already exists; choose another name")
	alone := person.read("apps/roost.yaml")
	you := alone[strings.Index(alone, "- ")+2 : len(alone)-1]
	folder := func(name string, recipients ...string) string {
		return "  " + name + ": { recipients: [" + strings.Join(recipients, ", ") + "] }\n"
	}
	for _, file := range []string{"apps/staging/shop.env", "apps/production/shop.env", "apps/production/inner/shop.env"} {
		person.write(file, "TOKEN="+canary+"\n")
	}
	person.write("apps/roost.yaml", alone+"folders:\n"+folder("staging", you, keys["staging"])+folder("production", you)+folder("production/inner", you, keys["production"]))
	for _, file := range []string{"@apps/staging/shop.env", "@apps/production/shop.env", "@apps/production/inner/shop.env"} {
		person.roost(command.ExitFine, "secrets", "encrypt", file)
	}
	person.roost(command.ExitFine, "secrets", "check", "@apps")
	decrypts := func(identity, file string, code int) {
		t.Helper()
		out, _ := person.roost(code, "secrets", "check", "--identity", "@"+identity+".txt", "@apps/"+file)
		if code == command.ExitFound {
			contains(t, out, "no age identity decrypts the file")
		}
	}
	decrypts("staging", "staging/shop.env", command.ExitFine)
	decrypts("staging", "production/inner/shop.env", command.ExitFound)
	decrypts("staging", "shop.env", command.ExitFound)
	decrypts("production", "production/inner/shop.env", command.ExitFine)
	decrypts("production", "production/shop.env", command.ExitFound)

	person.write("apps/roost.yaml", alone+"folders:\n"+folder("staging", you, keys["staging"])+folder("production", you, keys["production"]))
	out, _ := person.roost(command.ExitFound, "secrets", "check", "@apps/production/shop.env")
	contains(t, out, "the recipients differ from those in roost.yaml")
	person.roost(command.ExitFine, "secrets", "rotate", "@apps")
	decrypts("production", "production/shop.env", command.ExitFine)
	decrypts("staging", "production/shop.env", command.ExitFound)

	for entry, sentence := range map[string]string{
		folder("stagin", you):      "roost.yaml: folders: stagin does not exist, or is not a folder; create it, or correct the name",
		folder("../apps", you):     `folders: "../apps" is not a folder beside or below roost.yaml`,
		folder("staging"):          "folders: staging has no recipients; write age public keys, or remove the folder",
		"  staging: { people: 1 }": "roost.yaml: ",
	} {
		person.write("apps/roost.yaml", alone+"folders:\n"+entry)
		_, stderr := person.roost(command.ExitFailed, "secrets", "rotate", "@apps/staging")
		contains(t, stderr, sentence)
	}
	if strings.Contains(person.all.String(), canary) || strings.Contains(person.all.String(), "AGE-SECRET-KEY") {
		t.Error("a secret was printed")
	}
}
