package operator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	// figuresTimeout is the timeout of a request to a node, including the response body.
	figuresTimeout = 2 * time.Second
	// figuresBytesMax is the maximum number of bytes to read of a response.
	figuresBytesMax = 1 << 20
	// figuresAge is how long the result of a request, or its failure, is reused. Passes share a few workers, and there may be many passes in a second.
	figuresAge = 15 * time.Second
	// figuresAgePaced is figuresAge while nodes are replaced. These figures decide when the next node is replaced.
	figuresAgePaced = time.Second
	// figuresKept is the age at which a result is dropped, because its pod may have been deleted.
	figuresKept = 10 * time.Minute
)

// answer contains the figures of a node, or nil if the node did not respond.
type answer struct {
	when    time.Time
	figures *reconcile.NodeFigures
}

// answers contains the newest result for each pod.
type answers struct {
	guard sync.Mutex
	byPod map[types.UID]answer
}

func (answers *answers) of(pod types.UID, now time.Time, age time.Duration) (*reconcile.NodeFigures, bool) {
	answers.guard.Lock()
	defer answers.guard.Unlock()
	last, isThere := answers.byPod[pod]
	return last.figures, isThere && now.Sub(last.when) < age
}

func (answers *answers) set(pod types.UID, now answer) {
	answers.guard.Lock()
	defer answers.guard.Unlock()
	if answers.byPod == nil {
		answers.byPod = map[types.UID]answer{}
	}
	for other, last := range answers.byPod {
		if now.when.Sub(last.when) > figuresKept {
			delete(answers.byPod, other)
		}
	}
	answers.byPod[pod] = now
}

// nodeStates returns the states of a Dunlin's nodes, with the figures of those that respond. The requests run concurrently.
func (operator *Operator) nodeStates(ctx context.Context, pods []corev1.Pod, age time.Duration) []reconcile.NodeState {
	// The capacity prevents reallocation: goroutines write to elements of the slice.
	nodes := make([]reconcile.NodeState, 0, len(pods))
	var asked sync.WaitGroup
	for index := range pods {
		pod := &pods[index]
		if pod.Labels[render.LabelPart] != render.PartMain {
			continue
		}
		nodes = append(nodes, nodeState(pod))
		node := &nodes[len(nodes)-1]
		if pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning {
			asked.Go(func() { node.Figures = operator.figuresOf(ctx, pod, age) })
		}
	}
	asked.Wait()
	return nodes
}

// nodesInput returns the nodes of a Dunlin with the desired number of nodes, from the spec or from the load, and the status with both. Both results
// are nil for an App.
func (operator *Operator) nodesInput(ctx context.Context, subject *subject, pods []corev1.Pod, live map[objectName]reconcile.Manifest) (*reconcile.NodesInput, *v1alpha1.DunlinStatus) {
	dunlin, isDunlin := subject.object.(*v1alpha1.Dunlin)
	if !isDunlin {
		return nil, nil
	}
	spec, status, second := &dunlin.Spec, subject.status.Dunlin, metav1.NewTime(operator.now().Truncate(time.Second))
	set := render.NodesName(dunlin)
	pods = ofSet(pods, set)
	isChanging := reconcile.IsChanging(live[objectName{appsv1.SchemeGroupVersion.String(), "StatefulSet", set}]) || slices.ContainsFunc(pods, isEndingNode)
	age := figuresAge
	if isChanging {
		age = figuresAgePaced
	}
	nodes := operator.nodeStates(ctx, pods, age)
	wanted, fewerSince := int32(1), (*metav1.Time)(nil)
	switch {
	case spec.Autoscaling != nil:
		scaling := reconcile.ScalingInput{Spec: spec.Autoscaling, Nodes: nodes, IsChanging: isChanging, Now: second}
		if status != nil {
			scaling.Before, scaling.FewerSince = status.NodesDesired, status.FewerSince
		}
		wanted, fewerSince = reconcile.ScaledNodes(scaling)
	case spec.Nodes != nil:
		wanted = *spec.Nodes
	}
	returnSeconds := int32(reconcile.ReturnSecondsDefault)
	if spec.ReturnSeconds != nil {
		returnSeconds = *spec.ReturnSeconds
	}
	return &reconcile.NodesInput{
		Nodes: nodes, Wanted: wanted, Now: second, ReturnSeconds: int64(returnSeconds), DrainSeconds: render.DrainOf(spec).GraceSeconds,
	}, reconcile.DunlinStatus(status, nodes, wanted, fewerSince, second)
}

