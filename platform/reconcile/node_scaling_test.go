package reconcile_test

import (
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

func loaded(nodes int, sessions int64, busy float64) []reconcile.NodeState {
	var states []reconcile.NodeState
	for range nodes {
		figures := &reconcile.NodeFigures{Sessions: sessions / int64(nodes), Busy: new(busy)}
		states = append(states, reconcile.NodeState{IsReady: true, Figures: figures})
	}
	return states
}

func TestTheNumberOfNodesFollowsTheLoad(t *testing.T) {
	ago := func(seconds int) *metav1.Time {
		return new(metav1.NewTime(noon.Add(-time.Duration(seconds) * time.Second)))
	}
	silent := loaded(4, 100, 0.1)
	silent[3].Figures = nil
	withoutBusy := loaded(4, 100, 0.1)
	withoutBusy[3].Figures.Busy = nil
	for name, row := range map[string]struct {
		before     int32
		nodes      []reconcile.NodeState
		since      *metav1.Time
		isChanging bool
		want       int32
		isFewer    bool
	}{
		"nothing decided yet":                   {0, nil, nil, false, 2, false},
		"below min":                             {1, loaded(1, 100, 0), nil, false, 2, false},
		"above max":                             {9, loaded(9, 100, 0), nil, false, 6, true},
		"sessions at the limit":                 {3, loaded(3, 3000, 0.1), nil, false, 3, false},
		"one session more":                      {3, append(loaded(2, 2000, 0.1), loaded(1, 1001, 0.1)...), nil, false, 4, false},
		"sessions for five nodes":               {3, loaded(3, 4800, 0.1), nil, false, 5, false},
		"sessions for more than max":            {3, loaded(3, 30000, 0.1), nil, false, 6, false},
		"more sessions while a rollout runs":    {3, loaded(3, 3600, 0.1), nil, true, 4, false},
		"busy within the tolerance":             {3, loaded(3, 0, 0.54), nil, false, 3, false},
		"busy":                                  {3, loaded(3, 0, 0.6), nil, false, 4, false},
		"busy while a rollout runs":             {3, loaded(3, 0, 0.6), nil, true, 3, false},
		"few, for the first time":               {4, loaded(4, 100, 0.1), nil, false, 4, true},
		"few for 299 s":                         {4, loaded(4, 100, 0.1), ago(299), false, 4, true},
		"few for 300 s":                         {4, loaded(4, 100, 0.1), ago(300), false, 3, true},
		"few at min":                            {2, loaded(2, 100, 0.1), ago(900), false, 2, false},
		"few while a rollout runs":              {4, loaded(4, 100, 0.1), ago(900), true, 4, false},
		"few, and a node does not answer":       {4, silent, ago(900), false, 4, false},
		"few, and a node does not say its load": {4, withoutBusy, ago(900), false, 4, false},
		"few, and a node is missing":            {4, loaded(3, 99, 0.1), ago(900), false, 4, false},
		"90 % of what three nodes can have":     {4, loaded(4, 2700, 0.1), ago(900), false, 3, true},
		"more than that":                        {4, append(loaded(3, 2100, 0.1), loaded(1, 601, 0.1)...), ago(900), false, 4, false},
		"few sessions on busy nodes":            {4, loaded(4, 100, 0.4), ago(900), false, 4, false},
	} {
		spec := &v1alpha1.NodeAutoscaling{Min: 2, Max: 6, SessionsPerNode: new(int32(1000)), BusyPercent: new(int32(50))}
		found, since := reconcile.ScaledNodes(reconcile.ScalingInput{
			Spec: spec, Before: row.before, FewerSince: row.since, Nodes: row.nodes, IsChanging: row.isChanging, Now: noon,
		})
		if found != row.want || (since != nil) != row.isFewer {
			t.Errorf("%s: %d nodes, since %v", name, found, since)
		}
	}
}

// At any constant load, the number of nodes moves in one direction and then stays.
func TestAConstantLoadDoesNotFlap(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 2))
		spec := &v1alpha1.NodeAutoscaling{Min: 1 + random.Int32N(4)}
		spec.Max = spec.Min + random.Int32N(10)
		if random.IntN(3) > 0 {
			spec.SessionsPerNode = new(1 + random.Int32N(5000))
		}
		if spec.SessionsPerNode == nil || random.IntN(2) == 0 {
			spec.BusyPercent = new(1 + random.Int32N(100))
		}
		spec.StabilizationSeconds = new(random.Int32N(600))
		sessions, busy := random.Int64N(20000), random.Float64()*8
		now, count, since := noon, 1+random.Int32N(12), (*metav1.Time)(nil)
		ups, downs, last := 0, 0, 0
		for pass := range 2000 {
			// The first node gets the remainder of the division.
			nodes := loaded(int(count), sessions, min(busy/float64(count), 1))
			nodes[0].Figures.Sessions += sessions % int64(count)
			next, from := reconcile.ScaledNodes(reconcile.ScalingInput{Spec: spec, Before: count, FewerSince: since, Nodes: nodes, Now: now})
			switch isClamped := count < spec.Min || count > spec.Max; {
			case next > count:
				ups, last = ups+1, pass
			case next < count && !isClamped:
				if downs, last = downs+1, pass; next != count-1 {
					t.Fatalf("seed %d: from %d to %d nodes at once", seed, count, next)
				}
			}
			count, since, now = next, from, metav1.NewTime(now.Add(15*time.Second))
		}
		if ups > 0 && downs > 0 || last > 1000 {
			t.Fatalf("seed %d: %d times up, %d times down, last in pass %d: %+v, %d sessions, %f busy", seed, ups, downs, last, spec, sessions, busy)
		}
	}
}
