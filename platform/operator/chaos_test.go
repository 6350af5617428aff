package operator_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	chaosSeed   = 1
	faultyShare = 0.3
	// callsPerSecondMax bounds the calls of an operator that has nothing to do, or can do nothing.
	callsPerSecondMax = 10
	// clusteredSubject is the Dunlin whose number of nodes changes.
	clusteredSubject = "rt-0"
)

// chaosSubjects are three Apps, a Dunlin with NATS servers, and one with storage and backups.
var chaosSubjects = []string{"app-0", "app-1", "app-2", clusteredSubject, "rt-1"}

func kindOf(name string) string {
	if strings.HasPrefix(name, "rt-") {
		return operator.KindDunlin
	}
	return operator.KindApp
}

// chaosTimes are how long the parts of the test take.
type chaosTimes struct {
	edits, between, quiet, outage time.Duration
	// rapid is a count of changes.
	rapid int
}

// TestFailingCalls has Apps and Dunlins change without a pause, and then runs the operator while 30 % of all its calls fail: it arrives at what is desired, and does not call without
// end when it has nothing to do or when each call fails.
func TestFailingCalls(t *testing.T) {
	t.Parallel()
	times := chaosTimes{edits: 3 * time.Second, between: 250 * time.Millisecond, quiet: 2 * time.Second, outage: 4 * time.Second, rapid: 50}
	if isWhole() {
		times = chaosTimes{edits: 10 * time.Minute, between: time.Second, quiet: time.Minute, outage: time.Minute, rapid: 500}
	}
	world, faults := newWorld(t, "chaos"), newFaults(chaosSeed)
	random := rand.New(rand.NewPCG(chaosSeed, 1))
	for _, name := range chaosSubjects[:3] {
		world.create(world.app(name))
	}
	world.create(world.clustered(clusteredSubject))
	world.create(world.stored("rt-1"))
	world.runBehind(faults.wrap)
	world.waitUntilWell(len(chaosSubjects))

	world.measureHealing()
	for range times.rapid {
		world.edit(anyOf(chaosSubjects, random), random)
	}
	world.waitUntilSeen()
	calls, _ := faults.counts()
	t.Logf("%d changes without a pause: %d calls", times.rapid, calls)
	world.nothingIsLeftToWrite()

	faults.begin(faultyShare)
	edits := world.editFor(times, random)
	world.waitUntilSeen()
	wait(t, "the server has performed the late writes", faults.hasNoLateWrites)
	world.waitUntilSeen()
	calls, failed := faults.counts()
	t.Logf("%d changes: %d calls, %d have failed: %v", edits, calls, failed, faults.kinds)
	if failed == 0 || isWhole() && len(faults.kinds) != len(faultKinds) {
		t.Errorf("faults are missing: %v", faults.kinds)
	}
	world.nothingIsLeftToWrite()
	faults.checkRate(t, "with nothing to do", faultyShare, times.quiet)
	faults.begin(1)
	for _, name := range chaosSubjects {
		world.edit(name, random)
	}
	faults.checkRate(t, "while each call fails", 1, times.outage)

	faults.begin(0)
	begin := time.Now()
	wait(t, "the server has performed the late writes", faults.hasNoLateWrites)
	world.waitUntilSeen()
	t.Logf("all is well %s after the outage", time.Since(begin).Round(time.Millisecond))
	world.nothingIsLeftToWrite()
}

// measureHealing prints how long an object that somebody has deleted is missing.
func (world *world) measureHealing() {
	world.t.Helper()
	world.deleteOne("Service", "app-0")
	begin := time.Now()
	wait(world.t, "the Service is made again", func() bool { return len(world.list("Service", "app-0")) == 1 })
	world.t.Logf("a deleted Service is back after %s", time.Since(begin).Round(time.Millisecond))
}

