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
	// lostTargetsMax is how often new claims are made because the node with those before was lost while they were restored into.
	lostTargetsMax = 3
)

// NodeLossInput is what follows from the loss of a node.
type NodeLossInput struct {
	App string
	// IsRestoring is whether spec.onNodeLoss is RestoreFromBackup.
	IsRestoring bool
	// Volumes of pods that do not run.
	Volumes []LocalVolume
	Live    []Manifest
	// Status with the next phase of the operation.
	Status *v1alpha1.BackupStatus
	Now    metav1.Time
}

// AfterNodeLoss is the status with the operation that restores the last verified snapshot into new claims, if the node of the first pod's
// volume is lost and the policy says so, and with the outcome of such an operation. The app moves to the new claims only when they hold the
// snapshot. Nothing that exists is deleted.
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
			next.Operation.Message = fmt.Sprintf("node %s with volume %s is lost, so it would wait until the node is back; spec.onNodeLoss restores snapshot %s first", lost.Node, lost.Volume, next.VerifiedSnapshot)
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

// pendingLoss is the loss after which no restore has succeeded yet, or nil.
func pendingLoss(status *v1alpha1.BackupStatus) *v1alpha1.NodeLoss {
	if loss := status.NodeLoss; loss != nil && loss.Generation >= render.NextVolumeGeneration(status) {
		return loss
	}
	return nil
}

// isGivenUp is whether no further claims are made.
func isGivenUp(loss *v1alpha1.NodeLoss) bool { return loss.LostTargets >= lostTargetsMax }

// leaveLostTarget ends the present attempt if a node is lost that has a new claim. The next attempt makes claims of the generation after it:
// a pod that needs these would wait for that node.
func (input *NodeLossInput) leaveLostTarget(status *v1alpha1.BackupStatus) {
	loss, operation := status.NodeLoss, status.Operation
	if !isAttempt(operation, loss) || operation.IsEnded() {
		return
	}
	job := render.OperationName(input.App, operation)
	// The claims of a generation have the name of its first pod. The Job may read a repository from another one.
	pod := render.FirstPod(input.App, &v1alpha1.BackupStatus{VolumeGeneration: operation.Generation})
	for _, volume := range input.Volumes {
		if volume.Job != job || !strings.HasSuffix(volume.Claim, "-"+pod) || !volume.isLost() {
			continue
		}
		operation.Phase = v1alpha1.OperationFailed
		operation.Message = fmt.Sprintf("node %s was lost as well, with volume %s of the new claim %s, which are kept", volume.Node, volume.Volume, volume.Claim)
		addFailure(loss, operation, input.Now)
		loss.Generation++
		loss.LostTargets++
		return
	}
}

// hasReadyPod is whether the app, or the Dunlin, serves from its present volumes. Its policy allows one replica.
func (input *NodeLossInput) hasReadyPod(status *v1alpha1.BackupStatus) bool {
	name := render.WorkloadName(input.App, status)
	for _, object := range input.Live {
		if object["kind"] == "StatefulSet" && metadataText(object, "name") == name {
			return number(object, "status", "readyReplicas") > 0
		}
	}
	return false
}

// waitsForLostNode is whether an operation that a person has asked for may wait until the lost node is back: it needs the volume, or waits
// for a Job, whose pod may be there.
func waitsForLostNode(operation *v1alpha1.Operation) bool {
	waits := operation.Phase == v1alpha1.OperationWaits && operation.Generation == 0
	return waits && (operation.Kind != render.TaskVerify || strings.HasSuffix(operation.Message, jobRunsWords))
}

// settleNodeLoss records the outcome of the present attempt, once.
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

// isAttempt is whether an operation is the present attempt after the loss of a node.
func isAttempt(operation *v1alpha1.Operation, loss *v1alpha1.NodeLoss) bool {
	return operation != nil && loss != nil && operation.ID == attemptID(loss) && operation.Generation == loss.Generation
}

// attemptID identifies the operation of the present attempt.
func attemptID(loss *v1alpha1.NodeLoss) string {
	return fmt.Sprintf("g%da%d", loss.Generation, loss.Failures+1)
}

// requestedBefore is the operation that a person has asked for last, so that its annotation does not begin it again.
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

// firstLost is the lost volume of the first pod, which uses the claims of the status: that of others is not saved.
func (input *NodeLossInput) firstLost(status *v1alpha1.BackupStatus) *LocalVolume {
	first := render.FirstPod(input.App, status)
	for index := range input.Volumes {
		if volume := &input.Volumes[index]; volume.Pod == first && volume.isLost() {
			return volume
		}
	}
	return nil
}

// isAfter is whether this is another loss than the recorded one: of another node, or of the same node after it was back.
func (volume *LocalVolume) isAfter(loss *v1alpha1.NodeLoss) bool {
	return volume.Node != loss.Node || loss.Back != nil || volume.NotReadyFrom != nil && volume.NotReadyFrom.After(loss.Lost.Time)
}

// since is when the node was last ready, as far as is known.
func (volume *LocalVolume) since(now metav1.Time) metav1.Time {
	if volume.NotReadyFrom != nil {
		return *volume.NotReadyFrom
	}
	return now
}

// timeText is a time as statuses have it.
func timeText(when metav1.Time) string { return when.UTC().Format("2006-01-02T15:04:05Z") }

// windowOf is between the snapshot and the loss of the node: what was written in it is lost.
func windowOf(loss *v1alpha1.NodeLoss) string {
	if loss.Taken == nil {
		return "what was written after the snapshot is lost"
	}
	return fmt.Sprintf("what was written from %s to %s, in %s, is lost", timeText(*loss.Taken), timeText(loss.Lost),
		loss.Lost.Sub(loss.Taken.Time).Round(1e9))
}

// SentenceOfLoss says what was restored after the loss of a node, and what is lost.
func SentenceOfLoss(loss *v1alpha1.NodeLoss) string {
	return fmt.Sprintf("node %s was lost with volume %s of claim %s, which are kept; snapshot %s was restored into claims of generation %d; %s",
		loss.Node, loss.Volume, loss.Claim, loss.Snapshot, loss.Generation, windowOf(loss))
}

// PolicyOf says what RestoreFromBackup does about a node that is lost.
func PolicyOf(status *v1alpha1.BackupStatus) string {
	switch loss, operation := status.NodeLoss, status.Operation; {
	case status.VerifiedSnapshot == "":
		return "spec.onNodeLoss is RestoreFromBackup, and no restore was verified yet, so nothing is restored"
	case !operation.IsEnded() && operation.Generation > 0:
		return fmt.Sprintf("Snapshot %s is being restored into claims of generation %d; %s", operation.Snapshot, operation.Generation, windowOf(loss))
	case pendingLoss(status) == nil || loss.Failed == nil:
	case isGivenUp(loss):
		return fmt.Sprintf("The restore of snapshot %s was ended %d times, because the node with the new claims was lost as well, and is not tried again. "+
			"The last time: %s", loss.Snapshot, loss.LostTargets, loss.Failure)
	default:
		return fmt.Sprintf("The restore of snapshot %s has failed, and is tried again every %d seconds into claims of generation %d: %s",
			loss.Snapshot, retrySeconds, loss.Generation, cmp.Or(loss.Failure, "its cause was not recorded"))
	}
	return ""
}
