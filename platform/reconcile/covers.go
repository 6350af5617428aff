package reconcile

import (
	"reflect"
	"slices"
)

// listKeys are the fields that identify the elements of a list, by the list's name, as in the API of Kubernetes. Server-side apply merges these lists:
// elements of other managers stay. It replaces all other lists as a whole.
var listKeys = map[string][]string{
	"containers": {"name"}, "initContainers": {"name"}, "env": {"name"}, "volumes": {"name"}, "imagePullSecrets": {"name"},
	"volumeMounts": {"mountPath"}, "volumeDevices": {"devicePath"}, "topologySpreadConstraints": {"topologyKey", "whenUnsatisfiable"},
	"hostAliases": {"ip"}, "ownerReferences": {"uid"},
}

// portKeys are those of the ports of containers and of Services.
var portKeys = [][]string{{"containerPort", "protocol"}, {"port", "protocol"}}

// covers reports whether the live value has every desired field. Other fields, and other elements of lists with keys, belong to other managers.
func covers(live, desired any) bool { return coversField("", live, desired, false) }

// coversField compares a field. A list inside a list without keys is a part of that list.
func coversField(name string, live, desired any, isInside bool) bool {
	switch desired := desired.(type) {
	case map[string]any:
		table, isTable := live.(map[string]any)
		if !isTable {
			return len(desired) == 0
		}
		for name, value := range desired {
			if !coversField(name, table[name], value, isInside) {
				return false
			}
		}
		return true
	case []any:
		list, isList := live.([]any)
		keys := keysOf(name, desired)
		switch {
		case !isList:
			return len(desired) == 0
		case keys != nil && !isInside:
			return coversElements(list, desired, keys)
		case len(list) != len(desired):
			return false
		}
		for index := range desired {
			if !coversField("", list[index], desired[index], true) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(live, desired)
}

// coversElements reports whether each desired element is in the live list, in any order.
func coversElements(live, desired []any, keys []string) bool {
	for _, wanted := range desired {
		isCovered := slices.ContainsFunc(live, func(element any) bool {
			return hasSame(element, wanted, keys) && coversField("", element, wanted, false)
		})
		if !isCovered {
			return false
		}
	}
	return true
}

// keysOf returns the keys of a list, or nil. Lists that are named ports differ by their elements.
func keysOf(name string, desired []any) []string {
	if name != "ports" {
		return listKeys[name]
	}
	for _, keys := range portKeys {
		isKeyed := !slices.ContainsFunc(desired, func(element any) bool {
			table, _ := element.(map[string]any)
			return slices.ContainsFunc(keys, func(key string) bool { return table[key] == nil })
		})
		if isKeyed && len(desired) > 0 {
			return keys
		}
	}
	return nil
}

func hasSame(one, other any, keys []string) bool {
	first, _ := one.(map[string]any)
	second, _ := other.(map[string]any)
	for _, key := range keys {
		if first[key] == nil || !reflect.DeepEqual(first[key], second[key]) {
			return false
		}
	}
	return true
}
