package command_test

import (
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/command"
)

// volume is the folder in the place of a claim's volume, or nothing.
func (machine *taskMachine) volume(claim string) string {
	return map[string]string{"data-database-0": machine.data, "data-database-gen2-0": machine.moved, "storage-realtime-0": machine.storage}[claim]
}

const lostVolume = "database-on-a-lost-node"

// bindToLostNode has the claim, the volume and the pod of the app as they are after the node was deleted.
func (machine *taskMachine) bindToLostNode() {
	t := machine.t
	t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"m2"},
	}}}
	var set appsv1.StatefulSet
	machine.get("database", &set)
	pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
	pod.Name, pod.Namespace = "database-0", "web"
	claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-database-0"}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}})
	for _, object := range []client.Object{
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: lostVolume}, Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, StorageClassName: "local-path",
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			NodeAffinity:           &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}},
		}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "data-database-0"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: lostVolume, StorageClassName: new("local-path"), Resources: corev1.VolumeResourceRequirements{Requests: size},
		}},
		pod,
	} {
		if err := machine.admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no node has the volume",
	}}}
	if err := machine.admin.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// loseNode has the app move to a new claim with what the last verified snapshot has. The old claim, its volume and its files are kept, and
// nothing is left that starts the app on them.
func (machine *taskMachine) loseNode() {
	t := machine.t
	t.Helper()
	saved := machine.rows()
	machine.put("written after the snapshot")
	machine.bindToLostNode()
	var app v1alpha1.App
	waitUntil(t, "the app has new volumes", func() bool {
		machine.get("database", &app)
		return app.Status.Backup.VolumeGeneration == 2
	})
	// The controller of StatefulSets deletes a pod that has no node when it is not wanted any more.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "database-0"}}
	if err := machine.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	loss := app.Status.Backup.NodeLoss
	if loss.Node != "m2" || loss.Volume != lostVolume || loss.Taken == nil || loss.Taken.After(loss.Lost.Time) || loss.Restored == nil {
		t.Errorf("%+v", loss)
	}
	if rows, err := os.ReadFile(filepath.Join(machine.moved, "rows")); err != nil || string(rows) != saved {
		t.Errorf("%q, %v; want %q", rows, err, saved)
	}
	if rows := machine.rows(); rows != "written after the snapshot" {
		t.Errorf("the old volume: %q", rows)
	}
	var old appsv1.StatefulSet
	waitUntil(t, "nothing starts the app on the old claim", func() bool {
		return apierrors.IsNotFound(machine.admin.Get(t.Context(), types.NamespacedName{Namespace: "web", Name: "database"}, &old))
	})
	var fresh appsv1.StatefulSet
	machine.get("database-gen2", &fresh)
	if *fresh.Spec.Replicas != 1 || fresh.Spec.VolumeClaimTemplates[0].Name != "data" {
		t.Errorf("%+v", fresh.Spec)
	}
	var claim corev1.PersistentVolumeClaim
	machine.get("data-database-gen2-0", &claim)
	if len(claim.OwnerReferences) > 0 || !claim.Spec.Resources.Requests.Storage().Equal(resource.MustParse("1Gi")) {
		t.Errorf("the new claim: %+v", claim)
	}
	machine.get("data-database-0", &claim)
	if claim.DeletionTimestamp != nil || claim.Spec.VolumeName != lostVolume {
		t.Errorf("the old claim: %+v", claim)
	}
	waitUntil(t, "the app serves", func() bool {
		return machine.condition("Ready") == "True AsDesired" && machine.condition("Degraded") == "False AsDesired"
	})
	out, _ := machine.roost(command.ExitFine, "status", "-n", "web", "database")
	contains(t, out, "last loss of a node     node m2 was lost with volume "+lostVolume+" of claim data-database-0, which are kept; snapshot ",
		" was restored into claims of generation 2; what was written from 20", " is lost")
	var events corev1.EventList
	waitUntil(t, "an event has the window", func() bool {
		if err := machine.admin.List(t.Context(), &events, client.InNamespace("web")); err != nil {
			return false
		}
		for _, event := range events.Items {
			if event.Reason == "RestoredFromBackup" && strings.Contains(event.Message, "what was written from 20") {
				return true
			}
		}
		return false
	})
	// Backups go on with the new volumes.
	machine.data = machine.moved
	machine.put("after the loss")
	machine.roost(command.ExitFine, "backup", "-n", "web", "database")
	machine.roost(command.ExitFine, "drill", "-n", "web", "database")
	machine.put("not saved")
	machine.roost(command.ExitFine, "restore", "-n", "web", "database", "--replace")
	if rows := machine.rows(); rows != "after the loss" {
		t.Errorf("%q", rows)
	}
}
