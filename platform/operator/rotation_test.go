package operator_test

import (
	"os"
	"testing"
	"time"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// TestAKeyIsReplacedWithoutARestart goes through the steps of `roost help secrets rotate`. After each step, the operator and all
// recipients can decrypt the file, and no pod restarts.
func TestAKeyIsReplacedWithoutARestart(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "rotation")
	replacement, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	old := world.identity
	const text = "LOG_LEVEL=info\nTOKEN=c4n4ry\n"
	content := world.sealed(text, old)
	app := world.app("shop")
	app.Spec.EnvFiles = v1alpha1.EnvFiles{"shop.env"}
	world.create(app)
	rotated := func(recipients []*age.X25519Identity, identity age.Identity, withNewDataKey bool) {
		t.Helper()
		var names []string
		for _, recipient := range recipients {
			names = append(names, recipient.Recipient().String())
		}
		fresh, err := settings.Rotate([]byte(content), []age.Identity{identity}, settings.Rotation{
			Recipients: names, WithNewDataKey: withNewDataKey, Now: time.Unix(1_000_000_100, 0),
		})
		if err != nil {
			t.Fatal(err)
		}
		content = string(fresh)
	}
	held := func(identities ...*age.X25519Identity) {
		t.Helper()
		lines := ""
		for _, identity := range identities {
			lines += identity.String() + "\n"
		}
		if err := os.WriteFile(world.operator.IdentityFile, []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var before any
	for _, step := range []struct {
		name    string
		change  func()
		holders []*age.X25519Identity
	}{
		{"at first", func() {}, []*age.X25519Identity{old}},
		{"with a second recipient", func() { rotated([]*age.X25519Identity{old, replacement}, old, false) }, []*age.X25519Identity{old, replacement}},
		{"with both age identities", func() { held(old, replacement) }, []*age.X25519Identity{old, replacement}},
		{"with the new recipient", func() { rotated([]*age.X25519Identity{replacement}, replacement, true) }, []*age.X25519Identity{replacement}},
		{"with the new age identity", func() { held(replacement) }, []*age.X25519Identity{replacement}},
	} {
		step.change()
		for _, holder := range step.holders {
			if _, err := settings.Decrypt([]byte(content), []age.Identity{holder}); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		}
		world.switchFiles(app, world.written("shop", "shop.env", content))
		world.converge("App", "shop")
		if status, message := world.status(app); status != well {
			t.Errorf("%s: %s\n%s", step.name, status, message)
		}
		if before == nil {
			before = world.template("shop")
		}
		if !equality.Semantic.DeepEqual(world.template("shop"), before) {
			t.Errorf("%s: the pods would restart", step.name)
		}
	}
	if _, err := settings.Decrypt([]byte(content), []age.Identity{old}); err == nil {
		t.Error("the old age identity decrypts what was rotated with a new data key")
	}
}
