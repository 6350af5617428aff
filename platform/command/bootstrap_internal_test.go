package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The Secret of the operator is created once. If it contained a public key, nothing could ever be decrypted.
func TestTheOperatorGetsNoFileThatIsNoAgeIdentity(t *testing.T) {
	for _, text := range []string{"", "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p\n"} {
		path := filepath.Join(t.TempDir(), "identity.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run := &bootstrap{program: &program{identity: path, Surroundings: Surroundings{Variable: func(string) string { return "" }}}, folder: t.TempDir()}
		if _, err := run.readKeys([]string{identityKey}); err == nil || !strings.Contains(err.Error(), "is not a file of age identities") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestNamespacesOfTheOperatorHaveTheirAgeIdentities has the arguments of the operator's Deployment, and the files that its Secret has and gets.
func TestNamespacesOfTheOperatorHaveTheirAgeIdentities(t *testing.T) {
	for _, row := range []struct {
		arguments       []any
		present, added  string
		want, sharedKey string
	}{
		{[]any{"--namespaces=web"}, "", "", "", "identity.txt"},
		{[]any{"--namespaces=web,web"}, "identity.txt", "", "", "identity.txt"},
		{[]any{"--namespaces=identity"}, "identity.txt", "", "", "identity.txt"},
		{[]any{"--namespaces=web", "--identity=/keys/web.txt"}, "", "", "", "web.txt"},
		{[]any{"--namespaces=web,jobs"}, "web.txt", "jobs.txt", "", "identity.txt"},
		{[]any{"--namespaces=web,jobs", "--namespaces", "web"}, "", "", "", "identity.txt"},
		{[]any{"-namespaces", "web,jobs"}, "identity.txt", "jobs.txt", "2 namespaces without an age identity for web; add NAMESPACE.txt", "identity.txt"},
		{[]any{"--namespaces=web,jobs,shop"}, "identity.txt", "", "3 namespaces without an age identity for jobs, shop, web; add NAMESPACE.txt", "identity.txt"},
		{[]any{"--namespaces=web,identity"}, "identity.txt web.txt", "", "the namespace identity would be the file identity.txt, which --identity", "identity.txt"},
		{[]any{"--namespaces=web,identity", "--identity", "/etc/roost/shared.txt"}, "web.txt", "identity.txt", "", "shared.txt"},
	} {
		deployment := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"namespace": operatorNamespace, "name": operatorName},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
				map[string]any{"name": "operator", "args": row.arguments},
			}}}},
		}}
		found, err := operatorArgumentsOf([]*unstructured.Unstructured{{Object: map[string]any{"kind": "Deployment"}}, deployment})
		if err != nil {
			t.Fatal(err)
		}
		present := map[string][]byte{}
		for _, name := range strings.Fields(row.present) {
			present[name] = []byte("AGE-SECRET-KEY-1")
		}
		text := ""
		if err := found.check(strings.Fields(row.added), present); err != nil {
			text = err.Error()
		}
		if found.identityKey != row.sharedKey || (text == "") != (row.want == "") || !strings.Contains(text, row.want) {
			t.Errorf("%v: %s, %q", row.arguments, found.identityKey, text)
		}
	}
}
