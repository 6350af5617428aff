package proof

import (
	"testing"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// health is what Argo CD shows of an object.
type health struct{ status, message string }

// healthScript is that of argocd-cm.yaml.
func healthScript(t *testing.T) string {
	t.Helper()
	object := documents(t, argoFolder+"/argocd-cm.yaml")[0]
	text, _, err := unstructured.NestedString(object.Object, "data", "resource.customizations")
	if err != nil {
		t.Fatal(err)
	}
	var customizations map[string]map[string]string
	if err := yaml.UnmarshalStrict([]byte(text), &customizations); err != nil {
		t.Fatal(err)
	}
	script := customizations["apps.roost.dev/*"]["health.lua"]
	if script == "" {
		t.Fatal("there is no script")
	}
	return script
}

// healthOf runs a script as Argo CD does: with the object in `obj`, and with few of Lua's libraries.
func healthOf(t *testing.T, script string, object map[string]any) health {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString,
	} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	state.SetGlobal("obj", luaValue(state, object))
	if err := state.DoString(script); err != nil {
		t.Fatalf("the health script fails: %v", err)
	}
	table, isTable := state.Get(-1).(*lua.LTable)
	if !isTable {
		t.Fatalf("the health script returns %v", state.Get(-1))
	}
	return health{lua.LVAsString(table.RawGetString("status")), lua.LVAsString(table.RawGetString("message"))}
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for name, field := range value {
			table.RawSetString(name, luaValue(state, field))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, element := range value {
			table.Append(luaValue(state, element))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	}
	return lua.LNil
}

// TestHealth has the forms of a status that the sync of the sample does not come to.
func TestHealth(t *testing.T) {
	script := healthScript(t)
	condition := func(kind, status, reason, message string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": message}
	}
	object := func(generation int64, files string, conditions ...any) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"generation": int64(2), "annotations": map[string]any{"apps.roost.dev/files": "new"}},
			"spec":     map[string]any{"keys": map[string]any{"file": "keys.env"}},
			"status":   map[string]any{"observedGeneration": generation, "files": files, "conditions": conditions},
		}
	}
	for _, row := range []struct {
		name     string
		object   map[string]any
		expected health
	}{
		{"without a status", map[string]any{"metadata": map[string]any{"generation": int64(1)}, "spec": map[string]any{}}, health{"Progressing", "the operator has not reconciled the newest spec yet"}},
		{"an old status", object(1, "new", condition("Ready", "True", "AsDesired", "fine")), health{"Progressing", "the operator has not reconciled the newest spec yet"}},
		{"old files", object(2, "old", condition("Ready", "True", "AsDesired", "fine")), health{"Progressing", "the operator has not reconciled the newest files yet"}},
		{"well", object(2, "new", condition("Ready", "True", "AsDesired", "fine"), condition("Degraded", "False", "AsDesired", "")), health{"Healthy", "fine"}},
		{"failing while old pods serve", object(2, "new", condition("Ready", "True", "AsDesired", "2 pods serve"), condition("Degraded", "True", "PodFailing", "shop-1: CrashLoopBackOff")), health{"Degraded", "PodFailing: shop-1: CrashLoopBackOff"}},
		{"rolling out", object(2, "new", condition("Progressing", "True", "RollingOut", "1 of 2"), condition("Ready", "False", "NoPodReady", "none")), health{"Progressing", "RollingOut: 1 of 2"}},
		{"no pod is ready", object(2, "new", condition("Ready", "False", "NoPodReady", "no pod is ready")), health{"Progressing", "NoPodReady: no pod is ready"}},
	} {
		if found := healthOf(t, script, row.object); found != row.expected {
			t.Errorf("%s: %+v, expected %+v", row.name, found, row.expected)
		}
	}
}
