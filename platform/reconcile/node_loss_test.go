package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

var (
	lossTime = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	// lostNode has not been ready for longer than a restart takes.
	lostNode = LocalVolume{
		Pod: "shop-0", Claim: "data-shop-0", Volume: "pvc-1", Node: "m2", IsNodeThere: true, NotReadySeconds: new(int64(301)), NotReadySince: "2026-05-04T11:54:59Z",
		NotReadyFrom: new(metav1.NewTime(lossTime.Add(-301 * time.Second))),
	}
)

func verifiedStatus() *v1alpha1.BackupStatus {
	taken := metav1.NewTime(lossTime.Add(-8 * time.Hour))
	return &v1alpha1.BackupStatus{VerifiedSnapshot: "1f2e3d4c", VerifiedTaken: &taken}
}

func TestARestoreAfterTheLossOfANode(t *testing.T) {
	for _, row := range []struct {
		name    string
		change  func(*NodeLossInput)
		isBegun bool
	}{
		{"the policy", func(*NodeLossInput) {}, true},
		{"wait", func(i *NodeLossInput) { i.IsRestoring = false }, false},
		{"the node may be restarting", func(i *NodeLossInput) { i.Volumes[0].NotReadySeconds = new(int64(300)) }, false},
		{"the node is deleted", func(i *NodeLossInput) {
			i.Volumes[0].IsNodeThere, i.Volumes[0].NotReadySeconds, i.Volumes[0].NotReadyFrom = false, nil, nil
		}, true},
		{"a pod that is not saved", func(i *NodeLossInput) { i.Volumes[0].Pod = "shop-1" }, false},
		{"the pod of earlier volumes", func(i *NodeLossInput) { i.Status.VolumeGeneration = 2 }, false},
		{"no verified snapshot", func(i *NodeLossInput) { i.Status.VerifiedSnapshot = "" }, false},
		{"another operation runs", func(i *NodeLossInput) {
			i.Status.Operation = &v1alpha1.Operation{ID: "a", Phase: v1alpha1.OperationRuns}
		}, false},
		{"another operation has ended", func(i *NodeLossInput) {
			i.Status.Operation = &v1alpha1.Operation{ID: "a", Phase: v1alpha1.OperationFailed}
		}, true},
	} {
		input := NodeLossInput{App: "shop", IsRestoring: true, Volumes: []LocalVolume{lostNode}, Status: verifiedStatus(), Now: metav1.NewTime(lossTime)}
		row.change(&input)
		before := input.Status.Operation
		next := AfterNodeLoss(input)
		isBegun := next.Operation != nil && next.Operation.ID == "g2a1"
		if isBegun != row.isBegun {
			t.Errorf("%s: %+v", row.name, next.Operation)
		}
		if !isBegun {
			continue
		}
		operation, loss := next.Operation, next.NodeLoss
		isRestore := operation.Kind == render.TaskRestore && operation.Snapshot == "1f2e3d4c" && operation.Generation == 2 && operation.Phase == v1alpha1.OperationWaits
		if !isRestore || next.VolumeGeneration != 0 || loss.Node != "m2" || loss.Claim != "data-shop-0" || loss.Lost.IsZero() || input.Status.Operation != before {
			t.Errorf("%s: %+v, %+v", row.name, operation, loss)
		}
		if isRequested := before != nil; isRequested != (loss.Requested == "a") {
			t.Errorf("%s: the operation of before: %q", row.name, loss.Requested)
		}
	}
}