// ofSet returns the pods of a StatefulSet. A pod with earlier volumes exists until its node is back or deleted, and is not a node of the Dunlin any
// more.
func ofSet(pods []corev1.Pod, set string) []corev1.Pod {
	var found []corev1.Pod
	for index := range pods {
		name := pods[index].Name
		if at := strings.LastIndexByte(name, '-'); at > 0 && name[:at] == set {
			found = append(found, pods[index])
		}
	}
	return found
}

func isEndingNode(pod corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.Labels[render.LabelPart] == render.PartMain
}

func nodeState(pod *corev1.Pod) reconcile.NodeState {
	state := reconcile.NodeState{Name: pod.Name, Revision: pod.Labels[appsv1.StatefulSetRevisionLabel]}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			state.IsReady = condition.Status == corev1.ConditionTrue
			state.ReadyChanged = &condition.LastTransitionTime
		}
	}
	if deleted := pod.DeletionTimestamp; deleted != nil {
		grace := int64(0)
		if pod.DeletionGracePeriodSeconds != nil {
			grace = *pod.DeletionGracePeriodSeconds
		}
		// deletionTimestamp is the time at which the grace period ends.
		state.IsReady, state.Drained = false, new(metav1.NewTime(deleted.Add(-time.Duration(grace)*time.Second)))
	}
	return state
}

func (operator *Operator) figuresOf(ctx context.Context, pod *corev1.Pod, age time.Duration) *reconcile.NodeFigures {
	now := operator.now()
	if figures, isFresh := operator.answers.of(pod.UID, now, age); isFresh {
		return figures
	}
	// The pass does not fail if a node does not respond. The status contains the number of nodes that respond.
	figures, _ := operator.askNode(ctx, pod.Status.PodIP)
	operator.answers.set(pod.UID, answer{now, figures})
	return figures
}

func (operator *Operator) askNode(ctx context.Context, address string) (*reconcile.NodeFigures, error) {
	ctx, stop := context.WithTimeout(ctx, figuresTimeout)
	defer stop()
	url := "http://" + net.JoinHostPort(address, strconv.Itoa(render.InternalPort)) + "/metrics"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: operator.DialNode}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers with status %d", url, response.StatusCode)
	}
	return readFigures(io.LimitReader(response.Body, figuresBytesMax))
}

// readFigures adds up the figures of the shards and threads of a node. A response without the version is not from a Dunlin, or is truncated.
func readFigures(text io.Reader) (*reconcile.NodeFigures, error) {
	figures, hasSessions := &reconcile.NodeFigures{}, false
	busy, shards := 0.0, 0.0
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		name, labels, value, isSample := sampleOf(lines.Text())
		switch {
		case !isSample:
		case name == "dunlin_sessions":
			figures.Sessions, hasSessions = figures.Sessions+int64(value), true
		case name == "dunlin_rooms":
			figures.Rooms += int64(value)
		case name == "dunlin_shard_busy_ratio":
			busy, shards = busy+min(value, 1), shards+1
		case name == "dunlin_cluster_ready":
			figures.IsOutOfCluster = value == 0
		case name == "dunlin_build_info":
			_, rest, _ := strings.Cut(labels, `version="`)
			figures.Version, _, _ = strings.Cut(rest, `"`)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if !hasSessions || figures.Version == "" || len(figures.Version) > reconcile.VersionBytesMax {
		return nil, fmt.Errorf("the answer does not have the metrics of a node")
	}
	if shards > 0 {
		figures.Busy = new(busy / shards)
	}
	return figures, nil
}

// sampleOf parses a line such as `dunlin_sessions{shard="0"} 12`. It ignores a count that is negative, not a number, or larger than any node can have.
func sampleOf(line string) (name, labels string, value float64, isSample bool) {
	at := strings.LastIndexByte(line, ' ')
	if at < 0 || strings.HasPrefix(line, "#") {
		return "", "", 0, false
	}
	value, err := strconv.ParseFloat(line[at+1:], 64)
	name, labels, _ = strings.Cut(line[:at], "{")
	return name, labels, value, err == nil && value >= 0 && value <= 1<<40
}
