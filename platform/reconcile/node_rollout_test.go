package reconcile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/render"
)

// simulation simulates a Dunlin's StatefulSet with its controller, its nodes and their sessions, and an operator that may crash.
type simulation struct {
	t      *testing.T
	random *rand.Rand
	api    *memoryAPI
	now    metav1.Time
	// template and wanted are the template and the number of nodes that the spec requests.
	template string
	wanted   int32
	nodes    map[int64]*simulated
	// away is the number of sessions that are about to reconnect.
	away int64
	// Nodes with these templates never become ready, or never join the cluster.
	neverReady, outOfCluster map[string]bool
	current                  string
	// crashes makes nodes crash, one after 400 seconds on average.
	crashes bool
	// paced is the last written StatefulSet.
	paced  pace
	result Result
}

type simulated struct {
	template string
	// left is the time until the node is ready, or until it is gone.
	left         int64
	isReady      bool
	changed      metav1.Time
	drained      *metav1.Time
	sessions     int64
	isUnreadable bool
}

const setKey = "StatefulSet/shop"

func newSimulation(t *testing.T, random *rand.Rand, nodes int32) *simulation {
	simulation := &simulation{
		t: t, random: random, api: newMemoryAPI(), now: metav1.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), template: "1", wanted: nodes, current: "1",
		nodes: map[int64]*simulated{}, neverReady: map[string]bool{}, outOfCluster: map[string]bool{},
	}
	for range 40 {
		simulation.step()
	}
	for _, node := range simulation.nodes {
		node.sessions = 1000
	}
	return simulation
}

func withPart(part string) map[string]any {
	labels := labelsOfShop()
	labels[render.LabelPart] = part
	return labels
}

func nodesSet(template string, nodes int32) Manifest {
	return Manifest{
		"apiVersion": "apps/v1", "kind": "StatefulSet",
		"metadata": map[string]any{"name": "shop", "namespace": "web", "labels": withPart(render.PartMain)},
		"spec": map[string]any{
			"replicas":       int64(nodes),
			"updateStrategy": map[string]any{"type": "RollingUpdate"}, "template": map[string]any{"image": template},
		},
	}
}

func (simulation *simulation) input() Input {
	desired := []Manifest{nodesSet(simulation.template, simulation.wanted)}
	return Input{
		Owner: revisionsOwner, Desired: desired, Live: simulation.api.list(desired),
		Nodes: &NodesInput{Nodes: simulation.states(), Wanted: simulation.wanted, ReturnSeconds: 120, DrainSeconds: 65, Now: simulation.now},
	}
}

func (simulation *simulation) states() []NodeState {
	var states []NodeState
	for _, number := range slices.Sorted(maps.Keys(simulation.nodes)) {
		node := simulation.nodes[number]
		state := NodeState{
			Name: fmt.Sprintf("shop-%d", number), Revision: "r" + node.template, IsReady: node.isReady && node.drained == nil,
			ReadyChanged: new(node.changed), Drained: node.drained,
		}
		if !node.isUnreadable && !simulation.neverReady[node.template] {
			state.Figures = &NodeFigures{Sessions: node.sessions, IsOutOfCluster: simulation.outOfCluster[node.template]}
		}
		states = append(states, state)
	}
	return states
}

// operate runs one pass. An operator that crashes may have written before or not.
func (simulation *simulation) operate() {
	simulation.result = Decide(simulation.input())
	for _, write := range simulation.result.Writes {
		if simulation.random != nil && simulation.random.IntN(8) == 0 {
			return
		}
		if err := simulation.api.write(write); err != nil {
			simulation.t.Fatal(err)
		}
		if write.Kind != WriteApply || keyOf(write.Object) != setKey {
			continue
		}
		simulation.checkStep()
		metadata := simulation.api.objects[setKey]["metadata"].(map[string]any)
		metadata["generation"] = number(simulation.api.objects[setKey], "metadata", "generation") + 1
	}
}

func (simulation *simulation) pace() pace {
	var found pace
	_ = json.Unmarshal([]byte(annotation(simulation.api.objects[setKey], AnnotationPace)), &found)
	return found
}

// checkStep checks the last write: the partition of a template only falls, and a serving node is drained only when all nodes that were replaced
// before it serve in their cluster.
func (simulation *simulation) checkStep() {
	simulation.t.Helper()
	before, found := simulation.paced, simulation.pace()
	simulation.paced = found
	if before.Template != found.Template {
		return
	}
	if found.Partition > before.Partition {
		simulation.t.Fatalf("the partition of a template rises from %d to %d", before.Partition, found.Partition)
	}
	target := simulation.nodes[found.Partition]
	if found.Partition == before.Partition || found.Nodes != before.Nodes || target == nil || !target.isReady || target.template == simulation.template {
		return
	}
	for number := found.Partition + 1; number < found.Nodes; number++ {
		node := simulation.nodes[number]
		if node == nil || !node.isReady || node.template != simulation.template || simulation.outOfCluster[node.template] && !node.isUnreadable {
			simulation.t.Fatalf("node %d goes while node %d is %+v", found.Partition, number, node)
		}
	}
}