// A failed attempt changes nothing, and is repeated after a pause. A successful attempt moves the app, once.
func TestAttemptsAfterTheLossOfANode(t *testing.T) {
	input := NodeLossInput{App: "shop", IsRestoring: true, Volumes: []LocalVolume{lostNode}, Status: verifiedStatus(), Now: metav1.NewTime(lossTime)}
	next := AfterNodeLoss(input)
	pass := func(phase string, after time.Duration) {
		next = next.DeepCopy()
		next.Operation.Phase = phase
		input.Status, input.Now = next, metav1.NewTime(input.Now.Add(after))
		next = AfterNodeLoss(input)
	}
	pass(v1alpha1.OperationRuns, time.Minute)
	if text := PolicyOf(next); !strings.Contains(text, "being restored into claims of generation 2; data that was written from 2026-05-04T04:00:00Z to 2026-05-04T11:54:59Z (7h54m59s) is lost") {
		t.Error(text)
	}
	pass(v1alpha1.OperationFailed, time.Minute)
	pass(v1alpha1.OperationFailed, 599*time.Second)
	if next.NodeLoss.Failures != 1 || next.VolumeGeneration != 0 || next.Operation.ID != "g2a1" || !strings.Contains(PolicyOf(next), "failed, and is retried") {
		t.Fatalf("%+v, %+v", next.NodeLoss, next.Operation)
	}
	pass(v1alpha1.OperationFailed, time.Second)
	if next.Operation.ID != "g2a2" || next.Operation.Generation != 2 {
		t.Fatalf("%+v", next.Operation)
	}
	if event := restoredLoss(input.Status, next); event != nil {
		t.Errorf("an event: %+v", event)
	}
	// The node comes back during the restore, and the restore continues.
	input.Volumes = nil
	if pass(v1alpha1.OperationRuns, time.Minute); next.Operation.ID != "g2a2" {
		t.Fatalf("%+v", next.Operation)
	}
	// The app moves once, whether the node is back or not.
	input.Volumes, next.RestoreUnfinished = []LocalVolume{lostNode}, true
	before := next
	pass(v1alpha1.OperationSucceeded, time.Minute)
	if next.VolumeGeneration != 2 || next.RestoreUnfinished || next.NodeLoss.Restored == nil || !strings.Contains(next.Operation.Message, "(7h54m59s) is lost") {
		t.Fatalf("%+v, %+v", next.NodeLoss, next.Operation)
	}
	if event := restoredLoss(before, next); event == nil || event.Node != "m2" {
		t.Errorf("no event: %+v", event)
	}
	restored := next
	pass(v1alpha1.OperationSucceeded, time.Hour)
	if next.VolumeGeneration != 2 || !next.NodeLoss.Restored.Equal(restored.NodeLoss.Restored) {
		t.Errorf("%+v", next.NodeLoss)
	}
	// The next node with the next volumes is lost.
	lost := lostNode
	lost.Pod, lost.Claim = "shop-gen2-0", "data-shop-gen2-0"
	input.Volumes = []LocalVolume{lostNode, lost}
	pass(v1alpha1.OperationSucceeded, time.Hour)
	if next.Operation.ID != "g3a1" || next.NodeLoss.Claim != "data-shop-gen2-0" {
		t.Errorf("%+v", next.Operation)
	}
	// An operation that the user requested before the loss does not run again.
	asked := &v1alpha1.Operation{ID: "a", Kind: render.TaskRestore}
	done := &v1alpha1.Operation{ID: "g2a1", Generation: 2, Phase: v1alpha1.OperationSucceeded}
	if found := NextOperation(OperationInput{App: "shop", Recorded: done, Requested: asked, RequestedBefore: "a"}); found.ID != "g2a1" {
		t.Errorf("%+v", found)
	}
	if found := NextOperation(OperationInput{App: "shop", Recorded: done, Requested: &v1alpha1.Operation{ID: "b"}, RequestedBefore: "a"}); found.ID != "b" {
		t.Errorf("%+v", found)
	}
}

// The first restore fails, and the node comes back. The recorded values describe the loss for which the operator restores, and the number of
// attempts keeps counting.
func TestAnotherLossInTheSameGeneration(t *testing.T) {
	later := metav1.NewTime(lossTime.Add(24 * time.Hour))
	for name, change := range map[string]func(*LocalVolume){
		"another node":   func(v *LocalVolume) { v.Node, v.Volume, v.NotReadyFrom = "m3", "pvc-3", nil },
		"the same again": func(v *LocalVolume) { v.NotReadyFrom = new(metav1.NewTime(later.Add(-301 * time.Second))) },
		"the same still": func(*LocalVolume) {},
	} {
		lost := lostNode
		change(&lost)
		status := verifiedStatus()
		status.Operation = &v1alpha1.Operation{ID: "g2a1", Kind: render.TaskRestore, Phase: v1alpha1.OperationFailed, Generation: 2}
		failed := metav1.NewTime(lossTime)
		status.NodeLoss = &v1alpha1.NodeLoss{
			Node: "m2", Claim: "data-shop-0", Volume: "pvc-1", Lost: *lostNode.NotReadyFrom, Generation: 2, Failures: 1, Failed: &failed,
		}
		next := AfterNodeLoss(NodeLossInput{App: "shop", IsRestoring: true, Volumes: []LocalVolume{lost}, Status: status, Now: later})
		expected := lost.since(later)
		if loss := next.NodeLoss; loss.Node != lost.Node || loss.Volume != lost.Volume || !loss.Lost.Equal(&expected) || loss.Failures != 1 || next.Operation.ID != "g2a2" {
			t.Errorf("%s: %+v, %+v", name, loss, next.Operation)
		}
	}
}

