package reconcile

import (
	"fmt"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/crd"
	"github.com/dunlin-project/dunlin/platform/render"
)

// liveWorkload returns a workload of shop whose pods of one process are ready.
func liveWorkload(kind, process string, ready int64) Manifest {
	object := deployment(ready)
	object["kind"] = kind
	metadata := object["metadata"].(map[string]any)
	if process != render.MainProcess {
		metadata["name"] = render.ProcessName("shop", process)
		metadata["labels"].(map[string]any)[render.LabelProcess] = process
	}
	live := stamp(object, revisionsOwner)
	live["metadata"].(map[string]any)["uid"] = "uid-of-" + kind + process
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

// A process is renamed: its old pods serve until the new ones are ready, unless no two versions may run.
func TestARenamedProcessServesUntilTheNewOneIsReady(t *testing.T) {
	for _, row := range []struct {
		name      string
		strategy  string
		ready     int64
		isDeleted bool
	}{
		{"the new pods start", "RollingUpdate", 0, false}, {"one new pod is ready", "RollingUpdate", 1, false},
		{"the new pods are ready", "RollingUpdate", 2, true}, {"no two versions may run", "Recreate", 0, true},
	} {
		web, old := liveWorkload("Deployment", "web", 1), liveWorkload("Deployment", "worker", 2)
		desired := deployment(2)
		desired["spec"] = map[string]any{"replicas": int64(2), "strategy": map[string]any{"type": row.strategy}}
		metadata := desired["metadata"].(map[string]any)
		metadata["name"] = render.ProcessName("shop", "jobs")
		metadata["labels"].(map[string]any)[render.LabelProcess] = "jobs"
		renamed := stamp(desired, revisionsOwner)
		renamed["status"] = map[string]any{"replicas": int64(2), "updatedReplicas": int64(2), "readyReplicas": row.ready}
		result := Decide(Input{Owner: revisionsOwner, Desired: []Manifest{deployment(1), desired}, Live: []Manifest{web, old, renamed}})
		isDeleted := len(result.Writes) == 1 && result.Writes[0].Kind == WriteDelete && keyOf(result.Writes[0].Object) == keyOf(old)
		if isDeleted != row.isDeleted || !isDeleted && len(result.Writes) > 0 {
			t.Errorf("%s: %+v", row.name, result.Writes)
		}
	}
}

// The API server refuses a status with more processes than the definition of the kind admits.
func TestTheStatusAdmitsAllProcessesOfASpec(t *testing.T) {
	text, err := crd.Files.ReadFile("apps.roost.dev_apps.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type fields struct {
		Properties struct {
			Processes struct{ MaxItems int }
		}
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties struct{ Spec, Status fields }
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	if len(definition.Spec.Versions) == 0 {
		t.Fatal("the definition has no version")
	}
	for _, version := range definition.Spec.Versions {
		found := version.Schema.OpenAPIV3Schema.Properties
		inSpec, inStatus := found.Spec.Properties.Processes.MaxItems, found.Status.Properties.Processes.MaxItems
		if inStatus != processesMax || inSpec != processesMax-1 {
			t.Errorf("the spec admits %d processes beside %s, and the status %d; processesMax is %d", inSpec, render.MainProcess, inStatus, processesMax)
		}
	}
}
