package reconcile

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// AnnotationPace holds the state of a rollout of nodes. It is on the StatefulSet, so the write that starts a drain also saves the state.
const AnnotationPace = v1alpha1.Group + "/pace"

const (
	// ReturnSecondsDefault is how long a rollout waits for sessions.
	ReturnSecondsDefault = 120
	// percentBack is the percentage of sessions that must have reconnected before the next node is replaced.
	percentBack = 98
)

// NodesInput is the state that the rollout of a Dunlin's nodes depends on.
type NodesInput struct {
	Nodes []NodeState
	// Wanted is the number of nodes that the spec or the autoscaling requests. 0 stops the nodes.
	Wanted int32
	// ReturnSeconds bounds how long a rollout waits for sessions, and for nodes of the old revision.
	ReturnSeconds int64
	// DrainSeconds is how long the end of a node may take.
	DrainSeconds int64
	// Now has no fractional seconds.
	Now metav1.Time
}

// secondsSince returns the seconds from a time until now.
func (input *NodesInput) secondsSince(then *metav1.Time) int64 { return input.Now.Unix() - then.Unix() }

// pace is the content of AnnotationPace. The field manager of Roost owns the annotation, so a change by others is undone.
type pace struct {
	// Template is the hash of the pods' template.
	Template string `json:"template"`
	// Nodes and Partition are those of the StatefulSet: nodes from Partition on are of the new revision.
	Nodes     int64 `json:"nodes"`
	Partition int64 `json:"partition"`
	// Sessions is the number of sessions when the drain of the last node began, at Since.
	Sessions int64        `json:"sessions,omitempty"`
	Since    *metav1.Time `json:"since,omitempty"`
}

// paced sets the number of nodes and the partition of the nodes' StatefulSet. It drains one node at a time. It drains the next one only when the
// previous one is ready and in its cluster, and the sessions have reconnected.
func (decision *decision) paced(object, current Manifest) Manifest {
	nodes := decision.input.Nodes
	if nodes == nil || object["kind"] != "StatefulSet" || label(object, render.LabelPart) != render.PartMain {
		return object
	}
	spec := object["spec"].(map[string]any)
	template := hashOf(spec["template"].(Manifest))
	wanted := int64(nodes.Wanted)
	if number(object, "spec", "replicas") == 0 {
		wanted = 0
	}
	before := paceOf(current, spec["template"], template)
	next := pace{Template: template, Nodes: wanted}
	switch {
	case current == nil || wanted == 0 || before.Nodes == 0:
		// No running node has to wait for another one.
	case before.Template != template:
		next.Nodes, next.Partition, next.Since = max(before.Nodes, wanted), before.Nodes, &nodes.Now
		decision.hold = "the nodes are about to be replaced, one by one"
	default:
		step := rollout{input: nodes, before: before, name: metadataText(object, "name"), set: current}
		next = step.next(wanted)
		decision.hold, decision.notes = step.hold, append(decision.notes, step.notes...)
	}
	return withPace(object, next)
}

// paceOf reads the annotation. A StatefulSet without it was written by an earlier operator. In that case, paceOf compares the template.
func paceOf(current Manifest, template any, hash string) pace {
	var found pace
	if json.Unmarshal([]byte(annotation(current, AnnotationPace)), &found) == nil && found.Template != "" {
		return found
	}
	found = pace{Nodes: number(current, "spec", "replicas")}
	spec, _ := current["spec"].(map[string]any)
	if covers(spec["template"], template) {
		found.Template = hash
	}
	strategy, _ := spec["updateStrategy"].(map[string]any)
	found.Partition = min(number(strategy, "rollingUpdate", "partition"), found.Nodes)
	return found
}

func withPace(object Manifest, pace pace) Manifest {
	text, err := json.Marshal(pace)
	if err != nil {
		panic(fmt.Sprintf("a pace does not encode: %v", err))
	}
	marked := clone(object)
	metadata, spec := marked["metadata"].(map[string]any), marked["spec"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[AnnotationPace] = string(text)
	spec["replicas"] = pace.Nodes
	spec["updateStrategy"] = map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"partition": pace.Partition}}
	return marked
}

// rollout computes one step of a rollout.
type rollout struct {
	input  *NodesInput
	before pace
	// name is the name of the nodes' StatefulSet, and set is the live object.
	name string
	set  Manifest
	// hold is what the next step waits for. Empty if nothing is left to do.
	hold  string
	notes []Event
}