// The node with the new claim is lost before the restore succeeds. A pod that needs that claim would wait forever, so the next attempt creates
// claims of the next generation, a bounded number of times.
func TestTheNodeWithTheNewClaimIsLostAsWell(t *testing.T) {
	target := LocalVolume{Pod: "shop-restore-g2a1-x", Job: "shop-restore-g2a1", Claim: "data-shop-gen2-0", Volume: "pvc-2", Node: "m3"}
	input := NodeLossInput{App: "shop", IsRestoring: true, Volumes: []LocalVolume{lostNode}, Status: verifiedStatus(), Now: metav1.NewTime(lossTime)}
	pass := func(after time.Duration, volumes ...LocalVolume) *v1alpha1.BackupStatus {
		input.Now, input.Volumes = metav1.NewTime(input.Now.Add(after)), volumes
		input.Status = AfterNodeLoss(input)
		return input.Status
	}
	pass(0, lostNode)
	other := target
	other.Job = "shop-restore-g1a1"
	ready := target
	ready.IsNodeThere = true
	// The Job reads the repository, whose claim has no generation. The store may come back, so no target is lost.
	repository := target
	repository.Claim = "backups"
	for _, volume := range []LocalVolume{other, ready, repository} {
		input.Status.Operation.Phase = v1alpha1.OperationRuns
		if next := pass(time.Minute, volume); next.Operation.IsEnded() || next.NodeLoss.Generation != 2 {
			t.Fatalf("%+v: %+v", volume, next.Operation)
		}
	}
	for attempt := 1; attempt <= lostTargetsMax; attempt++ {
		operation := input.Status.Operation
		if operation.Generation != int32(attempt+1) || operation.ID != fmt.Sprintf("g%da%d", attempt+1, attempt) {
			t.Fatalf("attempt %d: %+v", attempt, operation)
		}
		operation.Phase = v1alpha1.OperationRuns
		// The pods of the app stay stopped.
		lost := target
		lost.Job = render.OperationName("shop", operation)
		lost.Claim = fmt.Sprintf("data-shop-gen%d-0", operation.Generation)
		next := pass(time.Minute, lost)
		if next.Operation.Phase != v1alpha1.OperationFailed || !strings.Contains(next.Operation.Message, "node m3 was also lost, with volume pvc-2 of the new claim "+lost.Claim) {
			t.Fatalf("attempt %d: %+v", attempt, next.Operation)
		}
		if next = pass(599*time.Second, lostNode); !next.Operation.IsEnded() || next.VolumeGeneration != 0 || next.NodeLoss.Failures != int32(attempt) {
			t.Fatalf("attempt %d: %+v, %+v", attempt, next.Operation, next.NodeLoss)
		}
		if text := PolicyOf(next); strings.Contains(text, "is retried every 600 seconds into claims") == (attempt == lostTargetsMax) {
			t.Errorf("attempt %d: %s", attempt, text)
		}
		pass(time.Second, lostNode)
	}
	next := pass(24*time.Hour, lostNode)
	if text := PolicyOf(next); !next.Operation.IsEnded() || !strings.Contains(text, "failed 3 times") || !strings.Contains(text, "node m3 was also lost") {
		t.Fatalf("%+v: %s", next.Operation, text)
	}
	// The user may request an operation. The message still describes the restores.
	input.Status.Operation = &v1alpha1.Operation{ID: "b", Kind: render.TaskRestore, Phase: v1alpha1.OperationWaits, Message: "the pods of shop are being stopped"}
	if next = pass(time.Minute, lostNode); next.Operation.IsEnded() || !strings.Contains(PolicyOf(next), "node m3 was also lost") {
		t.Errorf("%+v: %s", next.Operation, PolicyOf(next))
	}
	input.Status.Operation.Phase = v1alpha1.OperationFailed
	// Another node with the old volume is another loss.
	again := lostNode
	again.Node = "m4"
	if next = pass(time.Hour, again); next.Operation.ID != "g5a4" || next.NodeLoss.LostTargets != 0 {
		t.Errorf("%+v, %+v", next.Operation, next.NodeLoss)
	}
	next.Operation.Phase = v1alpha1.OperationSucceeded
	if next = pass(time.Minute); next.VolumeGeneration != 5 || render.WorkloadName("shop", next) != "shop-gen5" {
		t.Errorf("%+v", next)
	}
}

