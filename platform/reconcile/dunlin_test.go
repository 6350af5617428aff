package reconcile_test

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

var noon = metav1.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func nodeOf(sessions, rooms int64, version string) reconcile.NodeState {
	return reconcile.NodeState{IsReady: true, Figures: &reconcile.NodeFigures{Sessions: sessions, Rooms: rooms, Version: version}}
}

func TestWhatNodesSayOfThemselves(t *testing.T) {
	drained := metav1.NewTime(noon.Add(-time.Minute))
	nodes := []reconcile.NodeState{
		nodeOf(10, 1, "0.1.0"), nodeOf(20, 2, "0.2.0"), {IsReady: true}, {Drained: &drained},
	}
	found := reconcile.DunlinStatus(nil, nodes, 4, nil, noon)
	want := &v1alpha1.DunlinStatus{
		NodesReady: 3, NodesDesired: 4, NodesAnswering: 2, Sessions: 30, Rooms: 3, Version: "0.2.0",
		LastDrain: &drained, AsOf: noon,
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("%+v", found)
	}
	// The drained pod is gone.
	after := reconcile.DunlinStatus(found, nodes[:3], 4, nil, metav1.NewTime(noon.Add(time.Second)))
	if after != found {
		t.Errorf("%+v", after)
	}
}

// Counts change all the time, so a change of counts alone is written at most every 30 seconds. Other changes are written at once.
func TestCountsAreWrittenAtMostEvery30Seconds(t *testing.T) {
	before := reconcile.DunlinStatus(nil, []reconcile.NodeState{nodeOf(10, 1, "0.1.0")}, 1, nil, noon)
	for _, row := range []struct {
		name      string
		node      reconcile.NodeState
		after     time.Duration
		isWritten bool
	}{
		{"nothing changes", nodeOf(10, 1, "0.1.0"), time.Hour, false},
		{"sessions, too soon", nodeOf(11, 1, "0.1.0"), 29 * time.Second, false},
		{"sessions", nodeOf(11, 1, "0.1.0"), 30 * time.Second, true},
		{"rooms, too soon", nodeOf(10, 0, "0.1.0"), 29 * time.Second, false},
		{"rooms", nodeOf(10, 0, "0.1.0"), 30 * time.Second, true},
		{"version", nodeOf(10, 1, "0.2.0"), time.Second, true},
		{"no answer", reconcile.NodeState{IsReady: true}, time.Second, true},
		{"not ready", reconcile.NodeState{Figures: nodeOf(10, 1, "0.1.0").Figures}, time.Second, true},
	} {
		now := metav1.NewTime(noon.Add(row.after))
		found := reconcile.DunlinStatus(before, []reconcile.NodeState{row.node}, 1, nil, now)
		if isWritten := found != before; isWritten != row.isWritten || isWritten && !found.AsOf.Equal(&now) {
			t.Errorf("%s: %+v", row.name, found)
		}
		if again := reconcile.DunlinStatus(found, []reconcile.NodeState{row.node}, 1, nil, metav1.NewTime(now.Add(time.Second))); row.isWritten && again != found {
			t.Errorf("%s: a second pass writes %+v", row.name, again)
		}
	}
}
