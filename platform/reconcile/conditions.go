package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// Condition is a condition without its time. The caller sets the time when the status changes.
type Condition struct {
	Type    string
	Holds   bool
	Reason  string
	Message string
}

// Passing are the reasons of Degraded that a rollout in progress may fix: the pod may belong to the previous revision, or need longer.
var Passing = []string{ReasonPodFailing, ReasonPodNotReady, ReasonNodeOutOfCluster}

// PodState is the state of a pod that does not work.
type PodState struct {
	Name string
	// Waiting is the reason that Kubernetes gives, such as ImagePullBackOff or CrashLoopBackOff. Empty if the pod works.
	Waiting string
	// Job is the Job that the pod belongs to, if any.
	Job string
	// LastOutput are the end of the pod's log, or the message of Kubernetes.
	LastOutput string
	// NotReady describes a pod that runs and is not ready. Nil otherwise.
	NotReady *NotReady
}

// NotReady describes a pod that runs but gets no requests, because it is not ready.
type NotReady struct {
	Seconds int64
	// Since is the time from which Seconds are counted, for the message.
	Since string
}

// NotReadySeconds is the time after which a pod that runs and is not ready is reported. The condition must be set within 30 seconds of a
// release, and the pod takes some of them to start.
const NotReadySeconds = 20

// lastOutputBytesMax bounds the part of a log that is written to the status.
const lastOutputBytesMax = 512

func (decision *decision) conditions() []Condition {
	input := decision.input
	found := []Condition{decision.settings()}
	progressing := decision.progressing()
	degraded := decision.degraded()
	ready := Condition{ConditionReady, true, ReasonAsDesired, "all objects match the spec"}
	idle := decision.idleWorkload()
	switch {
	case degraded.Holds && (idle != nil || decision.readyPods() == 0):
		ready = Condition{ConditionReady, false, degraded.Reason, degraded.Message}
	case idle != nil:
		ready = Condition{ConditionReady, false, ReasonNoPodReady, "no pod of " + decision.described(idle) + " is ready"}
	case progressing.Holds || degraded.Holds:
		ready.Message = fmt.Sprintf("%d pods serve", decision.readyPods())
	}
	found = append(found, ready, progressing, degraded)
	if input.Backup != nil {
		found = append(found, backupFresh(*input.Backup))
	}
	if input.Preview != nil {
		found = append(found, input.Preview.expiring())
	}
	return found
}

func (decision *decision) settings() Condition {
	if problem := decision.input.SettingsProblem; problem != "" {
		return Condition{ConditionSettingsDecrypted, false, ReasonSettingsUnreadable, problem + ". No object is changed until the settings can be read"}
	}
	return Condition{ConditionSettingsDecrypted, true, ReasonAsDesired, "the settings are decrypted"}
}

func (decision *decision) progressing() Condition {
	condition := Condition{Type: ConditionProgressing, Holds: true}
	switch {
	case len(decision.leaving) > 0:
		condition.Reason = ReasonWaitingForDeletion
		condition.Message = "objects of an earlier owner of this name are being deleted: " + strings.Join(decision.leaving, ", ")
	case decision.migration == jobRunning:
		condition.Reason, condition.Message = ReasonMigrating, "the migration runs; pods of the old revision serve until it succeeds"
	case len(decision.writes) > 0:
		condition.Reason, condition.Message = ReasonApplying, fmt.Sprintf("%d objects are being written", len(decision.writes))
	case decision.migration != jobFailed && !decision.isStopped() && (decision.hold != "" || !decision.isRolledOut()):
		condition.Reason, condition.Message = ReasonRollingOut, fmt.Sprintf("%d of %d pods are ready", decision.readyPods(), decision.wantedPods())
		if decision.hold != "" {
			condition.Message += "; " + decision.hold
		}
	default:
		return Condition{ConditionProgressing, false, ReasonAsDesired, "there is nothing to do"}
	}
	return condition
}

