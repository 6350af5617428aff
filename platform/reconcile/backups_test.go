package reconcile

import (
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

func TestBackups(t *testing.T) {
	whole := BackupState{FreshSeconds: 100, AgeSeconds: new(int64(100)), HasRepository: true, VerifiedSeconds: 200, VerifiedAgeSeconds: new(int64(200))}
	for _, row := range []struct {
		name    string
		change  func(*BackupState)
		reason  string
		expires int64
	}{
		{"at both bounds", func(*BackupState) {}, ReasonBackupRecent, 1},
		{"only a program of the app", func(s *BackupState) { s.HasRepository = false }, ReasonRestoreNever, 1},
		{"no backup", func(s *BackupState) { s.AgeSeconds = nil }, ReasonBackupNever, 1},
		{"an old backup", func(s *BackupState) { s.AgeSeconds = new(int64(101)) }, ReasonBackupOld, 1},
		{"never verified", func(s *BackupState) { s.VerifiedAgeSeconds = nil }, ReasonRestoreNever, 1},
		{"verified long ago", func(s *BackupState) { s.VerifiedAgeSeconds = new(int64(201)) }, ReasonRestoreOld, 1},
		{"a backup that has failed", func(s *BackupState) { s.SaveFailure = "no key" }, ReasonBackupFailed, 1},
		{"a drill that has failed", func(s *BackupState) { s.VerifyFailure, s.SaveFailure = "damaged", "no key" }, ReasonRestoreFailed, 1},
		{"the backup is older first", func(s *BackupState) { s.AgeSeconds = new(int64(40)); s.VerifiedAgeSeconds = new(int64(0)) }, ReasonBackupRecent, 61},
		{"the pod does not start", func(s *BackupState) { s.Waiting, s.AgeSeconds = "no image", nil }, ReasonBackupNotStarting, 1},
		{"the pod does not start, and the last backup is fresh", func(s *BackupState) { s.Waiting = "no image" }, ReasonBackupRecent, 1},
		{"no image is named", func(s *BackupState) { s.DefaultImage, s.AgeSeconds = "none:1", nil }, ReasonBackupNever, 1},
		{"nothing expires", func(s *BackupState) { s.AgeSeconds, s.VerifiedAgeSeconds = nil, new(int64(900)) }, ReasonBackupNever, 0},
	} {
		state := whole
		row.change(&state)
		found := backupFresh(state)
		if found.Reason != row.reason || found.Holds != (row.reason == ReasonBackupRecent) || found.Message == "" {
			t.Errorf("%s: %+v", row.name, found)
		}
		if expires := state.ExpiresSeconds(); expires != row.expires {
			t.Errorf("%s: %d seconds until it changes, want %d", row.name, expires, row.expires)
		}
	}
}

func cron(name string, isSuspended bool) Manifest {
	return Manifest{"kind": "CronJob", "metadata": map[string]any{"name": name}, "spec": map[string]any{"suspend": isSuspended}}
}

func set(specReplicas, replicas int64) Manifest {
	return Manifest{
		"kind": "StatefulSet", "metadata": map[string]any{"name": "shop", "generation": int64(2), "labels": map[string]any{render.LabelApp: "shop"}},
		"spec": map[string]any{"replicas": specReplicas}, "status": map[string]any{"replicas": replicas, "observedGeneration": int64(2)},
	}
}

func task(name, condition string) Manifest {
	return Manifest{
		"kind": "Job", "metadata": map[string]any{"name": name, "labels": map[string]any{render.LabelPart: render.PartBackup}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": condition, "status": "True"}}},
	}
}

func TestPhasesOfAnOperation(t *testing.T) {
	suspended := []Manifest{cron("shop-backup", true), cron("shop-drill", true)}
	asked := &v1alpha1.Operation{ID: "b", Kind: render.TaskRestore, Snapshot: "latest"}
	at := func(phase string) *v1alpha1.Operation {
		operation := *asked
		operation.Phase = phase
		return &operation
	}
	servers := set(3, 3)
	servers["metadata"].(map[string]any)["labels"].(map[string]any)[render.LabelPart] = render.PartNATS
	before := &v1alpha1.Operation{ID: "a", Kind: render.TaskSave, Phase: v1alpha1.OperationSucceeded}
	with := func(more ...Manifest) []Manifest { return append(append([]Manifest{}, suspended...), more...) }
	for _, row := range []struct {
		name           string
		input          OperationInput
		phase, message string
	}{
		{"nothing was asked for", OperationInput{}, "", ""},
		{"the first", OperationInput{Requested: asked}, v1alpha1.OperationWaits, ""},
		{"the next", OperationInput{Recorded: before, Requested: asked}, v1alpha1.OperationWaits, ""},
		{"none of that kind", OperationInput{Requested: asked, Refusal: "no repository"}, v1alpha1.OperationFailed, "no repository"},
		{"it is done once", OperationInput{Recorded: at(v1alpha1.OperationSucceeded), Requested: asked}, v1alpha1.OperationSucceeded, ""},
		{"one after the other", OperationInput{Recorded: at(v1alpha1.OperationWaits), Requested: before}, v1alpha1.OperationWaits, "shop-backup is being suspended"},
		{"a drill is not suspended", OperationInput{Recorded: at(v1alpha1.OperationWaits), Live: []Manifest{suspended[0], cron("shop-drill", false)}}, v1alpha1.OperationWaits, "shop-drill is being"},
		{"a backup runs", OperationInput{Recorded: at(v1alpha1.OperationWaits), Live: with(task("shop-backup-1", ""))}, v1alpha1.OperationWaits, "the Job shop-backup-1 still runs"},
		{"pods are there", OperationInput{Recorded: at(v1alpha1.OperationWaits), Live: with(set(0, 1))}, v1alpha1.OperationWaits, "the pods of shop are being stopped"},
		{"pods are wanted", OperationInput{Recorded: at(v1alpha1.OperationWaits), Live: with(set(1, 0))}, v1alpha1.OperationWaits, "the pods of shop are being stopped"},
		{"NATS servers go on", OperationInput{Recorded: at(v1alpha1.OperationWaits), Live: with(set(0, 0), servers)}, v1alpha1.OperationRuns, ""},
		{"all is quiet", OperationInput{Recorded: at(v1alpha1.OperationWaits), Live: with(set(0, 0), task("shop-backup-1", "Failed"))}, v1alpha1.OperationRuns, ""},
		{"it runs", OperationInput{Recorded: at(v1alpha1.OperationRuns), Live: with(task("shop-restore-b", ""))}, v1alpha1.OperationRuns, ""},
		{"its Job is not there yet", OperationInput{Recorded: at(v1alpha1.OperationRuns)}, v1alpha1.OperationRuns, ""},
		{"its pod is not known to have ended", OperationInput{Recorded: at(v1alpha1.OperationRuns), Live: with(task("shop-restore-b", "Complete")), IsPodRunning: true}, v1alpha1.OperationRuns, ""},
		{"it is done", OperationInput{Recorded: at(v1alpha1.OperationRuns), Live: with(task("shop-restore-b", "Complete")), Report: "5 files"}, v1alpha1.OperationSucceeded, "5 files"},
		{"it has failed", OperationInput{Recorded: at(v1alpha1.OperationRuns), Live: with(task("shop-restore-b", "Failed")),
			Pods: []PodState{{Job: "other", LastOutput: "x"}, {Job: "shop-restore-b", LastOutput: "no key"}}}, v1alpha1.OperationFailed, "no key"},
		{"its pod is not known to have failed", OperationInput{Recorded: at(v1alpha1.OperationRuns), Live: with(task("shop-restore-b", "Failed")), IsPodRunning: true}, v1alpha1.OperationRuns, ""},
		{"it has failed without a word", OperationInput{Recorded: at(v1alpha1.OperationRuns), Live: with(task("shop-restore-b", "Failed"))}, v1alpha1.OperationFailed, "left no log lines"},
	} {
		row.input.App = "shop"
		found := NextOperation(row.input)
		if found == nil {
			found = &v1alpha1.Operation{}
		}
		if found.Phase != row.phase || !strings.Contains(found.Message, row.message) || row.message == "" && found.Message != "" {
			t.Errorf("%s: %+v", row.name, found)
		}
	}
	refused := NextOperation(OperationInput{App: "shop", Requested: before, RestoreUnfinished: true})
	if refused.Phase != v1alpha1.OperationFailed || !strings.Contains(refused.Message, "complete it with `roost restore`") {
		t.Errorf("a backup of parts of two states: %+v", refused)
	}
	save := &v1alpha1.Operation{ID: "c", Kind: render.TaskSave, Phase: v1alpha1.OperationWaits}
	if found := NextOperation(OperationInput{App: "shop", Recorded: save, Live: with(set(1, 1))}); found.Phase != v1alpha1.OperationRuns {
		t.Errorf("a backup waits for pods: %+v", found)
	}
}

// Whatever happens to the Job of a restore, the pods start only when it is known that each volume is in one state.
func TestARestoreThatIsInterrupted(t *testing.T) {
	const waits, runs, failed, succeeded = v1alpha1.OperationWaits, v1alpha1.OperationRuns, v1alpha1.OperationFailed, v1alpha1.OperationSucceeded
	for _, row := range []struct {
		name, kind, from, to       string
		was, isUnchanged, isBroken bool
		podsFailed                 int64
	}{
		{"pods are being stopped", render.TaskRestore, waits, waits, false, false, false, 1},
		{"it may begin", render.TaskRestore, waits, runs, false, false, true, 1},
		{"it runs", render.TaskRestore, runs, runs, true, false, true, 1},
		{"it is done", render.TaskRestore, runs, succeeded, true, false, false, 1},
		{"its pod was killed", render.TaskRestore, runs, failed, true, false, true, 1},
		{"it was refused by its pod", render.TaskRestore, runs, failed, true, true, false, 1},
		{"a pod that was killed is not there", render.TaskRestore, runs, failed, true, true, true, 2},
		{"the next waits", render.TaskRestore, waits, waits, true, false, true, 1},
		{"the next is refused", render.TaskRestore, "", failed, true, true, true, 1},
		{"a drill changes nothing", render.TaskVerify, runs, succeeded, true, false, true, 1},
		{"a backup changes nothing", render.TaskSave, runs, succeeded, false, false, false, 1},
	} {
		input := OperationInput{App: "shop", RestoreUnfinished: row.was, PodsEnded: 1, IsUnchanged: row.isUnchanged, Recorded: &v1alpha1.Operation{ID: "a", Kind: row.kind, Phase: row.from}}
		if row.from == "" {
			input.Recorded = &v1alpha1.Operation{ID: "z", Kind: render.TaskRestore, Phase: failed}
		}
		job := map[string]any{"failed": row.podsFailed}
		input.Live = []Manifest{{"kind": "Job", "metadata": map[string]any{"name": "shop-restore-a"}, "status": job}}
		next := &v1alpha1.Operation{ID: "a", Kind: row.kind, Phase: row.to}
		if found := input.RestoreUnfinishedAfter(next); found != row.isBroken {
			t.Errorf("%s: %t", row.name, found)
		}
	}
	// The pods run while a dump is loaded. So a restore becomes unfinished only when it ends, and stays so until one succeeds.
	for _, row := range []struct {
		name, from, to             string
		was, isUnchanged, isBroken bool
	}{
		{"it may begin", waits, runs, false, false, false},
		{"it runs", runs, runs, false, false, false},
		{"the next one runs", runs, runs, true, false, true},
		{"it is done", runs, succeeded, true, false, false},
		{"its command has failed", runs, failed, false, false, true},
		{"nothing was loaded", runs, failed, false, true, false},
		{"nothing was loaded after a part was", runs, failed, true, true, true},
	} {
		input := OperationInput{App: "shop", IsDump: true, RestoreUnfinished: row.was, PodsEnded: 1, IsUnchanged: row.isUnchanged,
			Recorded: &v1alpha1.Operation{ID: "a", Kind: render.TaskRestore, Phase: row.from}}
		input.Live = []Manifest{{"kind": "Job", "metadata": map[string]any{"name": "shop-restore-a"}, "status": map[string]any{"failed": int64(1)}}}
		if found := input.RestoreUnfinishedAfter(&v1alpha1.Operation{ID: "a", Kind: render.TaskRestore, Phase: row.to}); found != row.isBroken {
			t.Errorf("a dump, %s: %t", row.name, found)
		}
	}
	for _, backup := range []*BackupState{nil, {HasRepository: true}, {HasRepository: true, LoadUnfinished: true}} {
		degraded := conditionOf(Decide(Input{RestoreUnfinished: true, Backup: backup}), ConditionDegraded)
		hasAdvice := strings.Contains(degraded.Message, "set spec.backup again")
		if degraded.Reason != ReasonRestoreUnfinished || !strings.Contains(degraded.Message, "`roost restore`") || hasAdvice != (backup == nil) {
			t.Errorf("%+v", degraded)
		}
	}
}
