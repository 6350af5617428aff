package operator_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

func (world *world) createSecret(name string, labels map[string]string) *corev1.Secret {
	world.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: world.namespace, Labels: labels}, Data: map[string][]byte{
		"api_key": []byte("c4n4ry-api"), "token_hmac_secret_key": []byte("c4n4ry-token"), "nats_password": []byte("c4n4ry-nats"),
	}}
	world.create(secret)
	return secret
}

// TestADunlinCannotReadAnySecret names Secrets of users, and one that the operator has created for an App.
func TestADunlinCannotReadAnySecret(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "foreign-keys")
	app := world.app("shop")
	world.files(app, "TOKEN=c4n4ry\n")
	world.create(app)
	world.converge("App", "shop")
	ofApp := world.list("Secret", "shop")[0].GetName()
	database := world.createSecret("database", nil)
	world.createSecret("refused", map[string]string{render.LabelUsable: "false"})

	dunlin := &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Name: "realtime", Namespace: world.namespace}}
	dunlin.Spec.Image, dunlin.Spec.Keys.Secret = "dunlin:1", "missing"
	world.create(dunlin)
	for name, sentence := range map[string]string{
		"missing":  "spec.keys.secret: the Secret missing does not exist; create it, and label it: kubectl -n foreign-keys label secret missing apps.roost.dev/usable=true",
		"database": "spec.keys.secret: the Secret database has no label apps.roost.dev/usable=true, so no Dunlin may use it; to allow it, label it: kubectl -n foreign-keys label secret database apps.roost.dev/usable=true",
		"refused":  "the Secret refused has no label",
		ofApp:      "the Secret " + ofApp + " has no label",
	} {
		world.setKeys(dunlin, name)
		status, message := world.status(dunlin)
		if !strings.Contains(status, "Degraded=True SecretRefused") || !strings.Contains(message, sentence) {
			t.Errorf("%s: %s\n%s", name, status, message)
		}
		if names := world.names("realtime"); names != "" {
			t.Errorf("%s: %s was written", name, names)
		}
	}
	database.Labels = map[string]string{render.LabelUsable: "true"}
	world.update(database)
	world.setKeys(dunlin, "database")
	if status, message := world.status(dunlin); status != well {
		t.Errorf("%s\n%s", status, message)
	}

	// Pods that run go on, but nothing is changed for a Secret that is not usable any more.
	before := world.names("realtime")
	database.Labels = nil
	world.update(database)
	world.converge("Dunlin", "realtime")
	status, _ := world.status(dunlin)
	if !strings.Contains(status, "Degraded=True SecretRefused") || !strings.Contains(status, "Ready=True") || world.names("realtime") != before {
		t.Errorf("%s\n%s", status, world.names("realtime"))
	}
}

func (world *world) setKeys(dunlin *v1alpha1.Dunlin, secret string) {
	world.t.Helper()
	if err := world.get(dunlin.Name, dunlin); err != nil {
		world.t.Fatal(err)
	}
	dunlin.Spec.Keys.Secret = secret
	world.update(dunlin)
	world.converge("Dunlin", dunlin.Name)
}