// control runs one pass of Kubernetes' controller, as in 1.36.
func (simulation *simulation) control() {
	set, isThere := simulation.api.objects[setKey]
	if !isThere {
		return
	}
	spec := set["spec"].(map[string]any)
	template, _ := spec["template"].(Manifest)["image"].(string)
	rolling, _ := spec["updateStrategy"].(map[string]any)
	partition, replicas := number(rolling, "rollingUpdate", "partition"), number(set, "spec", "replicas")
	for number := range replicas {
		if simulation.nodes[number] == nil {
			made := &simulated{template: template, left: 1 + simulation.upTo(15), changed: simulation.now}
			if number < partition {
				made.template = simulation.current
			}
			simulation.nodes[number] = made
		}
	}
	for _, number := range slices.Sorted(maps.Keys(simulation.nodes)) {
		node := simulation.nodes[number]
		if number >= replicas {
			simulation.drain(node)
		}
	}
	for number := replicas - 1; number >= partition; number-- {
		node := simulation.nodes[number]
		if node.template != template && node.drained == nil {
			simulation.drain(node)
			break
		}
		if !node.isReady || node.drained != nil {
			break
		}
	}
	simulation.report(set, template, replicas)
}

func (simulation *simulation) report(set Manifest, template string, replicas int64) {
	updated, ready := int64(0), int64(0)
	for _, node := range simulation.nodes {
		if node.template == template {
			updated++
		}
		if node.isReady {
			ready++
		}
	}
	if updated == replicas && ready == replicas && int64(len(simulation.nodes)) == replicas {
		simulation.current = template
	}
	set["status"] = map[string]any{
		"observedGeneration": number(set, "metadata", "generation"), "updateRevision": "r" + template,
		"replicas": int64(len(simulation.nodes)), "updatedReplicas": updated, "readyReplicas": ready,
	}
}

func (simulation *simulation) upTo(most int64) int64 {
	if simulation.random == nil {
		return most
	}
	return simulation.random.Int64N(most + 1)
}

func (simulation *simulation) drain(node *simulated) {
	if node.drained != nil {
		return
	}
	node.drained, node.left = new(simulation.now), 1+simulation.upTo(60)
	simulation.away += node.sessions
	node.sessions = 0
}

// age advances the time by one second: nodes start and end, and sessions reconnect.
func (simulation *simulation) age() {
	simulation.now = metav1.NewTime(simulation.now.Add(time.Second))
	for _, number := range slices.Sorted(maps.Keys(simulation.nodes)) {
		node := simulation.nodes[number]
		node.left--
		switch {
		case node.drained != nil && node.left <= 0:
			delete(simulation.nodes, number)
		case node.drained == nil && !node.isReady && node.left <= 0 && !simulation.neverReady[node.template]:
			node.isReady, node.changed = true, simulation.now
		}
	}
	for _, number := range slices.Sorted(maps.Keys(simulation.nodes)) {
		node := simulation.nodes[number]
		if simulation.crashes && node.isReady && node.drained == nil && simulation.random.IntN(400) == 0 {
			simulation.away, node.sessions = simulation.away+node.sessions, 0
			node.isReady, node.changed, node.left = false, simulation.now, 1+simulation.upTo(200)
		}
		if node.isReady && node.drained == nil && simulation.away > 0 {
			back := min(simulation.away, 1+simulation.upTo(100))
			node.sessions, simulation.away = node.sessions+back, simulation.away-back
		}
	}
}

func (simulation *simulation) step() {
	if simulation.random == nil || simulation.random.IntN(3) > 0 {
		simulation.operate()
	}
	simulation.control()
	simulation.age()
}

// awayNodes returns the draining nodes.
func (simulation *simulation) awayNodes() int {
	count := 0
	for _, node := range simulation.nodes {
		if node.drained != nil {
			count++
		}
	}
	return count
}

func (simulation *simulation) isEnded() bool {
	found := simulation.pace()
	if found.Partition != 0 || found.Since != nil || found.Nodes != int64(simulation.wanted) || len(simulation.nodes) != int(simulation.wanted) {
		return false
	}
	for _, node := range simulation.nodes {
		if node.template != simulation.template || !node.isReady || node.drained != nil {
			return false
		}
	}
	return len(Decide(simulation.input()).Writes) == 0
}

const secondsMax = 4000

