package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/backup"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	// backupFreshSeconds is the default age at which a backup is too old, and backupVerifiedSeconds that of a verified restore.
	backupFreshSeconds = 90_000
	// storageFreshSeconds is backupFreshSeconds for a Dunlin. Its snapshots contain a backup of the last hour.
	storageFreshSeconds = 97_200
	// storageLagSecondsMax is the maximum time between a snapshot and the newest backup in it. A node makes a backup every hour.
	storageLagSecondsMax  = 7_800
	backupVerifiedSeconds = 691_200
	failureBytesMax       = 1024
)

// backupStatus returns the recorded status with the new reports of pods, and with the next phase of an operation.
func (operator *Operator) backupStatus(subject *subject, input reconcile.Input, pods []corev1.Pod, owners podOwners, repository string) *v1alpha1.BackupStatus {
	if subject.backup == nil {
		// The annotation of the last operation stays on the App. Keep the result of the operation, so that the operator does not repeat it when
		// spec.backup is added again: a repeated restore would replace newer data. The status also records which volumes the app uses.
		recorded := subject.status.Backup
		if recorded == nil || recorded.Operation == nil && recorded.VolumeGeneration == 0 {
			return nil
		}
		kept := recorded.Operation.DeepCopy()
		if !kept.IsEnded() {
			kept.Phase, kept.Message = v1alpha1.OperationFailed, "spec.backup was removed"
		}
		return keptStatus(recorded, kept)
	}
	next := subject.status.Backup.DeepCopy()
	if next == nil {
		next = &v1alpha1.BackupStatus{}
	}
	next = aboutRepository(next, repository)
	outcomes := taskOutcomes(reportingPods(pods, owners), next.Repository)
	for _, outcome := range outcomes {
		outcome.addTo(next)
	}
	requested := requestedOperation(subject.object)
	isDump, unfinished := len(subject.backup.RestoreCommand) > 0, &next.RestoreUnfinished
	if isDump {
		unfinished = &next.LoadUnfinished
	}
	asked := reconcile.OperationInput{
		App: subject.object.GetName(), Recorded: next.Operation, Requested: requested, Live: input.Live, Pods: input.Pods,
		RestoreUnfinished: *unfinished, IsDump: isDump,
	}
	if next.NodeLoss != nil {
		asked.RequestedBefore = next.NodeLoss.Requested
	}
	if requested != nil {
		asked.Refusal = refusalOfOperation(subject, requested)
	}
	if operation := next.Operation; !operation.IsEnded() {
		job := render.OperationName(asked.App, operation)
		asked.IsPodRunning = isPodRunning(pods, job)
		for _, outcome := range outcomes {
			if outcome.job != job {
				continue
			}
			// A restore of volumes checks the state that earlier pods have left. A restore of a dump cannot check it, so the outcome of each pod counts.
			asked.IsUnchanged = outcome.isUnchanged && (asked.IsUnchanged || asked.PodsEnded == 0 || !asked.IsDump)
			asked.PodsEnded++
			if outcome.report != nil {
				asked.Report = sentenceOf(*outcome.report)
				next.Operation.Taken = new(metav1.NewTime(outcome.report.Taken.Truncate(time.Second)))
			}
		}
	}
	next.Operation = reconcile.NextOperation(asked)
	*unfinished = asked.RestoreUnfinishedAfter(next.Operation)
	return reconcile.AfterNodeLoss(reconcile.NodeLossInput{
		App: subject.object.GetName(), IsRestoring: subject.onNodeLoss == v1alpha1.OnNodeLossRestore, Volumes: input.LocalVolumes, Live: input.Live,
		Status: next, Now: metav1.NewTime(operator.now().Truncate(time.Second)),
	})
}

// backupPods returns the pods that save and restore.
func backupPods(pods []corev1.Pod) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return pod.Labels[render.LabelPart] != render.PartBackup })
}

// reportingPods returns the pods whose reports count.
func reportingPods(pods []corev1.Pod, owners podOwners) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return !owners.hasJob(&pod) })
}

// keptStatus returns the part of the status that describes the volumes, without the part that describes the repository.
func keptStatus(status *v1alpha1.BackupStatus, operation *v1alpha1.Operation) *v1alpha1.BackupStatus {
	return &v1alpha1.BackupStatus{
		Operation: operation, RestoreUnfinished: status.RestoreUnfinished, VolumeGeneration: status.VolumeGeneration, NodeLoss: status.NodeLoss,
	}
}

// aboutRepository returns the status without data about another repository. If the current repository is not known, it returns the whole status.
func aboutRepository(status *v1alpha1.BackupStatus, repository string) *v1alpha1.BackupStatus {
	if status.Repository != "" && repository != "" && status.Repository != repository {
		status = keptStatus(status, status.Operation)
	}
	status.Repository = cmp.Or(repository, status.Repository)
	return status
}