// checkRate counts calls over a time. On a busy machine there are fewer.
func (faults *faults) checkRate(t *testing.T, when string, share float64, over time.Duration) {
	t.Helper()
	faults.begin(share)
	time.Sleep(over) // the window of the count
	calls, _ := faults.counts()
	rate := float64(calls) / over.Seconds()
	t.Logf("%s: %d calls in %s, %.1f per second", when, calls, over, rate)
	if rate > callsPerSecondMax {
		t.Errorf("%s: %.1f calls per second, more than %d", when, rate, callsPerSecondMax)
	}
}

func (world *world) editFor(times chaosTimes, random *rand.Rand) int {
	world.t.Helper()
	edits := 0
	for end := time.Now().Add(times.edits); time.Now().Before(end); edits++ {
		world.edit(anyOf(chaosSubjects, random), random)
		world.settleWithNodes()
		time.Sleep(times.between) // the pace of the changes
	}
	return edits
}

func anyOf(names []string, random *rand.Rand) string { return names[random.IntN(len(names))] }

// editDunlin changes one, or takes something away that belongs to it.
func (world *world) editDunlin(name string, random *rand.Rand) {
	world.t.Helper()
	dunlin := &v1alpha1.Dunlin{}
	if err := world.get(name, dunlin); err != nil {
		world.t.Fatal(err)
	}
	before := dunlin.DeepCopy()
	switch random.IntN(6) {
	case 0:
		dunlin.Spec.Image = fmt.Sprintf("dunlin:%d", random.IntN(1000))
	case 1:
		dunlin.Spec.Host = name + ".example.com"
		if before.Spec.Host != "" {
			dunlin.Spec.Host = ""
		}
	case 2:
		dunlin.Spec.DrainSeconds = new(int32(10 + random.IntN(100)))
	case 3:
		if dunlin.Spec.NATS != nil {
			dunlin.Spec.Nodes = new(int32(1 + random.IntN(5)))
		} else if dunlin.Spec.Backup = nil; before.Spec.Backup == nil {
			dunlin.Spec.Backup = &v1alpha1.Backup{Schedule: "15 3 * * *", Repository: &v1alpha1.Repository{Claim: "backups", File: "backup.env"}}
		}
	case 4:
		dunlin.Spec.DeletionPolicy = v1alpha1.DeletionPolicyOrphan
		if before.Spec.DeletionPolicy != "" {
			dunlin.Spec.DeletionPolicy = ""
		}
	case 5:
		world.deleteOne("Service", name)
	}
	if err := world.admin.Patch(world.t.Context(), dunlin, client.MergeFrom(before)); err != nil {
		world.t.Fatal(err)
	}
}

// edit changes an app, or takes something away that belongs to it.
func (world *world) edit(name string, random *rand.Rand) {
	world.t.Helper()
	if kindOf(name) == operator.KindDunlin {
		world.editDunlin(name, random)
		return
	}
	app := &v1alpha1.App{}
	if err := world.get(name, app); err != nil {
		world.t.Fatal(err)
	}
	before := app.DeepCopy()
	switch random.IntN(5) {
	case 0:
		app.Spec.Image = fmt.Sprintf("shop:%d", random.IntN(1000))
	case 1:
		app.Spec.Host = name + ".example.com"
		if before.Spec.Host != "" {
			app.Spec.Host = ""
		}
	case 2:
		app.Spec.Cron = []v1alpha1.CronTask{{Name: "a", Schedule: "0 * * * *", Command: v1alpha1.Command{"x"}}}
		if len(before.Spec.Cron) > 0 {
			app.Spec.Cron = nil
		}
	case 3:
		app.Spec.EnvFiles = v1alpha1.EnvFiles{"shop.env"}
		files := world.encrypted(name, "shop.env", fmt.Sprintf("LOG_LEVEL=info\nTOKEN=%d\n", random.IntN(1000)))
		app.Annotations = map[string]string{render.AnnotationFiles: files}
	case 4:
		world.deleteOne("Service", name)
	}
	if err := world.admin.Patch(world.t.Context(), app, client.MergeFrom(before)); err != nil {
		world.t.Fatal(err)
	}
}

