package reconcile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
)

const sequences = 1000

func newWorld() *world {
	world := &world{api: newMemoryAPI(), values: settings.Settings{Secret: map[string]string{"TOKEN": "0"}}}
	world.app = &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "web"}, Spec: v1alpha1.AppSpec{
		Image: "shop:1", Ports: []v1alpha1.Port{{Port: 8080}}, Health: v1alpha1.Health{Path: "/healthz"},
	}}
	world.recreate()
	return world
}

// newDunlinWorld returns a world with a Dunlin whose keys come from a file.
func newDunlinWorld() *world {
	world := newWorld()
	world.values = settings.Settings{Secret: map[string]string{"api_key": "0", "token_hmac_secret_key": "0", "nats_password": "0"}}
	world.dunlin = &v1alpha1.Dunlin{ObjectMeta: world.app.ObjectMeta, Spec: v1alpha1.DunlinSpec{
		Image: "dunlin:1", Keys: v1alpha1.Keys{File: "keys.env"},
	}}
	world.app = nil
	world.recreate()
	return world
}

// recreate deletes the app and creates it again. Objects that Kubernetes has not collected yet still exist.
func (world *world) recreate() {
	kind := "App"
	if world.dunlin != nil {
		kind = "Dunlin"
	}
	world.inventory = nil
	world.owner = Owner{APIVersion: "apps.roost.dev/v1alpha1", Kind: kind, Namespace: "web", Name: "shop", UID: world.api.newUID()}
}

func randomPolicy(random *rand.Rand) string {
	return []string{"", v1alpha1.DeletionPolicyDelete, v1alpha1.DeletionPolicyOrphan}[random.IntN(3)]
}

// edit changes one field of the spec or the settings.
func (world *world) edit(random *rand.Rand) string {
	world.change()
	if world.dunlin != nil {
		return world.editDunlin(random)
	}
	spec := &world.app.Spec
	command := v1alpha1.Command{"run"}
	switch choice := random.IntN(11); choice {
	case 0:
		spec.Image = fmt.Sprintf("shop:%d", random.IntN(4))
	case 1:
		spec.Host = []string{"", "shop.example.com"}[random.IntN(2)]
	case 2:
		spec.Replicas = new(int32(random.IntN(4)))
		spec.Autoscaling = nil
	case 3:
		spec.Replicas = nil
		spec.Autoscaling = &v1alpha1.Autoscaling{Min: 1, Max: int32(2 + random.IntN(3)), CPUPercent: new(int32(70))}
		spec.Volumes = nil
	case 4:
		spec.Cron = []v1alpha1.CronTask{{Name: v1alpha1.PartName([]string{"a", "b"}[random.IntN(2)]), Schedule: "0 * * * *", Command: command}}
	case 5:
		spec.Cron, spec.Runs = nil, nil
	case 6:
		spec.Volumes = [][]v1alpha1.Volume{nil, {{Name: "data", Path: "/data", Size: new(resource.MustParse("1Gi"))}}}[random.IntN(2)]
		if spec.Volumes != nil {
			spec.Autoscaling = nil
		}
	case 7:
		migration := v1alpha1.Command{"migrate", []v1alpha1.Word{"well", "must-fail"}[random.IntN(2)]}
		spec.Migrate = []*v1alpha1.Migration{nil, {Command: migration}}[random.IntN(2)]
	case 8:
		world.values = settings.Settings{Secret: map[string]string{"TOKEN": fmt.Sprint(random.IntN(4))}}
	case 10:
		worker := v1alpha1.Process{Name: "worker", Command: command, Health: v1alpha1.ProcessHealth{None: "test"}}
		spec.Processes = [][]v1alpha1.Process{nil, {worker}}[random.IntN(2)]
	case 9:
		spec.DeletionPolicy = randomPolicy(random)
	}
	return "edit " + spec.Image
}

