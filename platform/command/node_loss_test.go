package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/command"
)

// volume returns the folder that represents a claim's volume, or "".
func (machine *taskMachine) volume(claim string) string {
	return map[string]string{
		"data-database-0": machine.data, "data-database-gen2-0": machine.moved,
		"storage-realtime-0": machine.storage, "storage-realtime-gen2-0": machine.movedStorage,
	}[claim]
}

// lostSubject is an App or a Dunlin whose node is lost with a volume.
type lostSubject struct {
	name, volume string
	object       client.Object
	status       *v1alpha1.Status
}

func (lost *lostSubject) claim() string { return lost.volume + "-" + lost.name + "-0" }

func (lost *lostSubject) lostVolume() string { return lost.name + "-on-a-lost-node" }

// bindToLostNode puts the claim, the volume and the pod into the state after the node was deleted.
func (machine *taskMachine) bindToLostNode(lost *lostSubject) {
	t := machine.t
	t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"m2"},
	}}}
	var set appsv1.StatefulSet
	machine.get(lost.name, &set)
	pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
	pod.Name, pod.Namespace = lost.name+"-0", "web"
	claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: lost.claim()}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: lost.volume, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}})
	for _, object := range []client.Object{
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: lost.lostVolume()}, Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, StorageClassName: "local-path",
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			NodeAffinity:           &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}},
		}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: lost.claim()}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: lost.lostVolume(), StorageClassName: new("local-path"), Resources: corev1.VolumeResourceRequirements{Requests: size},
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

// moves makes the subject move to a new claim. The old claim and its volume are kept, and no object is left that starts a pod on them.
func (machine *taskMachine) moves(lost *lostSubject) *v1alpha1.NodeLoss {
	t := machine.t
	t.Helper()
	machine.bindToLostNode(lost)
	waitUntil(t, lost.name+" has new volumes", func() bool {
		machine.get(lost.name, lost.object)
		return lost.status.Backup.VolumeGeneration == 2
	})
	// The controller of StatefulSets deletes a pod without a node when it is no longer wanted.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: lost.name + "-0"}}
	if err := machine.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	loss := lost.status.Backup.NodeLoss
	if loss.Node != "m2" || loss.Volume != lost.lostVolume() || loss.Taken == nil || loss.Taken.After(loss.Lost.Time) || loss.Restored == nil {
		t.Errorf("%+v", loss)
	}
	var old appsv1.StatefulSet
	waitUntil(t, "nothing starts a pod on the old claim", func() bool {
		return apierrors.IsNotFound(machine.admin.Get(t.Context(), types.NamespacedName{Namespace: "web", Name: lost.name}, &old))
	})
	var fresh appsv1.StatefulSet
	machine.get(lost.name+"-gen2", &fresh)
	if *fresh.Spec.Replicas != 1 || fresh.Spec.VolumeClaimTemplates[0].Name != lost.volume {
		t.Errorf("%+v", fresh.Spec)
	}
	var claim corev1.PersistentVolumeClaim
	machine.get(lost.volume+"-"+lost.name+"-gen2-0", &claim)
	if len(claim.OwnerReferences) > 0 || !claim.Spec.Resources.Requests.Storage().Equal(resource.MustParse("1Gi")) {
		t.Errorf("the new claim: %+v", claim)
	}
	machine.get(lost.claim(), &claim)
	if claim.DeletionTimestamp != nil || claim.Spec.VolumeName != lost.lostVolume() {
		t.Errorf("the old claim: %+v", claim)
	}
	waitUntil(t, lost.name+" serves", func() bool {
		machine.get(lost.name, lost.object)
		return meta.IsStatusConditionTrue(lost.status.Conditions, "Ready") && meta.IsStatusConditionFalse(lost.status.Conditions, "Degraded")
	})
	window := "data that was written from " + loss.Taken.UTC().Format(time.RFC3339) + " to "
	out, _ := machine.roost(command.ExitFine, "status", "-n", "web", lost.name)
	contains(t, out, "last loss of a node     node m2 was lost with volume "+lost.lostVolume()+" of claim "+lost.claim()+"; the volume and the claim are kept; snapshot ",
		" was restored into claims of generation 2; "+window, " is lost")
	var events corev1.EventList
	waitUntil(t, "an event has the window", func() bool {
		if err := machine.admin.List(t.Context(), &events, client.InNamespace("web")); err != nil {
			return false
		}
		for _, event := range events.Items {
			if event.Reason == "RestoredFromBackup" && event.InvolvedObject.Name == lost.name && strings.Contains(event.Message, window) {
				return true
			}
		}
		return false
	})
	return loss
}

// loseNode makes the app move to a new claim with the content of the last verified snapshot. The files of the old volume are kept.
func (machine *taskMachine) loseNode() {
	t := machine.t
	t.Helper()
	saved := machine.rows()
	machine.put("written after the snapshot")
	app := &v1alpha1.App{}
	machine.moves(&lostSubject{"database", "data", app, &app.Status})
	if rows, err := os.ReadFile(filepath.Join(machine.moved, "rows")); err != nil || string(rows) != saved {
		t.Errorf("%q, %v; want %q", rows, err, saved)
	}
	if rows := machine.rows(); rows != "written after the snapshot" {
		t.Errorf("the old volume: %q", rows)
	}
	// Backups continue with the new volumes.
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

// loseNodeOfDunlin does the same for a Dunlin, whose storage is created from the newest backup of the node in the snapshot.
func (machine *taskMachine) loseNodeOfDunlin(saved int) {
	t := machine.t
	t.Helper()
	before := machine.publications()
	dunlin := &v1alpha1.Dunlin{}
	machine.get("realtime", dunlin)
	// The window begins with the newest backup of the node, not with the snapshot that contains it.
	made := dunlin.Status.Backup.LastBackup
	loss := machine.moves(&lostSubject{"realtime", "storage", dunlin, &dunlin.Status})
	if !loss.Taken.Equal(made) {
		t.Errorf("the window begins at %s, and the backup of the node is of %s", loss.Taken, made)
	}
	if count := machine.publications(); count != before {
		t.Errorf("%d publications in the old volume, which had %d", count, before)
	}
	if status := dunlin.Status.Dunlin; status.NodesDesired != 1 {
		t.Errorf("%+v", status)
	}
	machine.storage = machine.movedStorage
	if count := machine.publications(); count != saved {
		t.Errorf("%d publications in the new volume, of %d that were saved", count, saved)
	}
	// The server, and its backups, continue with the new volume.
	machine.publish(5)
	machine.saveDunlin()
	machine.roost(command.ExitFine, "drill", "-n", "web", "realtime")
	machine.publish(1)
	machine.roost(command.ExitFine, "restore", "-n", "web", "realtime", "--replace")
	if count := machine.publications(); count != saved+5 {
		t.Errorf("%d publications after the restore of the new volume", count)
	}
}