// taskOutcome is the outcome of a backup pod.
type taskOutcome struct {
	task, job string
	ended     time.Time
	report    *backup.Report
	failure   string
	// isUnchanged is true if a failed restore has left each volume in one consistent state.
	isUnchanged bool
}

// taskOutcomes returns the outcomes of the pods that used a repository.
func taskOutcomes(pods []corev1.Pod, repository string) []taskOutcome {
	var found []taskOutcome
	for index := range pods {
		if used := pods[index].Labels[render.LabelRepository]; used != "" && used != repository {
			continue
		}
		if outcome := outcomeOfTask(&pods[index]); outcome != nil {
			found = append(found, *outcome)
		}
	}
	slices.SortFunc(found, func(a, b taskOutcome) int { return cmp.Or(a.ended.Compare(b.ended), cmp.Compare(a.job, b.job)) })
	return found
}

// podsAtEnd returns the pods. If the Job of an operation counts more ended pods than the cache has, it reads them from the API server: pods and Jobs arrive
// by different watches, and the end of an operation is recorded once, with what its pods have said.
func (operator *Operator) podsAtEnd(ctx context.Context, subject *subject, live map[objectName]reconcile.Manifest, pods []corev1.Pod) ([]corev1.Pod, error) {
	status := subject.status.Backup
	if subject.backup == nil || status == nil || status.Operation.IsEnded() {
		return pods, nil
	}
	job := render.OperationName(subject.object.GetName(), status.Operation)
	isOfJob := func(pod corev1.Pod) bool { return pod.Labels[batchv1.JobNameLabel] == job }
	number := func(field string) int64 {
		found, _, _ := unstructured.NestedInt64(live[objectName{"batch/v1", "Job", job}], "status", field)
		return found
	}
	known := int64(0)
	for index := range pods {
		if isOfJob(pods[index]) && outcomeOfTask(&pods[index]) != nil {
			known++
		}
	}
	if number("active") > 0 || known >= number("succeeded")+number("failed") {
		return pods, nil
	}
	var now corev1.PodList
	if err := operator.Live.List(ctx, &now, client.InNamespace(subject.object.GetNamespace()), client.MatchingLabels{batchv1.JobNameLabel: job}); err != nil {
		return nil, fmt.Errorf("reading the pods of the Job %s, which has ended: %w", job, err)
	}
	owners := podOwnersOf(live, subject.object.GetUID())
	now.Items = slices.DeleteFunc(now.Items, func(pod corev1.Pod) bool { return owners.excludes(&pod) })
	return append(slices.DeleteFunc(slices.Clone(pods), isOfJob), now.Items...), nil
}

func isPodRunning(pods []corev1.Pod, job string) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return pod.Labels[batchv1.JobNameLabel] == job && outcomeOfTask(&pod) == nil
	})
}

// outcomeOfTask returns the outcome of a pod, or nil if the pod has not ended.
func outcomeOfTask(pod *corev1.Pod) *taskOutcome {
	outcome := &taskOutcome{task: pod.Labels[render.LabelTask], job: pod.Labels[batchv1.JobNameLabel], ended: pod.CreationTimestamp.Time}
	if outcome.task == "" || pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return nil
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		ended := container.State.Terminated
		if ended == nil {
			continue
		}
		if ended.FinishedAt.After(outcome.ended) {
			outcome.ended = ended.FinishedAt.Time
		}
		report := &backup.Report{}
		switch {
		case ended.ExitCode != 0:
			outcome.isUnchanged = ended.ExitCode == backup.ExitUnchanged || ended.ExitCode == backup.ExitRefused
			outcome.failure = cmp.Or(strings.TrimSpace(ended.Message), fmt.Sprintf("%s failed with exit code %d", container.Name, ended.ExitCode))
		case json.Unmarshal([]byte(ended.Message), report) == nil && report.Kind == outcome.task:
			outcome.report = report
		}
	}
	if pod.Status.Phase == corev1.PodFailed {
		outcome.report = nil
		outcome.failure = cmp.Or(outcome.failure, strings.TrimSpace(pod.Status.Reason+": "+pod.Status.Message))
	}
	return outcome
}

// forgetVerified removes the results of drills from before a new repository was created.
func forgetVerified(status *v1alpha1.BackupStatus, made metav1.Time) {
	if status.LastVerifiedRestore.Before(&made) {
		status.LastVerifiedRestore, status.VerifiedSnapshot, status.VerifiedTaken = nil, "", nil
	}
	if status.VerifyFailure != nil && status.VerifyFailure.Time.Before(&made) {
		status.VerifyFailure = nil
	}
}