// editDunlin switches between a single node, with or without storage and backups, and clusters with own and external NATS servers.
func (world *world) editDunlin(random *rand.Rand) string {
	spec := &world.dunlin.Spec
	switch random.IntN(9) {
	case 0:
		spec.Image = fmt.Sprintf("dunlin:%d", random.IntN(4))
	case 1:
		spec.Host = []string{"", "rt.example.com"}[random.IntN(2)]
	case 2:
		spec.Storage, spec.Backup = nil, nil
		spec.Nodes = new(int32(1 + random.IntN(5)))
		spec.NATS = &v1alpha1.NATS{Servers: new([]int32{1, 3, 5}[random.IntN(3)]), Image: "nats:2.15.2"}
	case 3:
		spec.Storage, spec.Backup = nil, nil
		spec.Nodes = new(int32(2))
		spec.NATS = &v1alpha1.NATS{URL: "nats://10.0.0.1:4222"}
	case 4:
		spec.Nodes, spec.NATS = nil, nil
		spec.Storage = &v1alpha1.Storage{Size: resource.MustParse("1Gi")}
		if spec.Backup = nil; random.IntN(2) == 0 {
			spec.Backup = &v1alpha1.Backup{Schedule: "15 3 * * *", Repository: &v1alpha1.Repository{Claim: "backups", File: "backup.env"}}
		}
	case 5:
		spec.DrainSeconds = new(int32(10 + random.IntN(4)))
	case 6:
		spec.Keys = []v1alpha1.Keys{{File: "keys.env"}, {Secret: "realtime-keys"}}[random.IntN(2)]
	case 7:
		spec.DeletionPolicy = randomPolicy(random)
	case 8:
		value := fmt.Sprint(random.IntN(4))
		world.values = settings.Settings{
			Secret:     map[string]string{"api_key": value, "token_hmac_secret_key": value, "nats_password": value},
			Repository: map[string]string{"RESTIC_PASSWORD": value},
		}
	}
	return "edit " + spec.Image
}

// vandalize changes an object as users and programs do.
func (world *world) vandalize(random *rand.Rand, foreign map[string]string) string {
	keys := slices.Sorted(maps.Keys(world.api.objects))
	if len(keys) == 0 {
		return "nothing"
	}
	key := keys[random.IntN(len(keys))]
	object := world.api.objects[key]
	if _, isForeign := foreign[key]; isForeign || object["kind"] == "PersistentVolumeClaim" {
		return "nothing"
	}
	switch random.IntN(4) {
	case 3:
		return world.unlabel(random, key)
	case 0:
		world.api.remove(key)
		return "delete " + key
	case 1:
		if spec, has := object["spec"].(map[string]any); has {
			for name := range spec {
				if name != "replicas" || !isWorkload(object) {
					continue
				}
				spec[name] = int64(17)
			}
		}
		return "scale " + key
	default:
		metadata := object["metadata"].(map[string]any)
		if labels, has := metadata["labels"].(map[string]any); has {
			labels["team"] = "web"
		}
		return "label " + key
	}
}

// unlabel removes from a recorded object the metadata that shows that Roost has created it. Without the inventory, an object that is no longer
// desired cannot be found. Objects that an earlier owner has orphaned cannot be distinguished from those of another owner.
func (world *world) unlabel(random *rand.Rand, key string) string {
	object := world.api.objects[key]
	_, owner := ownerOf(object)
	isRecorded := slices.ContainsFunc(world.inventory, func(recorded v1alpha1.ObjectRef) bool { return recorded.UID == metadataText(object, "uid") })
	if owner != world.owner.UID || controllerOf(object) == nil || !isRecorded {
		return "nothing"
	}
	metadata := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	switch random.IntN(3) {
	case 0:
		delete(labels, render.LabelManagedBy)
		delete(labels, render.LabelApp)
	case 1:
		delete(metadata, "labels")
	default:
		if annotations, has := metadata["annotations"].(map[string]any); has {
			delete(annotations, AnnotationApplied)
		}
	}
	return "unlabel " + key
}

// intrude creates a foreign object, with the label of the app or with a name that may be needed.
func (world *world) intrude(random *rand.Rand, foreign map[string]string) string {
	choices := []Manifest{
		{"kind": "Secret", "metadata": map[string]any{"name": "shop-tls", "labels": map[string]any{render.LabelApp: "shop", render.LabelManagedBy: "roost"}}},
		{"kind": "CronJob", "metadata": map[string]any{"name": "shop-cron-a", "labels": map[string]any{"app": "other"}}},
		{"kind": "ConfigMap", "metadata": map[string]any{"name": "shop-env-0000000000", "labels": map[string]any{render.LabelApp: "shop"}}, "immutable": true},
		{"kind": "Ingress", "metadata": map[string]any{"name": "shop", "ownerReferences": []any{map[string]any{"kind": "App", "name": "other", "uid": "uid-of-other", "controller": true}}}},
	}
	object := choices[random.IntN(len(choices))]
	if controllerOf(object) != nil {
		// Its owner exists, so it is not collected here.
		delete(object["metadata"].(map[string]any), "ownerReferences")
	}
	key := keyOf(object)
	if _, isThere := world.api.objects[key]; isThere {
		return "nothing"
	}
	world.api.put(object)
	foreign[key] = fmt.Sprint(world.api.objects[key])
	return "intrude " + key
}