// next returns the pace after at most one step.
func (rollout *rollout) next(wanted int64) pace {
	next := rollout.before
	if wanted > next.Nodes {
		// Adding nodes disconnects no sessions.
		next.Nodes = wanted
		rollout.noteScale(next.Nodes)
		return next
	}
	next.Partition = rollout.lowest(next.Nodes)
	isShrinking := wanted < next.Nodes
	if next.Partition == 0 && !isShrinking {
		if rollout.isAllUpdated() && number(rollout.set, "status", "readyReplicas") >= next.Nodes {
			next.Sessions, next.Since = 0, nil
		}
		return next
	}
	target := next.Partition - 1
	if isShrinking {
		target = next.Nodes - 1
	}
	if rollout.hold = rollout.whyWait(target, next.Partition); rollout.hold != "" {
		return next
	}
	if isShrinking {
		next.Nodes--
		next.Partition = min(next.Partition, next.Nodes)
		rollout.noteScale(next.Nodes)
	} else {
		next.Partition--
	}
	next.Sessions, next.Since = rollout.sessions(), &rollout.input.Now
	rollout.hold = fmt.Sprintf("%s-%d is being replaced", rollout.name, target)
	if isShrinking {
		rollout.hold = fmt.Sprintf("%s-%d is being removed", rollout.name, target)
	}
	return next
}

func (rollout *rollout) noteScale(nodes int64) {
	rollout.notes = append(rollout.notes, Event{Reason: EventNodesScaled, Message: fmt.Sprintf("from %d to %d nodes", rollout.before.Nodes, nodes)})
}

// lowest returns the lowest partition that drains no node.
func (rollout *rollout) lowest(nodes int64) int64 {
	partition := min(rollout.before.Partition, nodes)
	if !rollout.isObserved() {
		return partition
	}
	if rollout.isAllUpdated() {
		return 0
	}
	for partition > 0 {
		node := rollout.node(partition - 1)
		if node == nil || !rollout.isUpdated(node) {
			break
		}
		partition--
	}
	return partition
}

// isObserved reports whether the status describes the current template.
func (rollout *rollout) isObserved() bool {
	return number(rollout.set, "status", "observedGeneration") >= number(rollout.set, "metadata", "generation")
}

// isAllUpdated reports whether Kubernetes counts all nodes as updated.
func (rollout *rollout) isAllUpdated() bool {
	count := number(rollout.set, "status", "updatedReplicas")
	return rollout.isObserved() && count >= rollout.before.Nodes && number(rollout.set, "status", "replicas") <= count
}

func (rollout *rollout) isUpdated(node *NodeState) bool {
	status, _ := rollout.set["status"].(map[string]any)
	revision, _ := status["updateRevision"].(string)
	return revision != "" && node.Revision == revision
}

// node returns the node with a number, or nil. While a pod terminates and its replacement has the same name, Kubernetes shows only one of them.
func (rollout *rollout) node(number int64) *NodeState {
	for index := range rollout.input.Nodes {
		if node := &rollout.input.Nodes[index]; node.Name == rollout.nameOf(number) {
			return node
		}
	}
	return nil
}

func (rollout *rollout) nameOf(number int64) string {
	return rollout.name + "-" + strconv.FormatInt(number, 10)
}

// whyWait returns why the target is not drained yet. Empty if it can be drained. Nodes from the partition on are of the new revision.
func (rollout *rollout) whyWait(target, partition int64) string {
	if !rollout.isObserved() {
		return "Kubernetes has not observed the last change of the StatefulSet yet"
	}
	readySince := rollout.before.Since
	for number := partition; number < rollout.before.Nodes; number++ {
		node := rollout.node(number)
		switch {
		case number == target:
			continue
		case node == nil || !rollout.isUpdated(node) || !node.IsReady:
			return rollout.nameOf(number) + " is not ready"
		case node.Figures != nil && node.Figures.IsOutOfCluster:
			return rollout.nameOf(number) + " has no connection to NATS (dunlin_cluster_ready is 0)"
		case node.Figures == nil && node.ReadyChanged != nil && rollout.input.secondsSince(node.ReadyChanged) < rollout.input.ReturnSeconds:
			return rollout.nameOf(number) + " does not return its metrics"
		}
		if changed := node.ReadyChanged; changed != nil && (readySince == nil || readySince.Before(changed)) {
			readySince = changed
		}
	}
	if waits := rollout.whyWaitForDrain(target); waits != "" {
		return waits
	}
	if node := rollout.node(target); node == nil || !node.IsReady {
		// The target serves no sessions, so ending it disconnects none.
		return ""
	}
	if waits := rollout.whyWaitForOthers(target, partition); waits != "" {
		return waits
	}
	return rollout.whyWaitForSessions(readySince)
}

