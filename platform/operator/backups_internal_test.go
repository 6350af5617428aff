package operator

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/backup"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// A completed operation stays recorded when spec.backup is removed, because its annotation still exists when spec.backup is added again.
func TestAnOperationIsKnownWithoutABackup(t *testing.T) {
	for phase, expected := range map[string]string{
		v1alpha1.OperationSucceeded: v1alpha1.OperationSucceeded,
		v1alpha1.OperationRuns:      v1alpha1.OperationFailed,
	} {
		recorded := &v1alpha1.Operation{ID: "a", Kind: "restore", Snapshot: "latest", Replace: true, Phase: phase}
		without := &subject{status: &v1alpha1.Status{Backup: &v1alpha1.BackupStatus{Operation: recorded}}}
		status := new(Operator).backupStatus(without, reconcile.Input{}, nil, podOwners{}, "")
		if status == nil || status.Operation.Phase != expected {
			t.Fatalf("%s: %+v", phase, status)
		}
		requested := *recorded
		requested.Phase = ""
		again := reconcile.NextOperation(reconcile.OperationInput{App: "shop", Recorded: status.Operation, Requested: &requested})
		if again.Phase != expected {
			t.Errorf("it is repeated: %+v", again)
		}
	}
	if status := new(Operator).backupStatus(&subject{status: &v1alpha1.Status{}}, reconcile.Input{}, nil, podOwners{}, ""); status != nil {
		t.Errorf("nothing was asked for: %+v", status)
	}
}

// listOnly is a client.Reader with pods.
type listOnly struct {
	client.Reader
	pods  []corev1.Pod
	calls int
}

func (reader *listOnly) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	reader.calls++
	list.(*corev1.PodList).Items = reader.pods
	return nil
}

// TestTheEndOfAJobArrivesBeforeThatOfItsPod has a Job that counts a pod which the cache does not know, or knows as running.
func TestTheEndOfAJobArrivesBeforeThatOfItsPod(t *testing.T) {
	operation := &v1alpha1.Operation{ID: "a", Kind: render.TaskSave, Phase: v1alpha1.OperationRuns}
	job := render.OperationName("shop", operation)
	ended := endedPod(t, "", backup.Report{Kind: render.TaskSave}, time.Unix(1_700_000_000, 0))
	ended.Labels[batchv1.JobNameLabel] = job
	ended.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: "job", Controller: new(true)}}
	running := *ended.DeepCopy()
	running.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	other := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	counts := func(active, succeeded int64) map[objectName]reconcile.Manifest {
		return map[objectName]reconcile.Manifest{{"batch/v1", "Job", job}: {"status": map[string]any{"active": active, "succeeded": succeeded}}}
	}
	for name, row := range map[string]struct {
		live         map[objectName]reconcile.Manifest
		cached       []corev1.Pod
		calls, found int
	}{
		"no Job":          {nil, []corev1.Pod{other}, 0, 0},
		"a running Job":   {counts(1, 0), []corev1.Pod{other, running}, 0, 0},
		"an unknown pod":  {counts(0, 1), []corev1.Pod{other}, 1, 1},
		"a late pod":      {counts(0, 1), []corev1.Pod{other, running}, 1, 1},
		"both are known":  {counts(0, 1), []corev1.Pod{other, ended}, 0, 1},
		"the pod is gone": {counts(0, 2), []corev1.Pod{other, ended}, 1, 1},
	} {
		// Anyone who may create pods may label them, but they have no owner.
		reader := &listOnly{pods: []corev1.Pod{ended, {ObjectMeta: metav1.ObjectMeta{Labels: ended.Labels}, Status: ended.Status}}}
		app := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}}
		of := &subject{object: app, backup: &v1alpha1.Backup{}, status: &v1alpha1.Status{Backup: &v1alpha1.BackupStatus{Operation: operation}}}
		pods, err := (&Operator{Live: reader}).podsAtEnd(t.Context(), of, row.live, row.cached)
		if err != nil {
			t.Fatal(err)
		}
		found := len(taskOutcomes(pods, ""))
		if reader.calls != row.calls || found != row.found || pods[0].Name != "other" {
			t.Errorf("%s: %d calls, %d outcomes, %d pods", name, reader.calls, found, len(pods))
		}
	}
}

