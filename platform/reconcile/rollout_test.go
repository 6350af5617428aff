package reconcile

import (
	"strings"
	"testing"
)

func deployment(replicas int64) Manifest {
	return Manifest{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "shop", "namespace": "web", "labels": labelsOfShop()},
		"spec":     map[string]any{"replicas": replicas},
	}
}

// A Deployment counts ready old pods as ready, as long as they exist.
func TestARolloutEndsWithTheLastOldPod(t *testing.T) {
	for _, row := range []struct {
		name                                   string
		generation, replicas, updated, isReady int64
		isProgressing                          bool
	}{
		{"the controller has not seen it", 1, 2, 2, 2, true},
		{"one new pod starts", 2, 3, 1, 2, true},
		{"one new pod is ready", 2, 3, 1, 3, true},
		{"the last new pod starts, and an old one is ready", 2, 3, 2, 2, true},
		{"all new pods are ready, and an old one is there", 2, 3, 2, 3, true},
		{"all new pods are there, and one is not ready", 2, 2, 2, 1, true},
		{"all pods are new and ready", 2, 2, 2, 2, false},
	} {
		live := stamp(deployment(2), revisionsOwner)
		live["metadata"].(map[string]any)["generation"] = int64(2)
		live["status"] = map[string]any{
			"observedGeneration": row.generation, "replicas": row.replicas, "updatedReplicas": row.updated, "readyReplicas": row.isReady,
		}
		result := Decide(Input{Owner: revisionsOwner, Desired: []Manifest{deployment(2)}, Live: []Manifest{live}})
		for _, condition := range result.Conditions {
			if condition.Type == ConditionProgressing && condition.Holds != row.isProgressing {
				t.Errorf("%s: %+v", row.name, condition)
			}
		}
	}
}

func TestAFailedMigrationSaysWhy(t *testing.T) {
	job := Manifest{
		"apiVersion": "batch/v1", "kind": "Job",
		"metadata": map[string]any{
			"name": "shop-migrate-1", "namespace": "web", "labels": labelsOfShop(),
			"annotations": map[string]any{"apps.roost.dev/phase": "before-rollout"},
		},
	}
	live := stamp(job, revisionsOwner)
	live["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Failed", "status": "True"}}}
	for words, pods := range map[string][]PodState{
		"keep serving. shop-migrate-1-b: exit code 1: no column": {
			{Name: "shop-run-1", Job: "shop-run", LastOutput: "exit code 2: another Job"},
			{Name: "shop-migrate-1-b", Job: "shop-migrate-1", LastOutput: "exit code 1: no column"},
			{Name: "shop-migrate-1-a", Job: "shop-migrate-1", LastOutput: "exit code 1: an earlier attempt"},
		},
		"keep serving. The log of its Job shows the cause": nil,
	} {
		result := Decide(Input{Owner: revisionsOwner, Desired: []Manifest{job}, Live: []Manifest{live}, Pods: pods})
		for _, condition := range result.Conditions {
			if condition.Type == ConditionDegraded && (condition.Reason != ReasonMigrationFailed || !strings.HasSuffix(condition.Message, words)) {
				t.Errorf("%+v", condition)
			}
		}
	}
}

// Without a node, the pods of NATS servers serve no clients. Without NATS servers, neither do the nodes.
func TestEachWorkloadNeedsAPod(t *testing.T) {
	for _, row := range []struct {
		nodes, servers int64
		isReady        bool
		message        string
	}{
		{0, 3, false, "no pod of realtime is ready"}, {3, 0, false, "no pod of realtime-nats is ready"}, {1, 1, true, "2 pods serve"},
	} {
		var desired, live []Manifest
		for name, ready := range map[string]int64{"realtime": row.nodes, "realtime-nats": row.servers} {
			object := func() Manifest {
				return Manifest{
					"apiVersion": "apps/v1", "kind": "StatefulSet",
					"metadata": map[string]any{"name": name, "namespace": "web", "labels": labelsOfShop()},
					"spec":     map[string]any{"replicas": int64(3)},
				}
			}
			found := stamp(object(), revisionsOwner)
			found["status"] = map[string]any{"replicas": int64(3), "updatedReplicas": int64(3), "readyReplicas": ready}
			desired, live = append(desired, object()), append(live, found)
		}
		result := Decide(Input{Owner: revisionsOwner, Desired: desired, Live: live})
		for _, condition := range result.Conditions {
			if condition.Type == ConditionReady && (condition.Holds != row.isReady || condition.Message != row.message) {
				t.Errorf("%+v: %+v", row, condition)
			}
		}
	}
}
