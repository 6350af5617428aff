package operator

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// TestPodsAreTakenByTheirOwner has the workloads of an App and a Dunlin of the same name, and pods with the same labels.
func TestPodsAreTakenByTheirOwner(t *testing.T) {
	live := map[objectName]reconcile.Manifest{}
	add := func(kind, name, uid, ownerKind, ownerUID string) {
		live[objectName{"v1", kind, name}] = reconcile.Manifest{"kind": kind, "metadata": map[string]any{
			"name": name, "uid": uid, "ownerReferences": []any{map[string]any{"kind": ownerKind, "uid": ownerUID, "controller": true}},
		}}
	}
	add("Deployment", "shop", "deployment", "App", "app")
	add("CronJob", "shop-backup", "cron", "App", "app")
	add("Job", "shop-backup-1", "job", "CronJob", "cron")
	add("Job", "shop-restore-1", "restore", "App", "app")
	add("StatefulSet", "shop", "set", "Dunlin", "dunlin")
	add("CronJob", "other-backup", "cron-of-dunlin", "Dunlin", "dunlin")
	add("Job", "other-backup-1", "job-of-dunlin", "CronJob", "cron-of-dunlin")
	live[objectName{"v1", "Deployment", "orphan"}] = reconcile.Manifest{"kind": "Deployment", "metadata": map[string]any{
		"name": "orphan", "uid": "orphan", "annotations": map[string]any{reconcile.AnnotationOwner: "App/app"},
	}}
	selector := map[string]any{"selector": map[string]any{"matchLabels": map[string]any{render.LabelApp: "shop", render.LabelKind: "App"}}}
	live[objectName{"v1", "Deployment", "shop"}]["spec"] = selector
	owners := podOwnersOf(live, "app")
	for _, row := range []struct {
		kind, name, uid     string
		isExcluded, reports bool
	}{
		{"ReplicaSet", "shop-5d4f", "replicas", false, false},
		{"ReplicaSet", "orphan-5d4f", "replicas", false, false},
		{"StatefulSet", "shop", "set", true, false},
		{"Job", "shop-backup-1", "job", false, true},
		{"Job", "shop-restore-1", "restore", false, true},
		{"Job", "other-backup-1", "job-of-dunlin", true, false},
		{"Job", "shop-backup-0", "gone", false, false},
		{"", "", "", true, false},
	} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Labels: map[string]string{
			appsv1.DefaultDeploymentUniqueLabelKey: "5d4f", render.LabelPart: render.PartBackup, render.LabelTask: render.TaskSave,
			batchv1.JobNameLabel: "shop-backup-1",
		}}}
		if row.kind != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: row.kind, Name: row.name, UID: types.UID(row.uid), Controller: new(true)}}
		}
		if isExcluded := owners.excludes(&pod); isExcluded != row.isExcluded {
			t.Errorf("%s %s: excluded: %t", row.kind, row.name, isExcluded)
		}
		if reports := len(reportingPods(backupPods([]corev1.Pod{pod}), owners)) == 1; reports != row.reports {
			t.Errorf("%s %s: reports: %t", row.kind, row.name, reports)
		}
	}
	// Pods without an owner: only a workload whose selector matches adopts one.
	for kind, isExcluded := range map[string]bool{"App": false, "Dunlin": true, "": true} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{render.LabelApp: "shop"}}}
		if kind != "" {
			pod.Labels[render.LabelKind] = kind
		}
		if owners.excludes(&pod) != isExcluded || owners.isOfOther(&pod) {
			t.Errorf("a pod without an owner and with the kind %q: excluded: %t", kind, !isExcluded)
		}
	}
	if dunlin := podOwnersOf(live, "dunlin"); !dunlin.excludes(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels:          map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "5d4f"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "shop-5d4f", UID: "replicas", Controller: new(true)}},
	}}) {
		t.Error("the Dunlin takes the pod of the App")
	}
}
