package operator_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// TestWhatIsRenderedOutlivesAnApp deletes Apps with the policy Orphan. Their objects stay, also those of an earlier revision, and also while the
// settings are unreadable. A new App with the same name adopts them, and no pod restarts.
func TestWhatIsRenderedOutlivesAnApp(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "orphans")
	app := world.large()
	world.create(app)
	world.converge("App", "shop")
	good := world.encrypted("shop", "shop.env", "LOG_LEVEL=info\nTOKEN=two\n")
	world.switchFiles(app, good)
	world.converge("App", "shop")
	world.checkOwners("shop", app.UID, false)
	template, names := world.template("shop"), world.names("shop")

	world.setPolicy(app, v1alpha1.DeletionPolicyOrphan, world.written("shop", "shop.env", "not encrypted\n"))
	world.converge("App", "shop")
	if status, message := world.status(app); app.Status.ObservedGeneration != app.Generation || len(world.list("Secret", "shop")) != 2 {
		t.Errorf("%s\n%s", status, message)
	}
	world.checkOwners("shop", app.UID, true)
	world.switchFiles(app, good)
	world.converge("App", "shop")
	world.checkOwners("shop", app.UID, true)

	before := world.uids("shop")
	if err := world.admin.Delete(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	if err := world.pass("App", "shop"); err != nil || !equality.Semantic.DeepEqual(world.uids("shop"), before) {
		t.Fatalf("%v: %s", err, world.names("shop"))
	}

	// The spec is another one, so it has a revision and a migration of its own.
	again := world.large()
	again.Spec.EnvFiles, again.Annotations = app.Spec.EnvFiles, map[string]string{render.AnnotationFiles: good}
	world.create(again)
	world.converge("App", "shop")
	if status, message := world.status(again); status != well {
		t.Errorf("%s\n%s", status, message)
	}
	if !equality.Semantic.DeepEqual(world.template("shop"), template) {
		t.Error("pods would restart though nothing changed")
	}
	world.checkOwners("shop", again.UID, false)
	after := world.uids("shop")
	for name, uid := range before {
		// The migration of a revision that is not desired any more is deleted.
		if after[name] != uid && !strings.HasPrefix(name, "Job/") {
			t.Errorf("%s was made again or deleted; at first there were %s", name, names)
		}
	}
}

// TestWhatIsRenderedOutlivesADunlin does the same for a Dunlin with NATS servers.
func TestWhatIsRenderedOutlivesADunlin(t *testing.T) {
	t.Parallel()
	world := newWorld(t, "orphans-dunlin")
	dunlin := world.clustered("rt")
	dunlin.Spec.DeletionPolicy = v1alpha1.DeletionPolicyOrphan
	world.create(dunlin)
	world.converge("Dunlin", "rt")
	world.checkOwners("rt", dunlin.UID, true)
	before := world.uids("rt")
	if err := world.admin.Delete(t.Context(), dunlin); err != nil {
		t.Fatal(err)
	}
	again := world.clustered("rt")
	world.create(again)
	world.converge("Dunlin", "rt")
	if status, message := world.status(again); status != well {
		t.Errorf("%s\n%s", status, message)
	}
	world.checkOwners("rt", again.UID, false)
	after := world.uids("rt")
	for name, uid := range before {
		if after[name] != uid {
			t.Errorf("%s was made again or deleted", name)
		}
	}
}

func (world *world) setPolicy(app *v1alpha1.App, policy, files string) {
	world.t.Helper()
	if err := world.get(app.Name, app); err != nil {
		world.t.Fatal(err)
	}
	app.Spec.DeletionPolicy = policy
	app.Annotations = map[string]string{render.AnnotationFiles: files}
	world.update(app)
}

// checkOwners checks the owners of all objects of an app except the files, which `roost deploy` writes.
func (world *world) checkOwners(app string, uid types.UID, outlives bool) {
	world.t.Helper()
	count := 0
	for kind := range versions {
		for _, object := range world.list(kind, app) {
			hasReference := len(object.GetOwnerReferences()) > 0
			if !reconcile.IsOwnedBy(object, uid) || hasReference == outlives || outlives != (object.GetAnnotations()[reconcile.AnnotationOwner] != "") {
				world.t.Errorf("%s/%s: %v, %v", kind, object.GetName(), object.GetOwnerReferences(), object.GetAnnotations())
			}
			count++
		}
	}
	if count < 8 {
		world.t.Errorf("%d objects", count)
	}
}

func (world *world) uids(app string) map[string]types.UID {
	world.t.Helper()
	found := map[string]types.UID{}
	for kind := range versions {
		for _, object := range world.list(kind, app) {
			found[kind+"/"+object.GetName()] = object.GetUID()
		}
	}
	return found
}

// clustered returns a Dunlin with two nodes, NATS servers and keys from a file.
func (world *world) clustered(name string) *v1alpha1.Dunlin {
	dunlin := world.dunlin(name)
	dunlin.Spec.Nodes = new(int32(2))
	dunlin.Spec.NATS = &v1alpha1.NATS{Servers: new(int32(3)), Image: "nats:2.15.2"}
	world.keys(dunlin, "api_key=c4n4ry-1\ntoken_hmac_secret_key=c4n4ry-2\nnats_password=c4n4ry-3\n")
	return dunlin
}

// keys encrypts a file and writes it as `roost deploy` does.
func (world *world) keys(dunlin *v1alpha1.Dunlin, text string) {
	world.t.Helper()
	dunlin.Spec.Keys = v1alpha1.Keys{File: "keys.env"}
	dunlin.Annotations = map[string]string{render.AnnotationFiles: world.encrypted(dunlin.Name, "keys.env", text)}
}

var gibibyte = resource.MustParse("1Gi")

func (world *world) dunlin(name string) *v1alpha1.Dunlin {
	return &v1alpha1.Dunlin{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Dunlin"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: world.namespace},
		Spec:       v1alpha1.DunlinSpec{Image: "dunlin:1"},
	}
}