// endedPod returns an ended pod that has used a repository.
func endedPod(t *testing.T, repository string, report backup.Report, ended time.Time) corev1.Pod {
	t.Helper()
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(text), FinishedAt: metav1.NewTime(ended)}}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{render.LabelTask: report.Kind, render.LabelRepository: repository}},
		Status:     corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{State: state}}},
	}
}

// Data about one repository does not apply to another one, or to a new one at the same address.
func TestANewRepositoryIsNotFresh(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	pods := []corev1.Pod{
		endedPod(t, "first", backup.Report{Kind: render.TaskSave, Snapshot: "s1", Taken: at(1), IsNew: true}, at(1)),
		endedPod(t, "first", backup.Report{Kind: render.TaskVerify, Snapshot: "s1", Taken: at(1)}, at(2)),
	}
	known := func(status *v1alpha1.BackupStatus, repository string) *v1alpha1.BackupStatus {
		status = aboutRepository(status.DeepCopy(), repository)
		for _, outcome := range taskOutcomes(pods, status.Repository) {
			outcome.addTo(status)
		}
		return status
	}
	first := known(&v1alpha1.BackupStatus{Operation: &v1alpha1.Operation{ID: "a"}}, "first")
	if first.LastSnapshot != "s1" || first.VerifiedSnapshot != "s1" || !first.VerifiedTaken.Equal(first.LastBackup) {
		t.Fatalf("%+v", first)
	}
	notDecrypted := render.RepositoryOf(&v1alpha1.Backup{Repository: &v1alpha1.Repository{File: "backup.env"}}, nil)
	if again := known(first, notDecrypted); again.VerifiedSnapshot != "s1" {
		t.Errorf("the settings cannot be read: %+v", again)
	}
	second := known(first, "second")
	if second.LastBackup != nil || second.LastVerifiedRestore != nil || second.VerifiedSnapshot != "" || second.Operation == nil {
		t.Errorf("another repository: %+v", second)
	}
	pods = append(pods, endedPod(t, "first", backup.Report{Kind: render.TaskSave, Snapshot: "s2", Taken: at(3), IsNew: true}, at(3)))
	if emptied := known(first, "first"); emptied.LastSnapshot != "s2" || emptied.LastVerifiedRestore != nil || emptied.VerifiedSnapshot != "" {
		t.Errorf("it was emptied: %+v", emptied)
	}
	pods = append(pods, endedPod(t, "first", backup.Report{Kind: render.TaskVerify, Snapshot: "s2", Taken: at(3)}, at(4)))
	if verified := known(first, "first"); verified.VerifiedSnapshot != "s2" {
		t.Errorf("the new one is verified: %+v", verified)
	}
}