func (simulation *simulation) untilEnded() {
	simulation.t.Helper()
	for range secondsMax {
		if simulation.isEnded() {
			return
		}
		simulation.step()
		if away := simulation.awayNodes(); away > 1 {
			simulation.t.Fatalf("%d nodes are away at once: %+v", away, simulation.pace())
		}
	}
	simulation.t.Fatalf("no end: %+v, %+v", simulation.pace(), simulation.result.Conditions)
}

// TestRandomRollouts simulates good and bad releases, other numbers of nodes, sessions that stay away, nodes that do not answer, and an operator
// and nodes that crash. Two nodes are never drained at the same time, and after the last release everything settles.
func TestRandomRollouts(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 14))
		simulation := newSimulation(t, random, 1+random.Int32N(5))
		simulation.crashes = seed%2 == 1
		for edit := range 1 + random.IntN(4) {
			simulation.template = fmt.Sprint(edit + 2)
			simulation.neverReady[simulation.template] = random.IntN(4) == 0
			simulation.outOfCluster[simulation.template] = random.IntN(4) == 0
			if random.IntN(3) == 0 {
				simulation.wanted = 1 + random.Int32N(5)
			}
			if random.IntN(3) == 0 {
				simulation.away -= min(simulation.away, random.Int64N(200))
			}
			for _, number := range slices.Sorted(maps.Keys(simulation.nodes)) {
				simulation.nodes[number].isUnreadable = random.IntN(10) == 0
			}
			for range random.IntN(300) {
				simulation.step()
				if away := simulation.awayNodes(); away > 1 {
					t.Fatalf("seed %d: %d nodes are away at once: %+v", seed, away, simulation.pace())
				}
			}
		}
		simulation.template, simulation.crashes = "1", false
		if random.IntN(2) == 0 {
			simulation.template = "last"
		}
		simulation.untilEnded()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A release that cannot serve, or cannot join the cluster, replaces one node, and a rollback replaces it again.
func TestABadReleaseStopsAtOneNode(t *testing.T) {
	for name, row := range map[string]struct {
		spoil         func(*simulation)
		reason, words string
	}{
		"never ready":      {func(s *simulation) { s.neverReady["2"] = true }, ReasonRollingOut, "shop-2 is not ready"},
		"a wrong password": {func(s *simulation) { s.outOfCluster["2"] = true }, ReasonNodeOutOfCluster, "shop-2: no connection to NATS"},
	} {
		t.Run(name, func(t *testing.T) {
			simulation := newSimulation(t, nil, 3)
			row.spoil(simulation)
			simulation.template = "2"
			for range 1000 {
				simulation.step()
			}
			for number, template := range map[int64]string{0: "1", 1: "1", 2: "2"} {
				if found := simulation.nodes[number].template; found != template {
					t.Errorf("node %d has template %s", number, found)
				}
			}
			found := ""
			for _, condition := range simulation.result.Conditions {
				if condition.Holds && condition.Reason == row.reason {
					found = condition.Message
				}
			}
			if !strings.Contains(found, row.words) {
				t.Errorf("%q in %+v", found, simulation.result.Conditions)
			}
			if len(simulation.result.Writes) > 0 {
				t.Errorf("%+v", simulation.result.Writes)
			}
			simulation.template = "1"
			simulation.untilEnded()
			simulation.template = "3"
			simulation.untilEnded()
		})
	}
}