func (world *world) deleteOne(kind, name string) {
	world.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(versions[kind])
	object.SetKind(kind)
	object.SetNamespace(world.namespace)
	object.SetName(name)
	if err := client.IgnoreNotFound(world.admin.Delete(world.t.Context(), object)); err != nil {
		world.t.Fatal(err)
	}
}

func newSubject(kind string) client.Object {
	if kind == operator.KindDunlin {
		return &v1alpha1.Dunlin{}
	}
	return &v1alpha1.App{}
}

// settleWithNodes does the part of the controllers, and has the pods of a Dunlin's nodes: without them, no node would ever be removed.
func (world *world) settleWithNodes() {
	world.t.Helper()
	world.settleBesideOperator()
	var set appsv1.StatefulSet
	var pods corev1.PodList
	err := world.get(clusteredSubject, &set)
	if err == nil {
		err = world.admin.List(world.t.Context(), &pods, client.InNamespace(world.namespace), client.MatchingLabels(set.Spec.Selector.MatchLabels))
	}
	if err != nil {
		world.t.Fatal(err)
	}
	missing := map[string]bool{}
	for number := range *set.Spec.Replicas {
		missing[fmt.Sprintf("%s-%d", set.Name, number)] = true
	}
	for index := range pods.Items {
		pod := &pods.Items[index]
		if missing[pod.Name] {
			delete(missing, pod.Name)
			continue
		}
		if err := world.admin.Delete(world.t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			world.t.Fatal(err)
		}
	}
	for name := range missing {
		template := *set.Spec.Template.DeepCopy()
		template.Labels[appsv1.StatefulSetRevisionLabel] = apiserver.UpdateRevision
		world.createPod(name, template)
	}
}

// waitUntilSeen returns when all apps are reported as desired in their newest form, and have what was deleted.
func (world *world) waitUntilSeen() {
	world.t.Helper()
	var late []string
	defer func() {
		if world.t.Failed() {
			world.t.Logf("not as desired:\n%s", strings.Join(late, "\n"))
		}
	}()
	wait(world.t, "the newest form of all apps is rolled out", func() bool {
		world.settleWithNodes()
		late = nil
		for _, name := range chaosSubjects {
			if reason := world.whyNotSeen(name); reason != "" {
				late = append(late, name+": "+reason)
			}
		}
		return len(late) == 0
	})
}

// whyNotSeen is what an app waits for, or empty.
func (world *world) whyNotSeen(name string) string {
	world.t.Helper()
	subject := newSubject(kindOf(name))
	if err := world.get(name, subject); err != nil {
		world.t.Fatal(err)
	}
	status := statusOf(subject)
	switch {
	case status.ObservedGeneration != subject.GetGeneration():
		return fmt.Sprintf("generation %d is observed, %d is the newest", status.ObservedGeneration, subject.GetGeneration())
	case status.Files != subject.GetAnnotations()[render.AnnotationFiles]:
		return fmt.Sprintf("the status has the files %q, the annotation %q", status.Files, subject.GetAnnotations()[render.AnnotationFiles])
	case withoutBackupFresh(conditionsOf(subject)) != well:
		return fmt.Sprintf("%+v", status.Conditions)
	case world.get(name, &corev1.Service{}) != nil:
		return "it has no Service"
	}
	return ""
}

// nothingIsLeftToWrite looks at each app with an operator whose calls all succeed.
func (world *world) nothingIsLeftToWrite() {
	world.t.Helper()
	world.calls.reset(0, false)
	for _, name := range chaosSubjects {
		if err := world.pass(kindOf(name), name); err != nil {
			world.t.Error(err)
		}
	}
	if writes := world.calls.reset(0, false); len(writes) > 0 {
		world.t.Errorf("%d writes are left: %v", len(writes), writes)
	}
}