func (decision *decision) degraded() Condition {
	condition := Condition{Type: ConditionDegraded, Holds: true}
	failing := failingPod(decision.input.Pods)
	lost := lostVolume(decision.input.LocalVolumes)
	late := lateAmong(decision.input.Pods)
	stalled := decision.stalledWorkload()
	outOfCluster := whyOutOfCluster(decision.input.Nodes)
	switch {
	case decision.input.Blocked != nil:
		condition.Reason, condition.Message = decision.input.Blocked.Reason, decision.input.Blocked.Message
	case decision.input.SettingsProblem != "":
		condition.Reason, condition.Message = ReasonSettingsUnreadable, decision.input.SettingsProblem
	case decision.input.Refusal != "":
		condition.Reason, condition.Message = ReasonWriteRefused, tail(decision.input.Refusal, lastOutputBytesMax)
	case len(decision.taken) > 0:
		condition.Reason, condition.Message = ReasonNameTaken, decision.whyNameTaken()
	case decision.migration == jobFailed:
		condition.Reason, condition.Message = ReasonMigrationFailed, decision.whyMigrationFailed()
	case decision.input.RestoreUnfinished:
		condition.Reason, condition.Message = ReasonRestoreUnfinished, decision.whyRestoreUnfinished()
	case lost != nil:
		condition.Reason, condition.Message = ReasonNodeLost, whyNodeLost(*lost, decision.input.Backup)
	case failing != nil:
		condition.Reason = ReasonPodFailing
		condition.Message = fmt.Sprintf("%s: %s: %s", failing.Name, failing.Waiting, tail(failing.LastOutput, lastOutputBytesMax))
	case stalled != nil:
		condition.Reason = ReasonRolloutStalled
		condition.Message = "the new pods" + decision.ofProcess(stalled) + " did not become ready in time; pods of the old revision keep serving. Check the logs of the new pods and their health check"
	case late != nil:
		condition.Reason = ReasonPodNotReady
		condition.Message = fmt.Sprintf("%s runs and has not been ready since %s: its health check does not pass", late.Name, late.NotReady.Since)
	case outOfCluster != "":
		condition.Reason, condition.Message = ReasonNodeOutOfCluster, outOfCluster
	default:
		return Condition{ConditionDegraded, false, ReasonAsDesired, "nothing fails"}
	}
	return condition
}

// whyNameTaken names the objects, and the previews that have some of them: those free the names when they end.
func (decision *decision) whyNameTaken() string {
	message := "Roost does not manage these existing objects, and leaves them unchanged: " + strings.Join(decision.taken, ", ") + "; rename or delete them"
	for _, name := range decision.takenBy() {
		if ends := decision.input.Ends[name]; ends != "" {
			message += fmt.Sprintf(". The preview %s has some of them until %s; delete it with `roost deploy --as SUFFIX --delete` to have them now", name, ends)
		}
	}
	return message
}

// whyMigrationFailed returns the end of the log of the Job's newest pod. If the Job exceeded its deadline, there is no log, because Kubernetes
// deletes the pod.
func (decision *decision) whyMigrationFailed() string {
	const outcome = "the migration failed; pods of the old revision keep serving"
	for _, pod := range decision.input.Pods {
		if pod.Job == decision.migrationJob && pod.LastOutput != "" {
			return fmt.Sprintf("%s. %s: %s", outcome, pod.Name, tail(pod.LastOutput, lastOutputBytesMax))
		}
	}
	return outcome + ". The log of its Job shows the cause"
}

func (decision *decision) whyRestoreUnfinished() string {
	if decision.input.Backup != nil && decision.input.Backup.LoadUnfinished {
		return "a restore failed, so the app may have only a part of the dump. No backup is made until `roost restore` succeeds"
	}
	text := "a restore was interrupted, so the volumes may hold parts of two states. The pods stay stopped, and no backup is made, until `roost restore` completes it"
	if decision.input.Backup == nil {
		text += "; set spec.backup again to allow that"
	}
	return text
}

func failingPod(pods []PodState) *PodState {
	for index := range pods {
		if pods[index].Waiting != "" {
			return &pods[index]
		}
	}
	return nil
}

// lateAmong returns the first pod that should be ready by now, or nil.
func lateAmong(pods []PodState) *PodState {
	for index := range pods {
		if late := pods[index].NotReady; late != nil && late.Seconds >= NotReadySeconds {
			return &pods[index]
		}
	}
	return nil
}

// tail returns the end of a text. It does not split characters.
func tail(text string, bytesMax int) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "?")
	if len(text) > bytesMax {
		text = "…" + strings.ToValidUTF8(text[len(text)-bytesMax:], "")
	}
	return text
}

// workloads returns the live workloads that are wanted. While nothing is applied, it returns all live workloads.
func (decision *decision) workloads() []Manifest {
	var found []Manifest
	if decision.isStopped() {
		for _, key := range slices.Sorted(maps.Keys(decision.live)) {
			if object := decision.live[key]; isWorkload(object) && decision.isOwn(object) {
				found = append(found, object)
			}
		}
		return found
	}
	for _, desired := range decision.input.Desired {
		if live, isThere := decision.live[keyOf(desired)]; isThere && isWorkload(desired) {
			found = append(found, live)
		}
	}
	return found
}

func number(object Manifest, table, field string) int64 {
	fields, _ := object[table].(map[string]any)
	switch value := fields[field].(type) {
	case int64:
		return value
	case float64:
		return int64(value)
	}
	return 0
}