// The restore fails, the app serves from its volume again, and then the object of the same node is deleted. That loss begins when the operator
// finds it.
func TestTheSameNodeIsDeletedLater(t *testing.T) {
	for _, row := range []struct {
		name  string
		ready int64
	}{{"it has served", 1}, {"it has not", 0}} {
		status := verifiedStatus()
		status.Operation = &v1alpha1.Operation{ID: "g2a1", Kind: render.TaskRestore, Phase: v1alpha1.OperationFailed, Generation: 2}
		status.NodeLoss = &v1alpha1.NodeLoss{Node: "m2", Generation: 2, Lost: *lostNode.NotReadyFrom, Failures: 1, Failed: new(metav1.NewTime(lossTime)), LostTargets: 2}
		set := Manifest{"kind": "StatefulSet", "metadata": map[string]any{"name": "shop"}, "status": map[string]any{"readyReplicas": row.ready}}
		back := metav1.NewTime(lossTime.Add(time.Hour))
		input := NodeLossInput{App: "shop", IsRestoring: true, Live: []Manifest{set}, Status: status, Now: back}
		next := AfterNodeLoss(input)
		if (next.NodeLoss.Back != nil) != (row.ready > 0) {
			t.Errorf("%s: %+v", row.name, next.NodeLoss)
		}
		lost := lostNode
		lost.IsNodeThere, lost.NotReadySeconds, lost.NotReadyFrom = false, nil, nil
		input.Status, input.Volumes, input.Now = next, []LocalVolume{lost}, metav1.NewTime(lossTime.Add(24*time.Hour))
		next = AfterNodeLoss(input)
		expected := *lostNode.NotReadyFrom
		if row.ready > 0 {
			expected = input.Now
		}
		if loss := next.NodeLoss; !loss.Lost.Equal(&expected) || loss.Back != nil || next.Operation.ID != "g2a2" || (loss.LostTargets == 0) != (row.ready > 0) {
			t.Errorf("%s: %+v, %+v", row.name, loss, next.Operation)
		}
	}
}

// An operation that the user requested after an attempt has its own message, not that of the attempt.
func TestTheFailureOfAnAttemptIsKept(t *testing.T) {
	status := verifiedStatus()
	status.NodeLoss = &v1alpha1.NodeLoss{Node: "m2", Generation: 2}
	status.Operation = &v1alpha1.Operation{ID: "g2a1", Kind: render.TaskRestore, Phase: v1alpha1.OperationFailed, Generation: 2, Message: "the store is down"}
	next := AfterNodeLoss(NodeLossInput{App: "shop", IsRestoring: true, Volumes: []LocalVolume{lostNode}, Status: status, Now: metav1.NewTime(lossTime)})
	next.Operation = &v1alpha1.Operation{ID: "b", Kind: render.TaskVerify, Phase: v1alpha1.OperationSucceeded, Message: "snapshot restored and compared"}
	if text := PolicyOf(next); !strings.Contains(text, "the store is down") || strings.Contains(text, "compared") {
		t.Error(text)
	}
}