// addTo updates the status if the outcome is newer.
func (outcome *taskOutcome) addTo(status *v1alpha1.BackupStatus) {
	failure, last := &status.SaveFailure, status.LastBackup
	switch outcome.task {
	case render.TaskVerify:
		failure, last = &status.VerifyFailure, status.LastVerifiedRestore
	case render.TaskRestore:
		return
	}
	ended := metav1.NewTime(outcome.ended.Truncate(time.Second))
	switch report := outcome.report; {
	case report == nil && outcome.failure == "":
	case report == nil:
		if (last == nil || last.Before(&ended)) && (*failure == nil || (*failure).Time.Before(&ended)) {
			message := strings.ToValidUTF8(outcome.failure, "?")
			*failure = &v1alpha1.BackupFailure{Time: ended, Message: message[:min(len(message), failureBytesMax)]}
		}
	case outcome.task == render.TaskVerify:
		if last == nil || last.Before(&ended) {
			status.LastVerifiedRestore, status.VerifiedSnapshot = &ended, report.Snapshot
			status.VerifiedTaken = new(metav1.NewTime(cmp.Or(report.Newest, &report.Taken).Truncate(time.Second)))
		}
	default:
		if report.IsNew {
			forgetVerified(status, ended)
		}
		made := metav1.NewTime(report.Taken.Truncate(time.Second))
		if report.Newest != nil {
			made = metav1.NewTime(*report.Newest)
		}
		if last == nil || !made.Before(last) {
			status.LastBackup, status.LastSnapshot, status.Bytes = &made, report.Snapshot, report.Bytes
			if lag := lagFailure(report); lag != "" && (*failure == nil || (*failure).Time.Before(&ended)) {
				*failure = &v1alpha1.BackupFailure{Time: ended, Message: lag}
			}
		}
	}
	if outcome.report != nil && *failure != nil && (*failure).Time.Before(&ended) {
		*failure = nil
	}
}

// lagFailure returns why the data in a snapshot is much older than the snapshot, or an empty string.
func lagFailure(report *backup.Report) string {
	if report.Newest == nil || report.Taken.Sub(*report.Newest) <= storageLagSecondsMax*time.Second {
		return ""
	}
	return fmt.Sprintf("snapshot %s is saved, but its newest backup of the node is from %s, more than %d seconds older: the node makes a backup every hour, "+
		"and logs the cause if a backup fails (`roost logs`)", report.Snapshot, report.Newest.UTC().Format(time.RFC3339), storageLagSecondsMax)
}

func sentenceOf(report backup.Report) string {
	taken := report.Taken.UTC().Format(time.RFC3339)
	text := fmt.Sprintf("snapshot %s of %s: %d files, %d bytes", report.Snapshot, taken, report.Files, report.Bytes)
	switch {
	case report.Skipped:
		return "nothing was restored, because the volumes are not empty"
	case report.Kind == render.TaskRestore:
		// A snapshot of a Dunlin does not contain data that was written after its newest backup.
		text += "; data that was written after " + cmp.Or(report.Newest, &report.Taken).UTC().Format(time.RFC3339) + " is lost"
		if report.IsForeign {
			text += "; the snapshot is from another cluster or a deleted App"
		}
	case report.Kind == render.TaskVerify && report.Streams > 0:
		text += " restored and compared, and loaded into a NATS server"
	case report.Kind == render.TaskVerify && report.IsLoaded:
		text += " restored, compared, and loaded into a copy of the app"
	case report.Kind == render.TaskVerify:
		text += " restored and compared"
	case report.IsNew:
		text += "; the repository is new"
	}
	if report.Streams > 0 {
		text += fmt.Sprintf("; %d messages in %d streams", report.Messages, report.Streams)
	}
	if report.Newest != nil {
		text += "; its newest backup of the node is from " + report.Newest.UTC().Format(time.RFC3339)
	}
	if report.Changed > 0 {
		text += fmt.Sprintf("; %d files changed while they were saved, and were not compared", report.Changed)
	}
	return text
}

var (
	operationPattern = regexp.MustCompile(`^[a-z0-9]{1,10}$`)
	snapshotPattern  = regexp.MustCompile(`^(latest|[0-9a-f]{4,64})$`)
)

// requestedOperation returns the operation of the annotation, or nil if there is none or if it is not valid.
func requestedOperation(object client.Object) *v1alpha1.Operation {
	var read v1alpha1.Operation
	if json.Unmarshal([]byte(object.GetAnnotations()[render.AnnotationOperation]), &read) != nil {
		return nil
	}
	isTask := read.Kind == render.TaskSave || read.Kind == render.TaskVerify || read.Kind == render.TaskRestore
	if !isTask || !operationPattern.MatchString(read.ID) || read.Kind == render.TaskRestore && !snapshotPattern.MatchString(read.Snapshot) {
		return nil
	}
	return &v1alpha1.Operation{ID: read.ID, Kind: read.Kind, Snapshot: read.Snapshot, Replace: read.Replace}
}