func (world *world) step(random *rand.Rand, foreign map[string]string) string {
	switch random.IntN(10) {
	case 0, 1, 2:
		return world.edit(random)
	case 3, 4:
		return world.vandalize(random, foreign)
	case 5:
		return world.intrude(random, foreign)
	case 6:
		world.recreate()
		return "recreate"
	case 7:
		world.api.settle(world.owner)
		return "settle"
	case 8:
		world.api.failAt = world.api.writes + 1 + random.IntN(6)
		_, err := world.pass(1 << 20)
		world.api.failAt = 0
		return fmt.Sprintf("pass, %v", err)
	default:
		count := random.IntN(8)
		_, _ = world.pass(count)
		return fmt.Sprintf("crash after %d writes", count)
	}
}

// TestRandomSequencesEndInTheSameState edits, deletes, crashes and recreates Apps and Dunlins at random. Afterwards the namespace is like a
// fresh one, and a second pass writes nothing.
func TestRandomSequencesEndInTheSameState(t *testing.T) {
	for seed := range uint64(sequences) {
		random := rand.New(rand.NewPCG(seed, 7))
		world := newWorld()
		if seed%2 == 1 {
			world = newDunlinWorld()
		}
		foreign, claims := map[string]string{}, map[string]string{}
		var history []string
		for range 4 + random.IntN(16) {
			history = append(history, world.step(random, foreign))
			for key, object := range world.api.objects {
				if object["kind"] == "PersistentVolumeClaim" {
					claims[key] = metadataText(object, "uid")
				}
			}
		}
		fail := func(format string, values ...any) {
			t.Fatalf("seed %d: %s\n%s", seed, fmt.Sprintf(format, values...), strings.Join(history, "\n"))
		}
		if _, err := world.converge(); err != nil {
			fail("%v", err)
		}
		for key, text := range foreign {
			if fmt.Sprint(world.api.objects[key]) != text {
				fail("%s of somebody else was changed: %v", key, world.api.objects[key])
			}
		}
		for key, uid := range claims {
			if metadataText(world.api.objects[key], "uid") != uid {
				fail("%s was deleted", key)
			}
		}
		// While a name is taken, nothing is written. A person removes the objects of others.
		for key := range foreign {
			world.api.remove(key)
		}
		if _, err := world.converge(); err != nil {
			fail("%v", err)
		}
		if difference := world.differenceFromFresh(); difference != "" {
			fail("%s", difference)
		}
	}
}

// differenceFromFresh compares the namespace with one in which only the last spec was ever applied.
func (current *world) differenceFromFresh() string {
	fresh := newWorld()
	fresh.change()
	fresh.app, fresh.dunlin, fresh.values, fresh.rendered = current.app, current.dunlin, current.values, current.rendered
	fresh.recreate()
	if _, err := fresh.converge(); err != nil {
		return err.Error()
	}
	want, found := fresh.api.snapshot(), current.api.snapshot()
	isFailed := false
	for _, object := range current.api.objects {
		isFailed = isFailed || object["kind"] == "Job" && jobStateOf(object) == jobFailed
	}
	for key, text := range found {
		isClaim := strings.HasPrefix(key, "PersistentVolumeClaim/")
		_, isWanted := want[key]
		// The old workload serves while the migration of the new one has failed, and keeps its objects.
		if isClaim || isFailed || isSettings(current.api.objects[key]) && !isWanted {
			continue
		}
		if want[key] != strings.ReplaceAll(text, " team:web", "") {
			return fmt.Sprintf("%s is\n%s\nand not\n%s", key, text, want[key])
		}
	}
	for key := range want {
		if _, isThere := found[key]; !isThere {
			return key + " is missing"
		}
	}
	return ""
}

