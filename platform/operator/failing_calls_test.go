package operator_test

import (
	"fmt"
	"os"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// callsMin is less than the operator needs.
const callsMin = 100

// isWhole reports whether the tests run in their long form, which takes minutes.
func isWhole() bool { return os.Getenv("ROOST_TEST_WHOLE") != "" }

// TestAnErrorAtEachCall makes each call of the operator fail in turn: before the server receives it, and after the server has performed it. The final
// state is the same, with no missing or extra object. The short form uses a fixed sample of the calls.
func TestAnErrorAtEachCall(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		// between is the distance of the calls that fail in the short form.
		between int
		// change makes an object and takes parts of it away, so that there are writes of each kind.
		change func(world *world) client.Object
	}{
		{"app", 67, (*world).changeApp},
		{"cluster", 131, (*world).changeCluster},
		{"storage", 131, (*world).changeStorage},
	} {
		reference := newWorld(t, "errors-"+row.name)
		row.change(reference)
		want, calls := hashless(reference.names("shop")), reference.calls.count()
		if calls < callsMin {
			t.Fatalf("%s: the operator has made %d calls, fewer than %d", row.name, calls, callsMin)
		}
		step := row.between
		if isWhole() {
			step = 1
		}
		t.Logf("%s: each of %d calls, in steps of %d", row.name, calls, step)
		for _, isLost := range []bool{false, true} {
			for failAt := 1; failAt <= calls; failAt += step {
				name := fmt.Sprintf("errors-%s-%v-%d", row.name, isLost, failAt)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					world := newWorld(t, name)
					world.calls.reset(failAt, isLost)
					object := row.change(world)
					if !world.calls.hasFailed() {
						t.Error("no call has failed")
					}
					if found := hashless(world.names("shop")); found != want {
						t.Errorf("%s\nexpected: %s", found, want)
					}
					if status, message := world.status(object); withoutBackupFresh(status) != well {
						t.Errorf("%s\n%s", status, message)
					}
				})
			}
		}
	}
}

func (world *world) changeApp() client.Object {
	world.t.Helper()
	app := world.large()
	world.create(app)
	world.converge("App", "shop")
	world.shrink()
	world.converge("App", "shop")
	return app
}

// changeCluster changes a Dunlin with NATS servers to one without them, and with other keys.
func (world *world) changeCluster() client.Object {
	world.t.Helper()
	dunlin := world.clustered("shop")
	// With fewer nodes, a rollout would wait for pods, and these tests have none.
	dunlin.Spec.Host, dunlin.Spec.Nodes = "rt.example.com", nil
	world.create(dunlin)
	world.converge("Dunlin", "shop")
	world.updateDunlin("shop", func(dunlin *v1alpha1.Dunlin) {
		dunlin.Spec.Host, dunlin.Spec.NATS = "", nil
		world.keys(dunlin, "api_key=c4n4ry-4\ntoken_hmac_secret_key=c4n4ry-5\n")
	})
	world.converge("Dunlin", "shop")
	return dunlin
}

// changeStorage removes the backups of a Dunlin, and then deletes the Dunlin with its objects.
func (world *world) changeStorage() client.Object {
	world.t.Helper()
	dunlin := world.stored("shop")
	world.create(dunlin)
	world.converge("Dunlin", "shop")
	world.updateDunlin("shop", func(dunlin *v1alpha1.Dunlin) {
		dunlin.Spec.Backup, dunlin.Spec.Image, dunlin.Spec.DeletionPolicy = nil, "dunlin:2", v1alpha1.DeletionPolicyOrphan
	})
	world.converge("Dunlin", "shop")
	return dunlin
}

func (world *world) updateDunlin(name string, change func(*v1alpha1.Dunlin)) {
	world.t.Helper()
	dunlin := &v1alpha1.Dunlin{}
	if err := world.get(name, dunlin); err != nil {
		world.t.Fatal(err)
	}
	change(dunlin)
	world.update(dunlin)
}

// stored returns a Dunlin with one node, a log on disk, keys from a file, and backups.
func (world *world) stored(name string) *v1alpha1.Dunlin {
	world.t.Helper()
	dunlin := world.dunlin(name)
	dunlin.Spec.Keys = v1alpha1.Keys{File: "keys.env"}
	dunlin.Spec.Storage = &v1alpha1.Storage{Size: gibibyte}
	dunlin.Spec.Backup = &v1alpha1.Backup{Schedule: "15 3 * * *", Repository: &v1alpha1.Repository{Claim: "backups", File: "backup.env"}}
	files, err := render.Files(world.namespace, name, map[string]string{
		"keys.env":   world.sealed("api_key=c4n4ry-1\ntoken_hmac_secret_key=c4n4ry-2\n", world.identity),
		"backup.env": world.sealed("RESTIC_PASSWORD=c4n4ry-repository\n", world.identity),
	})
	if err != nil {
		world.t.Fatal(err)
	}
	world.create(files)
	dunlin.Annotations = map[string]string{render.AnnotationFiles: files.Name}
	return dunlin
}
