package reconcile

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	// retrySeconds is the pause between two attempts to restore into new volumes.
	retrySeconds = 600
	// lostTargetsMax bounds how often new claims are created because the node with the previous new claims was lost during a restore.
	lostTargetsMax = 3
)

// NodeLossInput is the input of AfterNodeLoss.
type NodeLossInput struct {
	App string
	// IsRestoring is true if spec.onNodeLoss is RestoreFromBackup.
	IsRestoring bool
	// Volumes of pods that do not run.
	Volumes []LocalVolume
	Live    []Manifest
	// Status with the next phase of the operation.
	Status *v1alpha1.BackupStatus
	Now    metav1.Time
}

// AfterNodeLoss returns the status with the outcome of a restore after the loss of a node. If the node of the first pod's volume is lost and the
// policy is RestoreFromBackup, it adds the operation that restores the last verified snapshot into new claims. The app moves to the new claims
// only when they hold the snapshot. Nothing that exists is deleted.
func AfterNodeLoss(input NodeLossInput) *v1alpha1.BackupStatus {
	next := input.Status.DeepCopy()
	settleNodeLoss(next, input.Now)
	input.leaveLostTarget(next)
	lost := input.firstLost(next)
	loss := pendingLoss(next)
	if loss != nil && lost == nil && next.Operation.IsEnded() && loss.Back == nil && input.hasReadyPod(next) {
		loss.Back = &input.Now
	}
	if !input.IsRestoring || lost == nil || next.VerifiedSnapshot == "" {
		return next
	}
	if !next.Operation.IsEnded() {
		if waitsForLostNode(next.Operation) && (loss == nil || !isGivenUp(loss)) {
			next.Operation.Phase = v1alpha1.OperationFailed
			next.Operation.Message = fmt.Sprintf("node %s with volume %s is lost, so the operation would wait until the node is back; spec.onNodeLoss restores snapshot %s first", lost.Node, lost.Volume, next.VerifiedSnapshot)
		}
		return next
	}
	isNew := loss == nil
	if isNew {
		loss = &v1alpha1.NodeLoss{Generation: render.NextVolumeGeneration(next)}
	}
	if isNew || lost.isAfter(loss) {
		loss.Node, loss.Claim, loss.Volume, loss.Lost = lost.Node, lost.Claim, lost.Volume, lost.since(input.Now)
		loss.Back, loss.LostTargets = nil, 0
	}
	if isGivenUp(loss) || loss.Failed != nil && input.Now.Sub(loss.Failed.Time).Seconds() < retrySeconds {
		return next
	}
	loss.Requested = requestedBefore(next)
	loss.Snapshot, loss.Taken = next.VerifiedSnapshot, next.VerifiedTaken
	next.NodeLoss = loss
	next.Operation = &v1alpha1.Operation{
		ID: attemptID(loss), Kind: render.TaskRestore, Snapshot: loss.Snapshot, Replace: true, Phase: v1alpha1.OperationWaits, Generation: loss.Generation,
	}
	return next
}

// pendingLoss returns the loss after which no restore has succeeded yet, or nil.
func pendingLoss(status *v1alpha1.BackupStatus) *v1alpha1.NodeLoss {
	if loss := status.NodeLoss; loss != nil && loss.Generation >= render.NextVolumeGeneration(status) {
		return loss
	}
	return nil
}

// isGivenUp reports whether no further claims are created.
func isGivenUp(loss *v1alpha1.NodeLoss) bool { return loss.LostTargets >= lostTargetsMax }

// leaveLostTarget fails the current attempt if the node of a new claim is lost. The next attempt creates claims of the next generation: a pod
// that needs the current ones would wait for that node.
func (input *NodeLossInput) leaveLostTarget(status *v1alpha1.BackupStatus) {
	loss, operation := status.NodeLoss, status.Operation
	if !isAttempt(operation, loss) || operation.IsEnded() {
		return
	}
	job := render.OperationName(input.App, operation)
	// The claims of a generation have the name of its first pod. The Job may read a repository from another claim.
	pod := render.FirstPod(input.App, &v1alpha1.BackupStatus{VolumeGeneration: operation.Generation})
	for _, volume := range input.Volumes {
		if volume.Job != job || !strings.HasSuffix(volume.Claim, "-"+pod) || !volume.isLost() {
			continue
		}
		operation.Phase = v1alpha1.OperationFailed
		operation.Message = fmt.Sprintf("node %s was also lost, with volume %s of the new claim %s; the volume and the claim are kept", volume.Node, volume.Volume, volume.Claim)
		addFailure(loss, operation, input.Now)
		loss.Generation++
		loss.LostTargets++
		return
	}
}

// hasReadyPod reports whether the app, or the Dunlin, serves from its current volumes. Its policy allows one replica.
func (input *NodeLossInput) hasReadyPod(status *v1alpha1.BackupStatus) bool {
	name := render.WorkloadName(input.App, status)
	for _, object := range input.Live {
		if object["kind"] == "StatefulSet" && metadataText(object, "name") == name {
			return number(object, "status", "readyReplicas") > 0
		}
	}
	return false
}