// Pods with earlier volumes, and pods of unrelated Jobs, stay on a lost node until it is back or deleted.
func TestVolumesThatAreUsedNow(t *testing.T) {
	volumes := func() []reconcile.LocalVolume {
		return []reconcile.LocalVolume{
			{Pod: "shop-0", Claim: "data-shop-0"},
			{Pod: "shop-backup-1-x", Job: "shop-backup-1", Claim: "data-shop-0"},
			{Pod: "shop-drill-1-x", Job: "shop-drill-1", Claim: "shop-drill-1-x-scratch"},
			{Pod: "shop-gen2-0", Claim: "data-shop-gen2-0"},
			{Pod: "shop-restore-g2a1-x", Job: "shop-restore-g2a1", Claim: "data-shop-gen2-0"},
			{Pod: "shop-restore-g3a2-x", Job: "shop-restore-g3a2", Claim: "data-shop-gen3-0"},
			{Pod: "shop-nats-1", Claim: "data-shop-nats-1"},
		}
	}
	restoring := &v1alpha1.Operation{ID: "g3a2", Kind: render.TaskRestore, Generation: 3, Phase: v1alpha1.OperationRuns}
	ended := &v1alpha1.Operation{ID: "g3a2", Kind: render.TaskRestore, Generation: 3, Phase: v1alpha1.OperationFailed}
	for _, row := range []struct {
		name   string
		status *v1alpha1.BackupStatus
		want   string
	}{
		{"no backup", nil, "shop-0 shop-backup-1-x shop-gen2-0 shop-nats-1"},
		{"a restore", &v1alpha1.BackupStatus{Operation: restoring}, "shop-0 shop-backup-1-x shop-gen2-0 shop-restore-g3a2-x shop-nats-1"},
		{"a restore that has ended", &v1alpha1.BackupStatus{Operation: ended}, "shop-0 shop-backup-1-x shop-gen2-0 shop-nats-1"},
		{"moved", &v1alpha1.BackupStatus{VolumeGeneration: 2}, "shop-gen2-0 shop-restore-g2a1-x shop-nats-1"},
		{"moved, and a restore", &v1alpha1.BackupStatus{VolumeGeneration: 2, Operation: restoring}, "shop-gen2-0 shop-restore-g2a1-x shop-restore-g3a2-x shop-nats-1"},
	} {
		app := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}, Status: v1alpha1.Status{Backup: row.status}}
		var pods []string
		for _, volume := range appSubject(app).present(volumes()) {
			pods = append(pods, volume.Pod)
		}
		if found := strings.Join(pods, " "); found != row.want {
			t.Errorf("%s: %s, want %s", row.name, found, row.want)
		}
	}
}

// The pod with earlier volumes stays on a lost node, and is not a node of the Dunlin any more.
func TestPodsOfANodesSet(t *testing.T) {
	var pods []corev1.Pod
	for _, name := range []string{"realtime-0", "realtime-11", "realtime-gen2-0", "realtime-gen21-0", "realtime-nats-0"} {
		pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	dunlin := &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Name: "realtime"}}
	moved := &v1alpha1.BackupStatus{VolumeGeneration: 2}
	for _, row := range []struct {
		name    string
		storage *v1alpha1.Storage
		status  *v1alpha1.BackupStatus
		want    string
	}{
		{"a cluster", nil, nil, "realtime-0 realtime-11"},
		{"a storage", &v1alpha1.Storage{}, nil, "realtime-0 realtime-11"},
		{"a storage that has moved", &v1alpha1.Storage{}, moved, "realtime-gen2-0"},
		{"a cluster that had a storage", nil, moved, "realtime-0 realtime-11"},
	} {
		dunlin.Spec.Storage, dunlin.Status.Backup = row.storage, row.status
		var names []string
		for _, pod := range ofSet(pods, render.NodesName(dunlin)) {
			names = append(names, pod.Name)
		}
		if found := strings.Join(names, " "); found != row.want {
			t.Errorf("%s: %s, want %s", row.name, found, row.want)
		}
	}
}

// The window of lost data begins with the newest backup of the node in the snapshot that was verified.
func TestWhatADrillOfADunlinVerifies(t *testing.T) {
	taken := time.Unix(1_700_000_000, 0)
	newest := taken.Add(-50 * time.Minute)
	for _, row := range []struct {
		name   string
		newest *time.Time
		want   time.Time
	}{{"an App", nil, taken}, {"a Dunlin", &newest, newest}} {
		pod := endedPod(t, "", backup.Report{Kind: render.TaskVerify, Snapshot: "s1", Taken: taken, Newest: row.newest}, taken.Add(time.Minute))
		status := &v1alpha1.BackupStatus{}
		outcomeOfTask(&pod).addTo(status)
		if !status.VerifiedTaken.Time.Equal(row.want) || !status.LastVerifiedRestore.Time.Equal(taken.Add(time.Minute)) {
			t.Errorf("%s: %+v", row.name, status)
		}
	}
}