// TestAnErrorAtEachCall makes each call of the API fail in turn: creating, changing, and pruning.
func TestAnErrorAtEachCall(t *testing.T) {
	calls := 0
	for failAt := 1; ; failAt++ {
		world := newWorld()
		world.app.Spec.Host = "shop.example.com"
		world.app.Spec.Migrate = &v1alpha1.Migration{Command: v1alpha1.Command{"migrate"}}
		world.app.Spec.Cron = []v1alpha1.CronTask{{Name: "a", Schedule: "0 * * * *", Command: v1alpha1.Command{"x"}}}
		world.api.failAt = failAt
		if _, err := world.converge(); err != nil {
			t.Fatal(err)
		}
		world.change()
		world.app.Spec.Host, world.app.Spec.Cron, world.app.Spec.Image = "", nil, "shop:2"
		if _, err := world.converge(); err != nil {
			t.Fatal(err)
		}
		if difference := world.differenceFromFresh(); difference != "" {
			t.Fatalf("call %d: %s", failAt, difference)
		}
		if world.api.writes < failAt {
			break
		}
		calls++
	}
	if calls < 15 {
		t.Fatalf("%d calls", calls)
	}
}

// The reasons are a fixed list. No other reason occurs.
func TestReasonsAreListed(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 9))
		world := newWorld()
		foreign := map[string]string{}
		for range 20 {
			world.step(random, foreign)
			result, _ := world.pass(random.IntN(20))
			for _, condition := range result.Conditions {
				seen[condition.Reason] = true
				if condition.Message == "" {
					t.Fatalf("%+v", condition)
				}
			}
		}
	}
	for reason := range seen {
		if !IsReason(reason) {
			t.Errorf("%s is not listed", reason)
		}
	}
	for _, reason := range []string{ReasonNameTaken, ReasonMigrationFailed, ReasonMigrating, ReasonWaitingForDeletion, ReasonRollingOut} {
		if !seen[reason] {
			t.Errorf("%s never came up", reason)
		}
	}
}

func TestRapidEditsKeepTheSettingsOfARollback(t *testing.T) {
	world := newWorld()
	for index := range 500 {
		world.change()
		world.values = settings.Settings{Secret: map[string]string{"TOKEN": fmt.Sprint(index)}}
		if _, err := world.pass(1 << 20); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := world.converge(); err != nil {
		t.Fatal(err)
	}
	kept := 0
	for _, object := range world.api.objects {
		if isSettings(object) {
			kept++
		}
	}
	if kept != settingsKept*2+1 {
		t.Errorf("%d settings are there", kept)
	}
}

func TestUnreadableSettingsChangeNothing(t *testing.T) {
	world := newWorld()
	if _, err := world.converge(); err != nil {
		t.Fatal(err)
	}
	world.change()
	world.app.Spec.Image = "shop:2"
	desired := world.desired()
	result := Decide(Input{Owner: world.owner, Desired: desired, Live: world.api.list(desired), SettingsProblem: "no identity decrypts the file"})
	if len(result.Writes) != 0 || len(result.Inventory) == 0 {
		t.Fatalf("%d writes", len(result.Writes))
	}
	var states []string
	for _, condition := range result.Conditions {
		states = append(states, fmt.Sprintf("%s=%v %s", condition.Type, condition.Holds, condition.Reason))
	}
	want := []string{"SettingsDecrypted=false SettingsUnreadable", "Ready=true AsDesired", "Progressing=false AsDesired", "Degraded=true SettingsUnreadable"}
	if !reflect.DeepEqual(states, want) {
		t.Fatalf("%v", states)
	}
}

func TestTheFailingPodSpeaks(t *testing.T) {
	world := newWorld()
	desired := world.desired()
	result := Decide(Input{Owner: world.owner, Desired: desired, Live: nil, Pods: []PodState{
		{Name: "shop-1"}, {Name: "shop-2", Waiting: "CrashLoopBackOff", LastOutput: strings.Repeat("ä", 600) + "panic: no database\n"},
	}})
	for _, condition := range result.Conditions {
		if condition.Type != ConditionDegraded {
			continue
		}
		isCut := len(condition.Message) < lastOutputBytesMax+100
		if condition.Reason != ReasonPodFailing || !strings.HasPrefix(condition.Message, "shop-2: CrashLoopBackOff: …") ||
			!strings.HasSuffix(condition.Message, "panic: no database") || !isCut {
			t.Fatalf("%+v", condition)
		}
	}
}