// stalledWorkload returns a Deployment that exceeded its progress deadline for the pods of its current template, or nil. A status from before the last
// write describes earlier pods, and is ignored.
func (decision *decision) stalledWorkload() Manifest {
	if len(decision.writes) > 0 {
		return nil
	}
	for _, workload := range decision.workloads() {
		if number(workload, "status", "observedGeneration") < number(workload, "metadata", "generation") {
			continue
		}
		status, _ := workload["status"].(map[string]any)
		conditions, _ := status["conditions"].([]any)
		for _, element := range conditions {
			if condition, _ := element.(map[string]any); condition["reason"] == "ProgressDeadlineExceeded" {
				return workload
			}
		}
	}
	return nil
}

// processOf returns the name of the process whose pods a workload has.
func processOf(workload Manifest) string {
	return cmp.Or(label(workload, render.LabelProcess), render.MainProcess)
}

// ofProcess names the process of a workload, if there are several.
func (decision *decision) ofProcess(workload Manifest) string {
	if len(decision.processes()) == 0 {
		return ""
	}
	return " of the process " + processOf(workload)
}

// described names a workload, or its process if there are several.
func (decision *decision) described(workload Manifest) string {
	if len(decision.processes()) == 0 {
		return metadataText(workload, "name")
	}
	return "the process " + processOf(workload)
}

// processesMax is maxItems of status.processes: 16 of the spec, and MainProcess.
const processesMax = 17

// processes returns what the workloads of an App say of their pods, sorted by the names of the processes, if there are several.
func (decision *decision) processes() []v1alpha1.ProcessStatus {
	workloads := decision.workloadsOfProcesses()
	if !slices.ContainsFunc(workloads, func(workload Manifest) bool { return label(workload, render.LabelProcess) != "" }) {
		return nil
	}
	var found []v1alpha1.ProcessStatus
	for _, workload := range workloads {
		found = append(found, v1alpha1.ProcessStatus{
			Name: processOf(workload), Desired: int32(number(workload, "spec", "replicas")),
			Updated: int32(number(workload, "status", "updatedReplicas")), Ready: int32(number(workload, "status", "readyReplicas")),
		})
	}
	slices.SortFunc(found, func(a, b v1alpha1.ProcessStatus) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// workloadsOfProcesses returns one workload for each process. While nothing is applied, those that are still to be pruned are live as well, so a name
// may be there twice, or more names than the status may have. The API server would refuse the whole status, with the condition that says what blocks.
func (decision *decision) workloadsOfProcesses() []Manifest {
	isDesired := map[string]bool{}
	for _, object := range decision.input.Desired {
		isDesired[keyOf(object)] = true
	}
	workloads := decision.workloads()
	slices.SortStableFunc(workloads, func(a, b Manifest) int {
		switch {
		case isDesired[keyOf(a)] == isDesired[keyOf(b)]:
			return cmp.Compare(number(b, "status", "readyReplicas"), number(a, "status", "readyReplicas"))
		case isDesired[keyOf(a)]:
			return -1
		}
		return 1
	})
	var found []Manifest
	names := map[string]bool{}
	for _, workload := range workloads {
		if name := processOf(workload); !names[name] && len(found) < processesMax {
			names[name] = true
			found = append(found, workload)
		}
	}
	return found
}

// idleWorkload returns a workload that wants pods and has none that is ready, or nil. A Dunlin needs its nodes and its NATS servers.
func (decision *decision) idleWorkload() Manifest {
	wanted := decision.input.Desired
	if decision.isStopped() {
		wanted = decision.workloads()
	}
	for _, object := range wanted {
		live := decision.live[keyOf(object)]
		hasPods := number(object, "spec", "replicas") > 0 || number(live, "spec", "replicas") > 0
		if isWorkload(object) && hasPods && number(live, "status", "readyReplicas") == 0 {
			return object
		}
	}
	return nil
}

func (decision *decision) readyPods() int64 {
	var total int64
	for _, workload := range decision.workloads() {
		total += number(workload, "status", "readyReplicas")
	}
	return total
}

func (decision *decision) wantedPods() int64 {
	var total int64
	for _, object := range decision.input.Desired {
		if isWorkload(object) {
			total += number(object, "spec", "replicas")
		}
	}
	return total
}

// isRolledOut reports whether all pods are of the newest revision and ready. While pods of an old revision exist, the ready pods may be those.
func (decision *decision) isRolledOut() bool {
	for _, object := range decision.input.Desired {
		if !isWorkload(object) {
			continue
		}
		live := decision.live[keyOf(object)]
		wanted := number(live, "spec", "replicas")
		generation := number(live, "metadata", "generation")
		updated := number(live, "status", "updatedReplicas")
		isDone := number(live, "status", "observedGeneration") >= generation && updated >= wanted &&
			number(live, "status", "replicas") <= updated && number(live, "status", "readyReplicas") >= wanted
		if live == nil || !isDone {
			return false
		}
	}
	return true
}