func TestTheNextNodeWaitsForSessions(t *testing.T) {
	template := hashOf(map[string]any{"image": "2"})
	live := withPace(nodesSet("2", 3), pace{Template: template, Nodes: 3, Partition: 2, Sessions: 3000, Since: new(metav1.Date(2026, 11, 25, 12, 7, 0, 0, time.UTC))})
	status := map[string]any{"updateRevision": "r2", "updatedReplicas": int64(1), "replicas": int64(3), "readyReplicas": int64(3)}
	now := metav1.Date(2026, 11, 25, 12, 10, 0, 0, time.UTC)
	ago := func(seconds int) *metav1.Time {
		return new(metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second)))
	}
	node := func(number int, revision string, sessions int64) NodeState {
		return NodeState{Name: fmt.Sprintf("shop-%d", number), Revision: revision, IsReady: true, ReadyChanged: ago(30), Figures: &NodeFigures{Sessions: sessions}}
	}
	for name, row := range map[string]struct {
		change    func(nodes []NodeState)
		partition int64
		hold      string
		notes     int
	}{
		"98 % are back":                     {func([]NodeState) {}, 1, "shop-1 is being replaced", 0},
		"one less":                          {func(n []NodeState) { n[0].Figures.Sessions-- }, 2, "until 2940 of 3000 sessions have reconnected", 0},
		"one less for 119 s":                {func(n []NodeState) { n[0].Figures.Sessions--; n[2].ReadyChanged = ago(119) }, 2, "until 2940", 0},
		"one less for 120 s":                {func(n []NodeState) { n[0].Figures.Sessions--; n[2].ReadyChanged = ago(120) }, 1, "shop-1 is being replaced", 1},
		"the new one starts":                {func(n []NodeState) { n[2].IsReady = false }, 2, "shop-2 is not ready", 0},
		"the new one is alone":              {func(n []NodeState) { n[2].Figures.IsOutOfCluster = true; n[2].ReadyChanged = ago(9000) }, 2, "no connection to NATS", 0},
		"the new one is silent":             {func(n []NodeState) { n[2].Figures = nil }, 2, "does not return its metrics", 0},
		"the new one is silent for 120 s":   {func(n []NodeState) { n[2].Figures, n[2].ReadyChanged = nil, ago(120) }, 1, "shop-1 is being replaced", 0},
		"an old one drains":                 {func(n []NodeState) { n[0].Drained, n[0].IsReady = ago(10), false }, 2, "shop-0 is draining", 0},
		"an old one is not ready":           {func(n []NodeState) { n[0].IsReady = false }, 2, "shop-0 is not ready", 0},
		"an old one is not ready for 120 s": {func(n []NodeState) { n[0].IsReady, n[0].ReadyChanged = false, ago(120) }, 1, "shop-1 is being replaced", 0},
		"the next one is not ready":         {func(n []NodeState) { n[1].IsReady, n[1].Figures = false, nil }, 1, "shop-1 is being replaced", 0},
		"the pod of the next one is gone":   {func(n []NodeState) { n[1].Name = "shop-9" }, 1, "shop-1 is being replaced", 0},
	} {
		nodes := []NodeState{node(0, "r1", 1440), node(1, "r1", 1500), node(2, "r2", 0)}
		row.change(nodes)
		current := stamp(live, revisionsOwner)
		current["status"] = status
		result := Decide(Input{Owner: revisionsOwner, Desired: []Manifest{nodesSet("2", 3)}, Live: []Manifest{current}, Nodes: &NodesInput{
			Nodes: nodes, Wanted: 3, ReturnSeconds: 120, DrainSeconds: 65, Now: now,
		}})
		partition := int64(2)
		for _, write := range result.Writes {
			strategy := write.Object["spec"].(map[string]any)["updateStrategy"].(map[string]any)
			partition = number(strategy, "rollingUpdate", "partition")
		}
		if partition != row.partition || len(result.Notes) != row.notes || !result.IsPaced || partition == 2 && !strings.Contains(fmt.Sprint(result.Conditions), row.hold) {
			t.Errorf("%s: partition %d, %+v, %+v", name, partition, result.Notes, result.Conditions)
		}
	}
}

// A manual change of the number of nodes, or of the partition, is undone: Roost keeps its own values.
func TestAPersonsScaleIsUndone(t *testing.T) {
	simulation := newSimulation(t, nil, 3)
	simulation.untilEnded()
	spec := simulation.api.objects[setKey]["spec"].(map[string]any)
	for field, value := range map[string]any{"replicas": int64(1), "updateStrategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"partition": int64(2)}}} {
		spec[field] = value
		simulation.operate()
		strategy := spec["updateStrategy"].(map[string]any)
		if number(simulation.api.objects[setKey], "spec", "replicas") != 3 || number(strategy, "rollingUpdate", "partition") != 0 {
			t.Errorf("%s: %v", field, spec)
		}
	}
}

// A StatefulSet of an earlier operator has no pace. Its nodes are also replaced one by one.
func TestAnEarlierOperatorsNodes(t *testing.T) {
	simulation := newSimulation(t, nil, 3)
	simulation.untilEnded()
	delete(simulation.api.objects[setKey]["metadata"].(map[string]any)["annotations"].(map[string]any), AnnotationPace)
	simulation.template = "2"
	simulation.operate()
	if found := simulation.pace(); found.Partition != 3 || found.Nodes != 3 {
		t.Errorf("%+v", found)
	}
	simulation.untilEnded()
}

// After the loss of a node with its volume, the StatefulSet of the nodes has another name. The StatefulSet of NATS servers has no pace.
func TestWhichSetIsPaced(t *testing.T) {
	for _, row := range []struct {
		name, part string
		isPaced    bool
	}{{"shop", render.PartMain, true}, {"shop-gen2", render.PartMain, true}, {"shop-nats", render.PartNATS, false}} {
		set := nodesSet("1", 1)
		set["metadata"] = map[string]any{"name": row.name, "namespace": "web", "labels": withPart(row.part)}
		result := Decide(Input{Owner: revisionsOwner, Desired: []Manifest{set}, Nodes: &NodesInput{Wanted: 1}})
		if found := annotation(result.Writes[0].Object, AnnotationPace); (found != "") != row.isPaced {
			t.Errorf("%s: %q", row.name, found)
		}
	}
}
