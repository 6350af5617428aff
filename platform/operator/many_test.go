package operator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/apiserver"
)

const (
	apps, appsRSSMiBMax           = 50, 64
	appsWhole, appsWholeRSSMiBMax = 1000, 128
	resyncSecondsMax              = 60
)

// TestManyApps runs the operator as a program, with the rights of its manifest: it writes missing objects, stays below a
// memory limit, and writes nothing after a restart.
func TestManyApps(t *testing.T) {
	manyApps(t, apps, appsRSSMiBMax)
}

// TestAThousandApps also measures the time, which is meaningful only on an idle machine.
func TestAThousandApps(t *testing.T) {
	if !isWhole() {
		t.Skip("ROOST_TEST_WHOLE is not set; `make operator` sets it")
	}
	if took := manyApps(t, appsWhole, appsWholeRSSMiBMax); took > resyncSecondsMax*time.Second {
		t.Errorf("a resync has taken %s", took)
	}
}

// TestAThousandAppsWithWholeLists measures the memory where the API server has no WatchList: the caches are filled by lists.
func TestAThousandAppsWithWholeLists(t *testing.T) {
	if !isWhole() {
		t.Skip("ROOST_TEST_WHOLE is not set; `make operator` sets it")
	}
	manyApps(t, appsWhole, appsWholeRSSMiBMax, "KUBE_FEATURE_WatchListClient=false")
}

// subjects is a number of objects: of ten, eight are Apps, one is a Dunlin with NATS servers, and one a Dunlin with storage and backups.
func (world *world) subjects(count int) (apps, dunlins int) {
	world.t.Helper()
	for index := range count {
		switch index % 10 {
		case 8:
			dunlin := world.clustered(fmt.Sprintf("rt-%d", index))
			dunlin.Spec.Host = dunlin.Name + ".example.com"
			world.create(dunlin)
			dunlins++
		case 9:
			world.create(world.stored(fmt.Sprintf("rt-%d", index)))
			dunlins++
		default:
			app := world.app(fmt.Sprintf("app-%d", index))
			world.files(app, fmt.Sprintf("LOG_LEVEL=info\nTOKEN=value-%d\n", index))
			app.Spec.Host = app.Name + ".example.com"
			world.create(app)
			apps++
		}
	}
	return apps, dunlins
}

// manyApps returns the time that a new operator needs to reconcile all objects once. The variables are those of its environment.
func manyApps(t *testing.T, count, rssMiBMax int, variables ...string) time.Duration {
	world := newWorld(t, fmt.Sprintf("many-%d-%d", count, len(variables)))
	world.variables = variables
	program := programOfOperator(t)
	apps, dunlins := world.subjects(count)
	if apps == 0 || dunlins == 0 {
		t.Fatalf("%d Apps and %d Dunlins", apps, dunlins)
	}
	first := world.start(program)
	world.waitUntilWell(count)
	world.createPods()
	first.waitForPasses(apps, dunlins)
	world.checkMemory(first, "after the first writes", rssMiBMax)
	first.stop()

	before := world.versions()
	begin := time.Now()
	second := world.start(program)
	second.waitForPasses(apps, dunlins)
	took := time.Since(begin)
	second.checkConditions(count)
	t.Logf("%d Apps and %d Dunlins are looked at %s after the start", apps, dunlins, took.Round(time.Millisecond))
	world.checkMemory(second, "after a resync", rssMiBMax)
	after := world.versions()
	if len(before) < count*6 || len(after) != len(before) {
		t.Errorf("%d objects became %d", len(before), len(after))
	}
	for name, version := range after {
		if before[name] != version {
			t.Errorf("%s was written: version %s became %s", name, before[name], version)
		}
	}
	second.stop()
	return took
}

// checkConditions compares the metrics of the operator with what the test has waited for: all are ready.
func (process *process) checkConditions(count int) {
	process.t.Helper()
	figures, err := process.figures()
	if err != nil {
		process.t.Fatal(err)
	}
	ready := 0
	for name, value := range figures {
		if strings.HasPrefix(name, "roost_condition{") && strings.Contains(name, `type="Ready"`) && strings.Contains(name, `reason="AsDesired"`) && value == 1 {
			ready++
		}
	}
	if ready != count {
		process.t.Errorf("%d of %d are ready by roost_condition", ready, count)
	}
}

