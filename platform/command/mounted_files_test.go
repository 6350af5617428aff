package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/command"
)

const mounting = `  files:
  - { file: files/shop.yml, path: /etc/shop/shop.yml }
  - { file: files/tls.key, path: /etc/shop/tls.key }
`

// TestMountedFiles encrypts, edits, rotates and checks a file of spec.files, and renders it.
func TestMountedFiles(t *testing.T) {
	person := newPerson(t)
	person.repository()
	person.write("apps/shop.yaml", app+mounting)
	out, _ := person.roost(command.ExitFound, "validate", "@apps")
	contains(t, out, `spec.files[0].file: "files/shop.yml" does not exist; create it beside the manifest`)
	person.write("apps/files/shop.yml", "a: b\n")
	person.write("apps/files/tls.key", canary+"\n")
	_, stderr := person.roost(command.ExitFine, "secrets", "encrypt", "@apps/files/tls.key")
	contains(t, stderr, "tls.key is encrypted for 1 recipient")
	_, stderr = person.roost(command.ExitFailed, "secrets", "encrypt", "@apps/files/tls.key")
	contains(t, stderr, "tls.key is already encrypted; `roost secrets edit` changes it")
	out, _ = person.roost(command.ExitFine, "secrets", "check", "@apps")
	contains(t, out, "tls.key: encrypted for 1 recipient, decrypted", "shop.env: encrypted for 1 recipient, decrypted")

	out, stderr = person.roost(command.ExitFine, "render", "@apps/shop.yaml")
	contains(t, out, "files..shop.yml: |\n    a: b\n", "mountPath: /etc/shop/tls.key")
	contains(t, stderr, "omitted: Secret web/shop-mounted-")
	before := person.read("apps/files/tls.key")
	person.editor("s/value/other/")
	person.roost(command.ExitFine, "secrets", "edit", "@apps/files/tls.key")
	if person.read("apps/files/tls.key") == before {
		t.Error("the edit has changed nothing")
	}
	person.editor("s/x/x/")
	_, stderr = person.roost(command.ExitFine, "secrets", "edit", "@apps/files/tls.key")
	contains(t, stderr, "tls.key: no change")
	out, _ = person.roost(command.ExitFine, "secrets", "rotate", "-o", "json", "--new-data-key", "@apps")
	var changes []struct{ File string }
	if err := json.Unmarshal([]byte(out), &changes); err != nil || len(changes) != 2 {
		t.Errorf("%s, %v", out, err)
	}
	if strings.Contains(person.all.String(), canary) || strings.Contains(person.all.String(), "c4n4ry-other") {
		t.Error("a secret was printed")
	}
	out, _ = person.roost(command.ExitFine, "render", "--with-secrets", "@apps/shop.yaml")
	contains(t, out, "files..tls.key: YzRuNHJ5LW90aGVyCg==")

	if err := os.Remove(filepath.Join(person.folder, "apps/first.yaml")); err != nil {
		t.Fatal(err)
	}
	person.roost(command.ExitFine, "gitops", "@apps")
	contains(t, person.read("apps/kustomization.yaml"), "- files..shop.yml=files/shop.yml\n", "- files..tls.key=files/tls.key\n", "- shop.env=shop.env\n")

	person.variables["HOME"] = filepath.Join(person.folder, "elsewhere")
	_, stderr = person.roost(command.ExitFine, "validate", "@apps")
	contains(t, stderr, "tls.key is encrypted and was not decrypted")
}

func TestMountedFilesThatAreRefused(t *testing.T) {
	person := newPerson(t)
	person.repository()
	person.write("apps/shop.yaml", app+mounting)
	person.write("apps/files/tls.key", "a")
	for name, row := range map[string][2]string{
		"no text":              {"\xff", `spec.files[0].file: "files/shop.yml" is not UTF-8 text, which a ConfigMap needs; encrypt it with`},
		"YAML of sops":         {"a: ENC[AES256_GCM,data:x]\n", `spec.files[0].file: "files/shop.yml" has values that sops has encrypted`},
		"more than a MiB":      {strings.Repeat("x", 1<<20), "spec.files: the files have 10"},
		"a MiB of line breaks": {strings.Repeat("\n", 700<<10), "spec.files: the files take 14"},
	} {
		t.Run(name, func(t *testing.T) {
			person.write("apps/files/shop.yml", row[0])
			out, _ := person.roost(command.ExitFound, "validate", "@apps")
			contains(t, out, row[1])
		})
	}
}