func refusalOfOperation(subject *subject, requested *v1alpha1.Operation) string {
	isRestore, isDump := requested.Kind == render.TaskRestore, subject.backup != nil && len(subject.backup.Command) > 0
	switch {
	case subject.repositoryFile == "":
		return "spec.backup.repository is not set, so there is no repository to save to or to restore from; set it"
	case isRestore && isDump && len(subject.backup.RestoreCommand) == 0:
		return "the backup is a dump of spec.backup.command, which only a program of the app can read; set spec.backup.restoreCommand"
	case isRestore && isDump && !requested.Replace:
		return "the dump is loaded into an app that may already have data, which the operator cannot check; repeat with --replace"
	}
	return ""
}

// hasNextPhase reports whether the recorded operation has changed, so that another pass is needed.
func hasNextPhase(before, after *v1alpha1.BackupStatus) bool {
	if after == nil || after.Operation == nil {
		return false
	}
	return before == nil || before.Operation == nil || before.Operation.ID != after.Operation.ID || before.Operation.Phase != after.Operation.Phase
}

// backupState returns the state of the backups from the status, or from the CronJob for a backup without a repository.
func backupState(subject *subject, status *v1alpha1.BackupStatus, live map[objectName]reconcile.Manifest, now time.Time) *reconcile.BackupState {
	spec := subject.backup
	if spec == nil {
		return nil
	}
	state := &reconcile.BackupState{HasRepository: spec.Repository != nil, LoadUnfinished: loadUnfinished(spec, status), FirstPod: subject.object.GetName() + "-0"}
	state.FreshSeconds, state.VerifiedSeconds = boundsOf(spec, subject.kind)
	if !state.HasRepository {
		name := objectName{batchv1.SchemeGroupVersion.String(), "CronJob", render.BackupName(subject.object.GetName())}
		cron, _ := live[name]["status"].(map[string]any)
		text, _ := cron["lastSuccessfulTime"].(string)
		if last, err := time.Parse(time.RFC3339, text); err == nil {
			state.AgeSeconds = new(int64(now.Sub(last) / time.Second))
		}
		return state
	}
	state.FirstPod = render.FirstPod(subject.object.GetName(), status)
	if subject.onNodeLoss == v1alpha1.OnNodeLossRestore {
		state.Policy = reconcile.PolicyOf(status)
	}
	state.AgeSeconds, state.VerifiedAgeSeconds = ageOf(status.LastBackup, now), ageOf(status.LastVerifiedRestore, now)
	if status.LastBackup != nil {
		state.LastBackup = status.LastBackup.UTC().Format(time.RFC3339)
	}
	if status.SaveFailure != nil {
		state.SaveFailure = status.SaveFailure.Message
	}
	if status.VerifyFailure != nil {
		state.VerifyFailure = status.VerifyFailure.Message
	}
	return state
}

// waitingBackup returns why the newest backup pod does not start, or an empty string.
func waitingBackup(pods []corev1.Pod) string {
	for index := range pods {
		pod := &pods[index]
		isEnded := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
		if pod.Labels[render.LabelPart] != render.PartBackup || isEnded {
			continue
		}
		state := podState(pod)
		if state.Waiting == "" {
			return ""
		}
		image := ""
		if len(pod.Status.ContainerStatuses) > 0 {
			image = pod.Status.ContainerStatuses[0].Image
		}
		if strings.Contains(state.Waiting, "Image") {
			return fmt.Sprintf("the pod %s cannot pull the image %s (%s); set --backup-image of the operator to an image that the nodes can pull", pod.Name, image, state.Waiting)
		}
		return fmt.Sprintf("the pod %s does not start: %s: %s", pod.Name, state.Waiting, strings.TrimSpace(state.LastOutput))
	}
	return ""
}

// loadUnfinished reports whether the app may have only a part of a dump.
func loadUnfinished(spec *v1alpha1.Backup, status *v1alpha1.BackupStatus) bool {
	return spec != nil && len(spec.RestoreCommand) > 0 && status != nil && status.LoadUnfinished
}

// boundsOf returns the ages at which the last backup and the last verified restore are too old.
func boundsOf(spec *v1alpha1.Backup, kind string) (fresh, verified int64) {
	fresh, verified = backupFreshSeconds, backupVerifiedSeconds
	if kind == KindDunlin {
		fresh = storageFreshSeconds
	}
	if spec.FreshSeconds != nil {
		fresh = *spec.FreshSeconds
	}
	if spec.VerifiedSeconds != nil {
		verified = *spec.VerifiedSeconds
	}
	return fresh, verified
}

func ageOf(last *metav1.Time, now time.Time) *int64 {
	if last == nil {
		return nil
	}
	return new(int64(now.Sub(last.Time) / time.Second))
}
