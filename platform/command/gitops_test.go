package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/command"
)

// TestGitops covers what needs no cluster. platform/proof builds the sample repository with kustomize, and applies it.
func TestGitops(t *testing.T) {
	person := newPerson(t)
	person.repository()
	if err := os.Remove(filepath.Join(person.folder, "apps/first.yaml")); err != nil {
		t.Fatal(err)
	}
	_, stderr := person.roost(command.ExitFound, "gitops", "--check", "@apps")
	contains(t, stderr, "kustomization.yaml is out of date; run `roost gitops ")
	out, _ := person.roost(command.ExitFine, "gitops", "@apps")
	contains(t, out, "apps/kustomization.yaml", "apps/kustomizeconfig.yaml")
	contains(t, person.read("apps/kustomization.yaml"), "- shop.env=shop.env\n", "apps.roost.dev/files: shop-files\n", "apps.roost.dev/files-of: shop\n")
	// The written files are not manifests of the folder, and a second run writes the same.
	out, _ = person.roost(command.ExitFine, "validate", "@apps")
	contains(t, out, "1 manifest, no problem")
	first := person.read("apps/kustomization.yaml")
	person.roost(command.ExitFine, "gitops", "@apps")
	if second := person.read("apps/kustomization.yaml"); second != first {
		t.Errorf("%s became %s", first, second)
	}
	person.roost(command.ExitFine, "gitops", "--check", "@apps")

	// A manifest in its own folder, with a file in a subfolder.
	other := strings.NewReplacer("name: shop", "name: mail", "shop.example.com", "mail.example.com", "shop.env", "env/mail.env").Replace(app)
	person.write("apps/mail/mail.yaml", other)
	person.write("apps/mail/env/mail.env", person.read("apps/shop.env"))
	person.roost(command.ExitFound, "gitops", "--check", "@apps")
	person.roost(command.ExitFine, "gitops", "@apps")
	contains(t, person.read("apps/kustomization.yaml"), "- env..mail.env=mail/env/mail.env\n", "- mail/mail.yaml\n", "- shop.yaml\n")

	for _, row := range []struct {
		name, file, text, sentence string
		code                       int
	}{
		{"an annotation", "apps/mail/mail.yaml", strings.Replace(other, "namespace: web", "namespace: web, annotations: { apps.roost.dev/files: x }", 1),
			"the manifest has the annotation apps.roost.dev/files; remove it", command.ExitFailed},
		{"no namespace", "apps/mail/mail.yaml", strings.Replace(other, ", namespace: web", "", 1), "metadata.namespace is missing; set it", command.ExitFailed},
		{"a problem", "apps/mail/mail.yaml", strings.Replace(other, ":1.4.2", ":latest", 1), "has the tag latest", command.ExitFound},
		{"a kustomization of somebody else", "apps/kustomization.yaml", "resources: []\n", "was not written by `roost gitops`; move it to another folder", command.ExitFailed},
	} {
		before := person.read(row.file)
		person.write(row.file, row.text)
		_, stderr := person.roost(row.code, "gitops", "@apps")
		contains(t, stderr, row.sentence)
		person.write(row.file, before)
	}
	_, stderr = person.roost(command.ExitUsage, "gitops", "@apps/shop.yaml")
	contains(t, stderr, "is not a folder; name the folder of the manifests")
}
