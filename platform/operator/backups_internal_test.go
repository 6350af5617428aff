package operator

import (
	"testing"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// An operation that is carried out stays known when spec.backup is removed: its annotation is still there when a backup is added again.
func TestAnOperationIsKnownWithoutABackup(t *testing.T) {
	for phase, expected := range map[string]string{
		v1alpha1.OperationSucceeded: v1alpha1.OperationSucceeded,
		v1alpha1.OperationRuns:      v1alpha1.OperationFailed,
	} {
		recorded := &v1alpha1.Operation{ID: "a", Kind: "restore", Snapshot: "latest", Replace: true, Phase: phase}
		without := &subject{status: &v1alpha1.Status{Backup: &v1alpha1.BackupStatus{Operation: recorded}}}
		status, err := new(Operator).backupStatus(t.Context(), without, reconcile.Input{})
		if err != nil || status == nil || status.Operation.Phase != expected {
			t.Fatalf("%s: %+v, %v", phase, status, err)
		}
		requested := *recorded
		requested.Phase = ""
		again := reconcile.NextOperation(reconcile.OperationInput{App: "shop", Recorded: status.Operation, Requested: &requested})
		if again.Phase != expected {
			t.Errorf("it is repeated: %+v", again)
		}
	}
	if status, err := new(Operator).backupStatus(t.Context(), &subject{status: &v1alpha1.Status{}}, reconcile.Input{}); status != nil || err != nil {
		t.Errorf("nothing was asked for: %+v, %v", status, err)
	}
}
