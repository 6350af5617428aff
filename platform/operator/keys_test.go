package operator_test

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// TestKeysOfADunlin uses keys with characters that are not allowed in a URL, and then changes each key.
func TestKeysOfADunlin(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "keys")
	dunlin := &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Name: "realtime", Namespace: world.namespace}}
	dunlin.Spec = v1alpha1.DunlinSpec{
		Image: "dunlin:1", Keys: v1alpha1.Keys{File: "keys.env"},
		NATS: &v1alpha1.NATS{Servers: new(int32(3)), Image: "nats:2.15.2"},
	}
	keys := func(api, password string) {
		t.Helper()
		text := "api_key='" + api + "'\ntoken_hmac_secret_key=c4n4ry\nnats_password='" + password + "'\n"
		dunlin.Annotations = map[string]string{render.AnnotationFiles: world.encrypted("realtime", "keys.env", text)}
		if dunlin.UID == "" {
			world.create(dunlin)
		} else {
			world.update(dunlin)
		}
		world.converge("Dunlin", "realtime")
		if err := world.get("realtime", dunlin); err != nil {
			t.Fatal(err)
		}
	}
	template := func(name string) string {
		t.Helper()
		for _, object := range world.list("StatefulSet", "realtime") {
			if object.GetName() == name {
				found, _, _ := unstructured.NestedMap(object.Object, "spec", "template")
				text, err := json.Marshal(found)
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
		}
		return ""
	}
	for _, password := range []string{"c4n4ry@a", "c4n4ry/a", "c4n4ry%a", "c4n4ry:a"} {
		keys("c4n4ry1", password)
		status, message := world.status(dunlin)
		isNamed := strings.Contains(message, "keys.env: nats_password may contain only letters") && strings.Contains(message, "`roost secrets edit`")
		if !strings.Contains(status, "SettingsDecrypted=False SettingsUnreadable") || !isNamed || strings.Contains(message, "c4n4ry") {
			t.Errorf("%s\n%s", status, message)
		}
	}
	if names := world.names("realtime"); strings.Contains(names, "StatefulSet") {
		t.Errorf("%s is there", names)
	}
	keys("c4n4ry1", "c4n4ry-a.b_c~1")
	if status, message := world.status(dunlin); status != well {
		t.Fatalf("%s\n%s", status, message)
	}
	nodes, servers := template("realtime"), template("realtime-nats")
	keys("c4n4ry2", "c4n4ry-a.b_c~1")
	if template("realtime") == nodes || template("realtime-nats") != servers || servers == "" {
		t.Error("a new api_key restarts the nodes, and not the NATS servers")
	}
	nodes = template("realtime")
	keys("c4n4ry2", "c4n4ry3")
	if template("realtime") == nodes || template("realtime-nats") == servers {
		t.Error("a new nats_password restarts both")
	}
}