// Between two attempts, the user requests an operation. Its annotation stays, and does not start the operation again after the next attempt.
func TestAnOperationBetweenTwoAttempts(t *testing.T) {
	status := verifiedStatus()
	status.NodeLoss = &v1alpha1.NodeLoss{Node: "m2", Generation: 2, Failures: 1, Failed: new(metav1.NewTime(lossTime.Add(-time.Hour))), Requested: "a"}
	status.Operation = &v1alpha1.Operation{ID: "b", Kind: render.TaskVerify, Phase: v1alpha1.OperationSucceeded}
	next := AfterNodeLoss(NodeLossInput{App: "shop", IsRestoring: true, Volumes: []LocalVolume{lostNode}, Status: status, Now: metav1.NewTime(lossTime)})
	if next.Operation.ID != "g2a2" || next.NodeLoss.Requested != "b" {
		t.Fatalf("%+v, %+v", next.Operation, next.NodeLoss)
	}
	next.Operation.Phase = v1alpha1.OperationSucceeded
	requested := &v1alpha1.Operation{ID: "b", Kind: render.TaskVerify}
	again := NextOperation(OperationInput{App: "shop", Recorded: next.Operation, Requested: requested, RequestedBefore: next.NodeLoss.Requested})
	if again.ID != "g2a2" {
		t.Errorf("it is repeated: %+v", again)
	}
}

// An operation that the user has requested does not wait for the lost node: it fails with the reason, and the restore begins.
func TestAnOperationThatWaitsForALostNode(t *testing.T) {
	for _, row := range []struct {
		operation v1alpha1.Operation
		isEnded   bool
	}{
		{v1alpha1.Operation{Kind: render.TaskRestore, Phase: v1alpha1.OperationWaits, Message: "the pods of shop are being stopped"}, true},
		{v1alpha1.Operation{Kind: render.TaskSave, Phase: v1alpha1.OperationWaits, Message: "the Job shop-backup-1 still runs"}, true},
		{v1alpha1.Operation{Kind: render.TaskVerify, Phase: v1alpha1.OperationWaits, Message: "the Job shop-backup-1 still runs"}, true},
		{v1alpha1.Operation{Kind: render.TaskVerify, Phase: v1alpha1.OperationWaits, Message: "the CronJob shop-drill is being suspended"}, false},
		{v1alpha1.Operation{Kind: render.TaskRestore, Phase: v1alpha1.OperationRuns}, false},
		{v1alpha1.Operation{Kind: render.TaskRestore, Phase: v1alpha1.OperationWaits, Generation: 2}, false},
	} {
		status := verifiedStatus()
		row.operation.ID, status.Operation = "a", &row.operation
		input := NodeLossInput{App: "shop", IsRestoring: true, Volumes: []LocalVolume{lostNode}, Status: status, Now: metav1.NewTime(lossTime)}
		next := AfterNodeLoss(input)
		hasReason := strings.Contains(next.Operation.Message, "node m2 with volume pvc-1 is lost")
		if next.Operation.ID != "a" || next.Operation.IsEnded() != row.isEnded || hasReason != row.isEnded {
			t.Errorf("%+v: %+v", row.operation, next.Operation)
		}
		input.Status = next
		if begun := AfterNodeLoss(input); row.isEnded && (begun.Operation.ID != "g2a1" || begun.NodeLoss.Requested != "a") {
			t.Errorf("%+v: %+v", row.operation, begun.Operation)
		}
	}
}

// A claim is created once, without an owner. Roost does not restore into a foreign claim.
func TestClaimsOfARestore(t *testing.T) {
	claim := Manifest{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": "data-shop-gen2-0"}}
	job := Manifest{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{
		"name": "shop-restore-g2a1", "labels": map[string]any{render.LabelPart: render.PartBackup},
	}}
	input := Input{Owner: Owner{Name: "shop", UID: "own"}, Desired: []Manifest{claim, job}}
	result := Decide(input)
	if len(result.Writes) != 2 || result.Writes[0].Kind != WriteCreate || annotation(result.Writes[0].Object, render.AnnotationAppUID) != "own" || controllerOf(result.Writes[0].Object) != nil {
		t.Fatalf("%+v", result.Writes)
	}
	own := result.Writes[0].Object
	input.Live = []Manifest{own}
	if result := Decide(input); len(result.Writes) != 1 || result.Writes[0].Kind != WriteApply || len(result.Inventory) != 0 {
		t.Errorf("%+v, %+v", result.Writes, result.Inventory)
	}
	input.Live = []Manifest{claim}
	if result := Decide(input); len(result.Writes) != 0 || conditionOf(result, ConditionDegraded).Reason != ReasonNameTaken {
		t.Errorf("%+v", result)
	}
	// Later, the claim is neither wanted nor deleted.
	input.Live, input.Desired = []Manifest{own}, nil
	if result := Decide(input); len(result.Writes) != 0 {
		t.Errorf("%+v", result.Writes)
	}
}
