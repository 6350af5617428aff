package reconcile

import (
	"fmt"
	"testing"

	"github.com/dunlin-project/dunlin/platform/render"
)

// liveWorkload returns a workload of shop whose pods of one process are ready.
func liveWorkload(kind, process string, ready int64) Manifest {
	object := deployment(ready)
	object["kind"] = kind
	metadata := object["metadata"].(map[string]any)
	metadata["uid"] = "uid-of-" + kind + process
	if process != render.MainProcess {
		metadata["name"] = render.ProcessName("shop", process)
		metadata["labels"].(map[string]any)[render.LabelProcess] = process
	}
	live := stamp(object, revisionsOwner)
	live["status"] = map[string]any{"replicas": ready, "updatedReplicas": ready, "readyReplicas": ready}
	return live
}

// Volumes were added to the app, and nothing is applied before the old Deployment is pruned. The status admits each name once.
func TestAProcessIsInTheStatusOnce(t *testing.T) {
	live := []Manifest{liveWorkload("Deployment", "web", 1), liveWorkload("StatefulSet", "web", 2), liveWorkload("Deployment", "worker", 3)}
	wanted := clone(live[0])
	for _, row := range []struct {
		name    string
		desired []Manifest
		ready   int32
	}{{"the spec is wrong", nil, 2}, {"a host is taken", []Manifest{wanted}, 1}} {
		result := Decide(Input{Owner: revisionsOwner, Desired: row.desired, Live: live, Blocked: &Block{Reason: ReasonSpecInvalid, Message: "wrong"}})
		found := result.Processes
		if len(found) != 2 || found[0].Name != "web" || found[0].Ready != row.ready || found[1].Name != "worker" || found[1].Ready != 3 {
			t.Errorf("%s: %+v", row.name, found)
		}
	}
}

func TestTheStatusHasAtMostSoManyProcesses(t *testing.T) {
	live := []Manifest{liveWorkload("Deployment", "web", 1)}
	for index := range processesMax - 1 {
		live = append(live, liveWorkload("Deployment", fmt.Sprintf("old-%d", index), 1))
	}
	blocked := func() Result {
		return Decide(Input{Owner: revisionsOwner, Desired: live[:1], Live: live, Blocked: &Block{Reason: ReasonSpecInvalid, Message: "wrong"}})
	}
	if found := blocked().Processes; len(found) != processesMax {
		t.Errorf("%d at the limit", len(found))
	}
	live = append(live, liveWorkload("Deployment", "new", 1))
	if found := blocked().Processes; len(found) != processesMax || found[len(found)-1].Name != "web" {
		t.Errorf("%+v", found)
	}
}
