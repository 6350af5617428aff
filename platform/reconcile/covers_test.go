package reconcile

import "testing"

// podTemplate is that of a Deployment, with the fields that a change sets.
func deploymentWith(change func(spec, container map[string]any)) Manifest {
	container := map[string]any{
		"name": "app", "image": "shop:1",
		"env":          []any{map[string]any{"name": "A", "value": "1"}, map[string]any{"name": "B", "value": "2"}},
		"ports":        []any{map[string]any{"name": "http", "containerPort": int64(8080), "protocol": "TCP"}},
		"volumeMounts": []any{map[string]any{"name": "tmp", "mountPath": "/tmp"}},
		"command":      []any{"serve", "--fast"},
		"envFrom":      []any{map[string]any{"configMapRef": map[string]any{"name": "shop-env"}}},
	}
	spec := map[string]any{
		"containers":  []any{container},
		"volumes":     []any{map[string]any{"name": "tmp", "emptyDir": map[string]any{}}},
		"tolerations": []any{map[string]any{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}},
	}
	change(spec, container)
	made := deployment(2)
	made["spec"].(map[string]any)["template"] = map[string]any{"spec": spec}
	return made
}

func appended(table map[string]any, list string, element any) {
	elements, _ := table[list].([]any)
	table[list] = append([]any{element}, elements...)
}

// TestElementsOfOthersStay changes a live Deployment as others do. What server-side apply keeps causes no write, and what it undoes does.
func TestElementsOfOthersStay(t *testing.T) {
	none := func(_, _ map[string]any) {}
	for name, row := range map[string]struct {
		change   func(spec, container map[string]any)
		isUndone bool
	}{
		"nothing":    {none, false},
		"a variable": {func(_, c map[string]any) { appended(c, "env", map[string]any{"name": "C", "value": "3"}) }, false},
		"a volume":   {func(s, _ map[string]any) { appended(s, "volumes", map[string]any{"name": "other"}) }, false},
		"a mount": {func(_, c map[string]any) {
			appended(c, "volumeMounts", map[string]any{"name": "tmp", "mountPath": "/other"})
		}, false},
		"a container":       {func(s, _ map[string]any) { appended(s, "containers", map[string]any{"name": "sidecar"}) }, false},
		"an init container": {func(s, _ map[string]any) { appended(s, "initContainers", map[string]any{"name": "setup"}) }, false},
		"a port": {func(_, c map[string]any) {
			appended(c, "ports", map[string]any{"containerPort": int64(9090), "protocol": "TCP"})
		}, false},
		"a pull secret": {func(s, _ map[string]any) { appended(s, "imagePullSecrets", map[string]any{"name": "other"}) }, false},
		"a field":       {func(s, _ map[string]any) { s["dnsPolicy"] = "ClusterFirst" }, false},
		"a toleration": {func(s, _ map[string]any) {
			appended(s, "tolerations", map[string]any{"key": "gpu", "operator": "Exists"})
		}, true},
		"an argument": {func(_, c map[string]any) { appended(c, "command", "nice") }, true},
		"a source of settings": {func(_, c map[string]any) {
			appended(c, "envFrom", map[string]any{"secretRef": map[string]any{"name": "x"}})
		}, true},
		"the value of ours": {func(_, c map[string]any) { c["env"].([]any)[0].(map[string]any)["value"] = "9" }, true},
		"ours is gone":      {func(_, c map[string]any) { c["env"] = c["env"].([]any)[1:] }, true},
		"ours is gone, and one is added": {func(_, c map[string]any) {
			c["env"] = c["env"].([]any)[1:]
			appended(c, "env", map[string]any{"name": "C", "value": "3"})
		}, true},
		"another port of ours": {func(_, c map[string]any) { c["ports"].([]any)[0].(map[string]any)["containerPort"] = int64(8081) }, true},
	} {
		desired := deploymentWith(none)
		live := clone(stamp(desired, revisionsOwner))
		template := live["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		row.change(template, template["containers"].([]any)[0].(map[string]any))
		live["metadata"].(map[string]any)["uid"] = "uid-1"
		result := Decide(Input{Owner: revisionsOwner, Desired: []Manifest{desired}, Live: []Manifest{live}})
		if (len(result.Writes) == 1) != row.isUndone {
			t.Errorf("%s: %v", name, result.Writes)
		}
	}
}

// TestATakenNameWritesNothing is a Dunlin whose name an App in the same namespace has.
func TestATakenNameWritesNothing(t *testing.T) {
	service := func(labels map[string]any) Manifest {
		return Manifest{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "shop", "namespace": "web", "labels": labels}}
	}
	dunlin := Owner{APIVersion: revisionsOwner.APIVersion, Kind: "Dunlin", Namespace: "web", Name: "shop", UID: "uid-of-dunlin"}
	foreign := stamp(service(withPart("main")), revisionsOwner)
	foreign["metadata"].(map[string]any)["uid"] = "uid-1"
	old := stamp(deployment(1), dunlin)
	old["metadata"].(map[string]any)["uid"], old["metadata"].(map[string]any)["name"] = "uid-2", "shop-of-another-revision"
	result := Decide(Input{Owner: dunlin, Desired: []Manifest{deployment(2), service(withPart("main"))}, Live: []Manifest{foreign, old}})
	if len(result.Writes) > 0 {
		t.Errorf("%v", result.Writes)
	}
	if degraded := conditionOf(result, ConditionDegraded); degraded.Reason != ReasonNameTaken {
		t.Errorf("%+v", degraded)
	}
	if progressing := conditionOf(result, ConditionProgressing); progressing.Holds {
		t.Errorf("%+v", progressing)
	}
	// The name becomes free.
	result = Decide(Input{Owner: dunlin, Desired: []Manifest{deployment(2), service(withPart("main"))}})
	if len(result.Writes) != 2 {
		t.Errorf("%v", result.Writes)
	}
}