// whyWaitForDrain delays the target until another node has ended. The pod of a lost machine may never end, so the time is bounded.
func (rollout *rollout) whyWaitForDrain(target int64) string {
	for index := range rollout.input.Nodes {
		node := &rollout.input.Nodes[index]
		if node.Drained != nil && node.Name != rollout.nameOf(target) && rollout.input.secondsSince(node.Drained) < rollout.input.DrainSeconds+rollout.input.ReturnSeconds {
			return node.Name + " is draining"
		}
	}
	return ""
}

// whyWaitForOthers delays the target while another node is missing. A node of the old revision may need the new one, so the time is bounded.
func (rollout *rollout) whyWaitForOthers(target, partition int64) string {
	for number := range partition {
		node := rollout.node(number)
		if number == target || node != nil && node.IsReady {
			continue
		}
		since := rollout.before.Since
		if node != nil && node.ReadyChanged != nil {
			since = node.ReadyChanged
		}
		if since != nil && rollout.input.secondsSince(since) < rollout.input.ReturnSeconds {
			return rollout.nameOf(number) + " is not ready"
		}
	}
	return ""
}

// whyWaitForSessions compares the number of sessions with the number before the last drain. Sessions of nodes that do not answer are unknown.
func (rollout *rollout) whyWaitForSessions(readySince *metav1.Time) string {
	needed := (rollout.before.Sessions*percentBack + 99) / 100
	found := rollout.sessions()
	if found >= needed || readySince == nil {
		return ""
	}
	if rollout.input.secondsSince(readySince) < rollout.input.ReturnSeconds {
		return fmt.Sprintf("the rollout waits until %d of %d sessions have reconnected, for at most %d s", needed, rollout.before.Sessions, rollout.input.ReturnSeconds)
	}
	rollout.notes = append(rollout.notes, Event{Reason: EventSessionsMissing, Message: fmt.Sprintf(
		"only %d of the %d sessions from before the last drain are connected after %d s; the rollout continues", found, rollout.before.Sessions, rollout.input.ReturnSeconds)})
	return ""
}

func (rollout *rollout) sessions() int64 {
	total := int64(0)
	for index := range rollout.input.Nodes {
		if figures := rollout.input.Nodes[index].Figures; figures != nil {
			total += figures.Sessions
		}
	}
	return total
}

// IsChanging reports whether nodes of a live StatefulSet are being replaced, added or removed.
func IsChanging(set Manifest) bool {
	if set == nil {
		return true
	}
	wanted, status := number(set, "spec", "replicas"), func(field string) int64 { return number(set, "status", field) }
	var found pace
	_ = json.Unmarshal([]byte(annotation(set, AnnotationPace)), &found)
	return found.Since != nil || found.Partition > 0 || status("observedGeneration") < number(set, "metadata", "generation") ||
		status("replicas") != wanted || status("updatedReplicas") < wanted || status("readyReplicas") < wanted
}

// outOfClusterSeconds is how long a node may be ready without its cluster, while it connects.
const outOfClusterSeconds = 20

// whyOutOfCluster names the nodes that serve without NATS. Empty if there are none.
func whyOutOfCluster(input *NodesInput) string {
	if input == nil {
		return ""
	}
	var names []string
	for index := range input.Nodes {
		node := &input.Nodes[index]
		hasTried := node.ReadyChanged != nil && input.secondsSince(node.ReadyChanged) > outOfClusterSeconds
		if node.IsReady && hasTried && node.Figures != nil && node.Figures.IsOutOfCluster {
			names = append(names, node.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return listed(names) + ": no connection to NATS (dunlin_cluster_ready is 0), so a rollout does not replace another node. " +
		"Check the servers and nats_password, or `roost rollback`"
}