func (world *world) checkMemory(process *process, when string, rssMiBMax int) {
	world.t.Helper()
	highest := process.kib("VmHWM")
	world.t.Logf("%s: RSS %d KiB, highest %d KiB", when, process.kib("VmRSS"), highest)
	if highest > rssMiBMax*1024 {
		world.t.Errorf("%s, the operator had an RSS of %d KiB, more than %d MiB", when, highest, rssMiBMax)
	}
}

// createPods creates a pod for each Deployment and the pods of each StatefulSet, without failures.
func (world *world) createPods() {
	world.t.Helper()
	var all appsv1.DeploymentList
	if err := world.admin.List(world.t.Context(), &all, client.InNamespace(world.namespace)); err != nil {
		world.t.Fatal(err)
	}
	templates := map[string]corev1.PodTemplateSpec{}
	for _, deployment := range all.Items {
		templates[deployment.Name+"-1"] = deployment.Spec.Template
	}
	var sets appsv1.StatefulSetList
	if err := world.admin.List(world.t.Context(), &sets, client.InNamespace(world.namespace)); err != nil {
		world.t.Fatal(err)
	}
	for _, set := range sets.Items {
		for index := range *set.Spec.Replicas {
			templates[fmt.Sprintf("%s-%d", set.Name, index)] = withClaims(&set)
		}
	}
	for name, template := range templates {
		world.createPod(name, template)
	}
}

// createPod creates a ready pod.
func (world *world) createPod(name string, template corev1.PodTemplateSpec) {
	world.t.Helper()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = world.namespace, name
	world.create(pod)
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := world.admin.Status().Update(world.t.Context(), pod); err != nil {
		world.t.Fatal(err)
	}
}

// withClaims returns the template of a pod whose volumes exist.
func withClaims(set *appsv1.StatefulSet) corev1.PodTemplateSpec {
	template := *set.Spec.Template.DeepCopy()
	for _, claim := range set.Spec.VolumeClaimTemplates {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + set.Name + "-0"}}
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: source})
	}
	return template
}

// waitUntilWell simulates the controllers of Kubernetes until the operator reports that all Apps and Dunlins match their specs.
func (world *world) waitUntilWell(count int) {
	world.t.Helper()
	ready, last := 0, ""
	world.t.Cleanup(func() {
		if world.t.Failed() {
			world.t.Logf("%d of %d were well at last: %s", ready, count, last)
		}
	})
	wait(world.t, "all are well", func() bool {
		ready = 0
		for _, subject := range world.all() {
			if conditions := withoutBackupFresh(conditionsOf(subject)); conditions == well {
				ready++
			} else {
				last = subject.GetName() + ": " + conditions
			}
		}
		if ready == count {
			return true
		}
		world.settleBesideOperator()
		return false
	})
}

// settleBesideOperator simulates the controllers. The operator may write an object between the read and the write of this function.
func (world *world) settleBesideOperator() {
	world.t.Helper()
	_, err := apiserver.FinishWorkloads(world.t.Context(), world.admin, client.InNamespace(world.namespace))
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		world.t.Fatal(err)
	}
}

// versions returns the resource versions of all objects of the namespace that an operator may write.
func (world *world) versions() map[string]string {
	world.t.Helper()
	found := map[string]string{}
	for kind := range versions {
		for _, object := range world.list(kind, "") {
			found[kind+"/"+object.GetName()] = object.GetResourceVersion()
		}
	}
	for _, subject := range world.all() {
		found["subject/"+subject.GetName()] = subject.GetResourceVersion()
	}
	return found
}

// all returns all Apps and Dunlins of the namespace.
func (world *world) all() []client.Object {
	world.t.Helper()
	var apps v1alpha1.AppList
	var dunlins v1alpha1.DunlinList
	for _, list := range []client.ObjectList{&apps, &dunlins} {
		if err := world.admin.List(world.t.Context(), list, client.InNamespace(world.namespace)); err != nil {
			world.t.Fatal(err)
		}
	}
	var found []client.Object
	for index := range apps.Items {
		found = append(found, &apps.Items[index])
	}
	for index := range dunlins.Items {
		found = append(found, &dunlins.Items[index])
	}
	return found
}
