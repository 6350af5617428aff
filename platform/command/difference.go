package command

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/validate"
)

// objectDifference describes how an object differs.
type objectDifference struct {
	Object string `json:"object"`
	// Change is added, removed or changed.
	Change string            `json:"change"`
	Fields []fieldDifference `json:"fields,omitempty"`
}

type fieldDifference struct {
	Path   string `json:"path"`
	Before any    `json:"before,omitempty"`
	After  any    `json:"after,omitempty"`
}

func nameOf(manifest map[string]any) string {
	metadata, _ := manifest["metadata"].(map[string]any)
	namespace, _ := metadata["namespace"].(string)
	name, _ := metadata["name"].(string)
	return strings.TrimPrefix(fmt.Sprintf("%v %s/%s", manifest["kind"], namespace, name), "<nil> ")
}

// objectsByName returns objects as plain values, as if they were read from a file.
func objectsByName(objects []runtime.Object) (map[string]map[string]any, error) {
	found := map[string]map[string]any{}
	for _, object := range objects {
		manifest, err := render.Manifest(object)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(manifest)
		if err != nil {
			return nil, err
		}
		plain := map[string]any{}
		if err := json.Unmarshal(text, &plain); err != nil {
			return nil, err
		}
		found[nameOf(plain)] = plain
	}
	return found, nil
}

func readObjects(path string) (map[string]map[string]any, error) {
	found := map[string]map[string]any{}
	err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || file != path && filepath.Ext(file) != ".yaml" && filepath.Ext(file) != ".yml" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, document := range validate.Split(text) {
			manifest := map[string]any{}
			if err := yaml.Unmarshal([]byte(document), &manifest); err != nil {
				return fmt.Errorf("%s: %w; correct the YAML", file, err)
			}
			if len(manifest) > 0 {
				found[nameOf(manifest)] = manifest
			}
		}
		return nil
	})
	return found, err
}

func differences(before, after map[string]map[string]any) []objectDifference {
	names := map[string]bool{}
	for name := range before {
		names[name] = true
	}
	for name := range after {
		names[name] = true
	}
	var found []objectDifference
	for name := range names {
		old, wasThere := before[name]
		fresh, isThere := after[name]
		switch {
		case !wasThere:
			found = append(found, objectDifference{Object: name, Change: "added"})
		case !isThere:
			found = append(found, objectDifference{Object: name, Change: "removed"})
		default:
			isSecret := strings.HasPrefix(name, "Secret ")
			if fields := fieldDifferences("", old, fresh, isSecret); len(fields) > 0 {
				found = append(found, objectDifference{name, "changed", fields})
			}
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Object < found[j].Object })
	return found
}

// fieldDifferences returns the innermost fields that differ. Lists of the same length are compared by position.
func fieldDifferences(path string, before, after any, isHidden bool) []fieldDifference {
	if reflect.DeepEqual(before, after) {
		return nil
	}
	oldTable, wasTable := before.(map[string]any)
	newTable, isTable := after.(map[string]any)
	oldList, wasList := before.([]any)
	newList, isList := after.([]any)
	var found []fieldDifference
	switch {
	case wasTable && isTable:
		keys := map[string]bool{}
		for key := range oldTable {
			keys[key] = true
		}
		for key := range newTable {
			keys[key] = true
		}
		for _, key := range sortedSet(keys) {
			found = append(found, fieldDifferences(strings.TrimPrefix(path+"."+key, "."), oldTable[key], newTable[key], isHidden)...)
		}
	case wasList && isList && len(oldList) == len(newList):
		for index := range oldList {
			found = append(found, fieldDifferences(fmt.Sprintf("%s[%d]", path, index), oldList[index], newList[index], isHidden)...)
		}
	case isHidden:
		found = []fieldDifference{{path, hidden(before), hidden(after)}}
	default:
		found = []fieldDifference{{path, before, after}}
	}
	return found
}

func hidden(value any) any {
	if value == nil {
		return nil
	}
	return "(hidden)"
}

func sortedSet(set map[string]bool) []string {
	var names []string
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (program *program) printDifferences(found []objectDifference) error {
	if program.isJSON() {
		if found == nil {
			found = []objectDifference{}
		}
		if err := program.printJSON(found); err != nil {
			return err
		}
	} else {
		marks := map[string]string{"added": "+", "removed": "-", "changed": "~"}
		for _, object := range found {
			program.print("%s %s", marks[object.Change], object.Object)
			for _, field := range object.Fields {
				program.print("    %s: %s -> %s", field.Path, shown(field.Before), shown(field.After))
			}
		}
	}
	if len(found) > 0 {
		return &foundError{plural(len(found), "object differs", "objects differ")}
	}
	if !program.isJSON() {
		program.print("no difference")
	}
	return nil
}

func shown(value any) string {
	if value == nil {
		return "(none)"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "(not shown)"
	}
	return string(text)
}
