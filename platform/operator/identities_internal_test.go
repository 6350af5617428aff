package operator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
)

// TestANamespaceNamedLikeTheSharedFile has an operator that was given the shared age identity as identity.txt. A namespace `identity` must not get it for
// that reason: it would decrypt the files of all others.
func TestANamespaceNamedLikeTheSharedFile(t *testing.T) {
	folder := t.TempDir()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"identity.txt", "web.txt"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(key.String()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		file, namespace string
		namespaces      []string
		want            string
	}{
		{"identity.txt", "identity", []string{"identity", "web"}, "set --identity to another file, such as " + filepath.Join(folder, "shared.txt")},
		{"./identity.txt", "identity", []string{"identity", "web"}, "set --identity to another file"},
		{"identity.txt", "web", []string{"identity", "web"}, ""},
		{"shared.txt", "identity", []string{"identity", "web"}, ""},
		{"identity.txt", "identity", []string{"identity"}, ""},
	} {
		operator := &Operator{IdentityFile: folder + "/" + row.file, Namespaces: row.namespaces}
		found, err := operator.identities(row.namespace)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if (text == "") != (row.want == "") || !strings.Contains(text, row.want) || (text == "") != (len(found) == 1) {
			t.Errorf("%s in %v with %s: %d, %q", row.namespace, row.namespaces, row.file, len(found), text)
		}
	}
}
