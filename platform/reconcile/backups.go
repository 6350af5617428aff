package reconcile

import (
	"fmt"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// BackupState is the state of the backups of an App or a Dunlin. A backup counts only after a restore of it was verified.
type BackupState struct {
	FreshSeconds int64
	// AgeSeconds of the last backup. Nil if there was none.
	AgeSeconds *int64
	// LastBackup is the time of the last backup in the repository, as text. Empty if there was none.
	LastBackup string
	// HasRepository is true if restores can be verified.
	HasRepository bool
	// LoadUnfinished is true if the app may have only a part of a dump.
	LoadUnfinished  bool
	VerifiedSeconds int64
	// VerifiedAgeSeconds of the last verified restore. Nil if there was none.
	VerifiedAgeSeconds *int64
	// FirstPod is the pod whose volumes are saved.
	FirstPod string
	// Policy describes what RestoreFromBackup does about a lost node. Empty if the app waits.
	Policy string
	// SaveFailure and VerifyFailure are the last output of the last backup and of the last drill. Empty unless they have failed.
	SaveFailure, VerifyFailure string
	// Waiting is why the pod of a backup or of a drill does not start. Empty otherwise.
	Waiting string
	// DefaultImage is the image that the pods use because the operator has no setting for it. Empty otherwise.
	DefaultImage string
}

// ExpiresSeconds returns the time until the condition changes without a new event, or 0.
func (state BackupState) ExpiresSeconds() int64 {
	next := int64(0)
	for _, bound := range []struct {
		age  *int64
		most int64
	}{{state.AgeSeconds, state.FreshSeconds}, {state.VerifiedAgeSeconds, state.VerifiedSeconds}} {
		if bound.age != nil && *bound.age <= bound.most && (next == 0 || bound.most-*bound.age+1 < next) {
			next = bound.most - *bound.age + 1
		}
	}
	return next
}

func isRecent(age *int64, fresh int64, verified *int64, verifiedMost int64) bool {
	return age != nil && *age <= fresh && verified != nil && *verified <= verifiedMost
}

func backupFresh(state BackupState) Condition {
	condition := Condition{Type: ConditionBackupFresh}
	switch age, verified := state.AgeSeconds, state.VerifiedAgeSeconds; {
	case !state.HasRepository:
		condition.Reason = ReasonRestoreNever
		condition.Message = "no drill restores the dumps of spec.backup.command, so they do not count as backups; set spec.backup.repository"
	case state.VerifyFailure != "":
		condition.Reason, condition.Message = ReasonRestoreFailed, "the last drill failed: "+tail(state.VerifyFailure, lastOutputBytesMax)
	case state.SaveFailure != "":
		condition.Reason, condition.Message = ReasonBackupFailed, "the last backup failed: "+tail(state.SaveFailure, lastOutputBytesMax)
	case state.Waiting != "" && !isRecent(age, state.FreshSeconds, verified, state.VerifiedSeconds):
		condition.Reason, condition.Message = ReasonBackupNotStarting, tail(state.Waiting, lastOutputBytesMax)
	case age == nil && state.DefaultImage != "":
		condition.Reason = ReasonBackupNever
		condition.Message = fmt.Sprintf("no backup was made yet. The operator has no --backup-image, so the backup pods use the image %s; set --backup-image to an image that the nodes can pull",
			state.DefaultImage)
	case age == nil:
		condition.Reason, condition.Message = ReasonBackupNever, "no backup was made yet"
	case *age > state.FreshSeconds:
		condition.Reason = ReasonBackupOld
		condition.Message = fmt.Sprintf("the last backup is older than %d seconds", state.FreshSeconds)
	case verified == nil:
		condition.Reason, condition.Message = ReasonRestoreNever, "no restore was verified yet; `roost drill` verifies one now"
	case *verified > state.VerifiedSeconds:
		condition.Reason = ReasonRestoreOld
		condition.Message = fmt.Sprintf("the last verified restore is older than %d seconds; `roost drill` verifies one now", state.VerifiedSeconds)
	default:
		condition.Holds, condition.Reason = true, ReasonBackupRecent
		// The message has no ages: a message that changes with the clock would be written again and again.
		condition.Message = fmt.Sprintf("the last backup is not older than %d seconds, and the last verified restore not older than %d",
			state.FreshSeconds, state.VerifiedSeconds)
	}
	return condition
}

// OperationInput is the input of NextOperation.
type OperationInput struct {
	App string
	// Recorded is the operation in the status. Requested is the operation of the annotation.
	Recorded, Requested *v1alpha1.Operation
	// Refusal is why the app cannot run the operation. Empty if it can.
	Refusal string
	Live    []Manifest
	Pods    []PodState
	// Report is the report of the operation's pod.
	Report string
	// PodsEnded is the number of its pods that have ended and still exist.
	PodsEnded int64
	// IsPodRunning is true if one of its pods has not ended, as far as is known. The cache may see pods later than their Job.
	IsPodRunning bool
	// IsUnchanged is true if the last of these pods found that each volume is in one state, or if none of them has begun to load a dump.
	IsUnchanged bool
	// IsDump is true if a restore loads a dump into the app, whose pods keep running.
	IsDump bool
	// RestoreUnfinished is that of the status, or its LoadUnfinished for a dump.
	RestoreUnfinished bool
	// RequestedBefore is the operation of the annotation that ran before an operation after the loss of a node.
	RequestedBefore string
}

// Reasons why no backup is made now.
const (
	notSavedUnfinished = "a restore was interrupted, so the volumes may hold parts of two states; complete it with `roost restore` first"
	notSavedPart       = "a restore failed, so the app may have only a part of the dump; repeat `roost restore` first"
)

// RestoreUnfinishedAfter reports whether volumes may hold parts of two states once the operation is in its next phase. The operator records the
// result before the Job of a restore exists. So the pods do not start on such volumes, whatever happens to the Job.
func (input *OperationInput) RestoreUnfinishedAfter(next *v1alpha1.Operation) bool {
	// A restore into new claims does not touch the claims that the app uses.
	if next == nil || next.Kind != render.TaskRestore || next.Generation > 0 {
		return input.RestoreUnfinished
	}
	hasRun := input.Recorded != nil && input.Recorded.ID == next.ID && input.Recorded.Phase == v1alpha1.OperationRuns
	switch next.Phase {
	case v1alpha1.OperationRuns:
		// While a dump is loaded, no backup is made, but the pods keep running. The outcome decides at the end.
		return input.RestoreUnfinished || !input.IsDump
	case v1alpha1.OperationSucceeded:
		return input.RestoreUnfinished && !hasRun
	case v1alpha1.OperationFailed:
		if input.IsDump {
			return input.RestoreUnfinished || hasRun && !input.isKnownUnchanged(next)
		}
		return input.RestoreUnfinished && !(hasRun && input.isKnownUnchanged(next))
	}
	return input.RestoreUnfinished
}

// isKnownUnchanged reports whether the last pod of a failed Job left each volume in one state, or no pod has begun to load a dump. A deleted pod
// may have been the last one. So the result is false unless all pods that the Job has counted still exist.
func (input *OperationInput) isKnownUnchanged(operation *v1alpha1.Operation) bool {
	job := input.find("Job", render.OperationName(input.App, operation))
	return input.IsUnchanged && number(job, "status", "failed") == input.PodsEnded
}

// NextOperation returns the operation with its next phase. The operator records a phase in the status before it acts on it. So an operator that
// restarts continues, and repeats nothing.
func NextOperation(input OperationInput) *v1alpha1.Operation {
	if input.Recorded.IsEnded() {
		isNew := input.Requested != nil && input.Requested.ID != input.RequestedBefore && (input.Recorded == nil || input.Recorded.ID != input.Requested.ID)
		if !isNew {
			return input.Recorded
		}
		next := *input.Requested
		next.Phase = v1alpha1.OperationWaits
		switch {
		case input.Refusal != "":
			next.Phase, next.Message = v1alpha1.OperationFailed, input.Refusal
		case input.RestoreUnfinished && next.Kind == render.TaskSave:
			next.Phase, next.Message = v1alpha1.OperationFailed, notSavedUnfinished
			if input.IsDump {
				next.Message = notSavedPart
			}
		}
		return &next
	}
	next := *input.Recorded
	switch next.Phase {
	case v1alpha1.OperationWaits:
		if next.Message = input.waitsFor(); next.Message == "" {
			next.Phase = v1alpha1.OperationRuns
		}
	case v1alpha1.OperationRuns:
		name := render.OperationName(input.App, &next)
		switch jobStateOf(input.find("Job", name)) {
		case jobSucceeded:
			if input.Report != "" || !input.IsPodRunning {
				next.Phase, next.Message = v1alpha1.OperationSucceeded, input.Report
			}
		case jobFailed:
			// Pods and Jobs arrive by different watches. A pod says why it has failed, and whether the volumes are unchanged. So an operation does not end
			// before its pods are known to have ended.
			if !input.IsPodRunning {
				next.Phase, next.Message = v1alpha1.OperationFailed, input.lastOutput(name)
			}
		}
	}
	return &next
}

func (input *OperationInput) find(kind, name string) Manifest {
	for _, object := range input.Live {
		if object["kind"] == kind && metadataText(object, "name") == name {
			return object
		}
	}
	return nil
}

// jobRunsWords end the message of an operation that waits for a Job.
const jobRunsWords = " still runs"

// waitsFor returns what has to end before the operation may begin. Empty if nothing does.
func (input *OperationInput) waitsFor() string {
	for _, name := range []string{render.BackupName(input.App), render.DrillName(input.App)} {
		cron := input.find("CronJob", name)
		spec, _ := cron["spec"].(map[string]any)
		if isSuspended, _ := spec["suspend"].(bool); !isSuspended {
			return "the CronJob " + name + " is being suspended"
		}
	}
	if input.Recorded.Generation > 0 {
		// Pods on a lost node exist until the node is back. Their volumes are not those of the restore.
		return ""
	}
	for _, object := range input.Live {
		isTask := object["kind"] == "Job" && label(object, render.LabelPart) == render.PartBackup
		if isTask && jobStateOf(object) == jobRunning {
			return "the Job " + metadataText(object, "name") + jobRunsWords
		}
	}
	if input.Recorded.Kind != render.TaskRestore || input.IsDump {
		return ""
	}
	for _, object := range input.Live {
		// The NATS servers of a Dunlin keep running: the streams are restored into them.
		if object["kind"] != "StatefulSet" || label(object, render.LabelApp) != input.App || label(object, render.LabelPart) == render.PartNATS {
			continue
		}
		isSeen := number(object, "status", "observedGeneration") >= number(object, "metadata", "generation")
		if !isSeen || number(object, "spec", "replicas") > 0 || number(object, "status", "replicas") > 0 {
			return "the pods of " + metadataText(object, "name") + " are being stopped"
		}
	}
	return ""
}

func (input *OperationInput) lastOutput(job string) string {
	for _, pod := range input.Pods {
		if pod.Job == job && pod.LastOutput != "" {
			return tail(pod.LastOutput, lastOutputBytesMax)
		}
	}
	return "the Job failed, and its pod left no log lines; `roost logs --jobs` may show more"
}