// A snapshot of a Dunlin is as fresh as the newest backup of the node in it.
func TestTheNodeMakesNoBackups(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	status := &v1alpha1.BackupStatus{LastVerifiedRestore: new(metav1.NewTime(start))}
	dunlin := &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "realtime"}}
	dunlin.Spec.Backup = &v1alpha1.Backup{Repository: &v1alpha1.Repository{Claim: "backups", File: "backup.env"}}
	dunlin.Spec.Storage = &v1alpha1.Storage{}
	var pods []corev1.Pod
	// fresh is the condition after a snapshot at a time, whose newest backup is lag older. Two passes see the same pods. In another one, the last
	// Job is gone, and those before it remain.
	fresh := func(snapshot string, hours int, lag time.Duration, wait time.Duration) reconcile.Condition {
		t.Helper()
		taken := start.Add(time.Duration(hours) * time.Hour)
		report := backup.Report{Kind: render.TaskSave, Snapshot: snapshot, Taken: taken, Newest: new(taken.Add(-lag))}
		pods = append(pods, endedPod(t, "", report, taken.Add(time.Minute)))
		var found [2]reconcile.Condition
		for pass := range found {
			for _, outcome := range taskOutcomes(pods, "") {
				outcome.addTo(status)
			}
			state := backupState(subjectOf(dunlin), status, nil, taken.Add(wait))
			for _, condition := range reconcile.Decide(reconcile.Input{Backup: state}).Conditions {
				if condition.Type == reconcile.ConditionBackupFresh {
					found[pass] = condition
				}
			}
		}
		earlier := status.DeepCopy()
		for _, outcome := range taskOutcomes(pods[:len(pods)-1], "") {
			outcome.addTo(earlier)
		}
		if failure := earlier.SaveFailure; (failure == nil) != (status.SaveFailure == nil) {
			t.Errorf("%s: the last Job is gone: %+v, %+v", snapshot, failure, status.SaveFailure)
		}
		if found[0] != found[1] || status.LastSnapshot != snapshot {
			t.Errorf("%s: %+v, %s", snapshot, found, status.LastSnapshot)
		}
		return found[1]
	}
	for _, row := range []struct {
		snapshot string
		hours    int
		lag      time.Duration
		wait     time.Duration
		reason   string
	}{
		{"s1", 1, 30 * time.Minute, time.Minute, reconcile.ReasonBackupRecent},
		{"s2", 24, 7800 * time.Second, time.Minute, reconcile.ReasonBackupRecent},
		{"s3", 48, 7801 * time.Second, time.Minute, reconcile.ReasonBackupFailed},
		// The node has made none since.
		{"s4", 72, 24*time.Hour + 7801*time.Second, time.Minute, reconcile.ReasonBackupFailed},
		{"s5", 73, time.Minute, time.Minute, reconcile.ReasonBackupRecent},
		{"s6", 97, time.Hour, 26 * time.Hour, reconcile.ReasonBackupRecent},
		{"s7", 122, time.Hour, 26*time.Hour + time.Second, reconcile.ReasonBackupOld},
	} {
		condition := fresh(row.snapshot, row.hours, row.lag, row.wait)
		if condition.Reason != row.reason || condition.Holds != (row.reason == reconcile.ReasonBackupRecent) {
			t.Errorf("%s: %+v", row.snapshot, condition)
		}
		if hasTime := strings.Contains(condition.Message, "its newest backup of the node is from 2023-11-1"); hasTime != (row.reason == reconcile.ReasonBackupFailed) {
			t.Errorf("%s: %s", row.snapshot, condition.Message)
		}
	}
}
