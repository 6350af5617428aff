package command

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The Secret of the operator is created once. If it contained a public key, nothing could ever be decrypted.
func TestTheOperatorGetsNoFileThatIsNoAgeIdentity(t *testing.T) {
	for _, text := range []string{"", "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p\n"} {
		path := filepath.Join(t.TempDir(), "identity.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run := &bootstrap{program: &program{identity: path, Surroundings: Surroundings{Variable: func(string) string { return "" }}}, folder: t.TempDir()}
		run.config.Operator = []string{"missing.yaml"}
		if err := run.makeOperator(context.Background()); err == nil || !strings.Contains(err.Error(), "is not a file of age identities") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
