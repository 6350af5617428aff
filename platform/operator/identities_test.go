package operator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/dunlin-project/dunlin/platform/operator"
)

// TestANamespaceIsDecryptedWithItsOwnIdentity has a deployer of the namespace `own-identity` deploy a file of `other-identity`, whose identity the
// same operator has.
func TestANamespaceIsDecryptedWithItsOwnIdentity(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "own-identity")
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, identity *age.X25519Identity) {
		t.Helper()
		path := filepath.Join(filepath.Dir(world.operator.IdentityFile), name)
		if err := os.WriteFile(path, []byte(identity.String()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	app := world.app("shop")
	world.files(app, "TOKEN=c4n4ry\n")
	world.create(app)
	expect := func(when, status string, parts ...string) {
		t.Helper()
		world.converge(operator.KindApp, "shop")
		found, message := world.status(app)
		if !strings.Contains(found, status) {
			t.Errorf("%s: %s: %s", when, found, message)
		}
		for _, part := range parts {
			if !strings.Contains(message, part) {
				t.Errorf("%s: %q is not in %s", when, part, message)
			}
		}
	}
	expect("with one namespace and the shared identity", well)
	world.operator.Namespaces = append(world.operator.Namespaces, "other-identity")
	expect("with two namespaces and the shared identity", "Degraded=True SettingsUnreadable",
		"the operator manages 2 namespaces and has no age identity for own-identity", "add one to its Secret as own-identity.txt")
	file("own-identity.txt", world.identity)
	file("other-identity.txt", other)
	expect("with an identity for each", well)
	world.switchFiles(app, world.written("shop", "shop.env", world.sealed("TOKEN=c4n4ry-of-other\n", other)))
	expect("with the file of the other namespace", "Degraded=True SettingsUnreadable", "no age identity decrypts the file")
	for _, secret := range world.list("Secret", "shop") {
		if data := secret.Object["data"]; strings.Contains(normal(data), "YzRuNHJ5LW9mLW90aGVy") {
			t.Errorf("%s has the value of the other namespace", secret.GetName())
		}
	}
}