// waitsForLostNode reports whether an operation that was requested by a user may wait until the lost node is back: it needs the volume, or waits
// for a Job whose pod may be on that node.
func waitsForLostNode(operation *v1alpha1.Operation) bool {
	waits := operation.Phase == v1alpha1.OperationWaits && operation.Generation == 0
	return waits && (operation.Kind != render.TaskVerify || strings.HasSuffix(operation.Message, jobRunsWords))
}

// settleNodeLoss records the outcome of the current attempt once.
func settleNodeLoss(status *v1alpha1.BackupStatus, now metav1.Time) {
	loss, operation := status.NodeLoss, status.Operation
	if !isAttempt(operation, loss) || loss.Generation <= status.VolumeGeneration {
		return
	}
	switch operation.Phase {
	case v1alpha1.OperationSucceeded:
		loss.Restored, loss.Failed, loss.Failure = &now, nil, ""
		status.VolumeGeneration, status.RestoreUnfinished = loss.Generation, false
		operation.Message = SentenceOfLoss(loss)
	case v1alpha1.OperationFailed:
		addFailure(loss, operation, now)
	}
}

func addFailure(loss *v1alpha1.NodeLoss, operation *v1alpha1.Operation, now metav1.Time) {
	loss.Failures++
	loss.Failed, loss.Failure = &now, operation.Message
}

// isAttempt reports whether an operation is the current attempt after the loss of a node.
func isAttempt(operation *v1alpha1.Operation, loss *v1alpha1.NodeLoss) bool {
	return operation != nil && loss != nil && operation.ID == attemptID(loss) && operation.Generation == loss.Generation
}

// attemptID identifies the operation of the current attempt.
func attemptID(loss *v1alpha1.NodeLoss) string {
	return fmt.Sprintf("g%da%d", loss.Generation, loss.Failures+1)
}

// requestedBefore returns the last operation that was requested by a user, so that its annotation does not start it again.
func requestedBefore(status *v1alpha1.BackupStatus) string {
	switch operation := status.Operation; {
	case operation == nil:
		return ""
	case operation.Generation == 0:
		return operation.ID
	case status.NodeLoss != nil:
		return status.NodeLoss.Requested
	}
	return ""
}

// firstLost returns the lost volume of the first pod, which uses the claims of the status. Volumes of other pods are not saved.
func (input *NodeLossInput) firstLost(status *v1alpha1.BackupStatus) *LocalVolume {
	first := render.FirstPod(input.App, status)
	for index := range input.Volumes {
		if volume := &input.Volumes[index]; volume.Pod == first && volume.isLost() {
			return volume
		}
	}
	return nil
}

// isAfter reports whether this is another loss than the recorded one: of another node, or of the same node after it was back.
func (volume *LocalVolume) isAfter(loss *v1alpha1.NodeLoss) bool {
	return volume.Node != loss.Node || loss.Back != nil || volume.NotReadyFrom != nil && volume.NotReadyFrom.After(loss.Lost.Time)
}

// since returns when the node was last ready, as far as is known.
func (volume *LocalVolume) since(now metav1.Time) metav1.Time {
	if volume.NotReadyFrom != nil {
		return *volume.NotReadyFrom
	}
	return now
}

// timeText formats a time as statuses do.
func timeText(when metav1.Time) string { return when.UTC().Format("2006-01-02T15:04:05Z") }

// windowOf describes the time between the snapshot and the loss of the node. Data that was written in that time is lost.
func windowOf(loss *v1alpha1.NodeLoss) string {
	if loss.Taken == nil {
		return "data that was written after the snapshot is lost"
	}
	return fmt.Sprintf("data that was written from %s to %s (%s) is lost", timeText(*loss.Taken), timeText(loss.Lost),
		loss.Lost.Sub(loss.Taken.Time).Round(1e9))
}

// SentenceOfLoss describes what was restored after the loss of a node, and what is lost.
func SentenceOfLoss(loss *v1alpha1.NodeLoss) string {
	return fmt.Sprintf("node %s was lost with volume %s of claim %s; the volume and the claim are kept; snapshot %s was restored into claims of generation %d; %s",
		loss.Node, loss.Volume, loss.Claim, loss.Snapshot, loss.Generation, windowOf(loss))
}

// PolicyOf describes what RestoreFromBackup does about a lost node.
func PolicyOf(status *v1alpha1.BackupStatus) string {
	switch loss, operation := status.NodeLoss, status.Operation; {
	case status.VerifiedSnapshot == "":
		return "spec.onNodeLoss is RestoreFromBackup, and no restore was verified yet, so nothing is restored"
	case !operation.IsEnded() && operation.Generation > 0:
		return fmt.Sprintf("Snapshot %s is being restored into claims of generation %d; %s", operation.Snapshot, operation.Generation, windowOf(loss))
	case pendingLoss(status) == nil || loss.Failed == nil:
	case isGivenUp(loss):
		return fmt.Sprintf("The restore of snapshot %s failed %d times because the node with the new claims was also lost, and is not retried. "+
			"The last failure: %s", loss.Snapshot, loss.LostTargets, loss.Failure)
	default:
		return fmt.Sprintf("The restore of snapshot %s failed, and is retried every %d seconds into claims of generation %d: %s",
			loss.Snapshot, retrySeconds, loss.Generation, cmp.Or(loss.Failure, "its cause was not recorded"))
	}
	return ""
}
