package validate

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/crd"
)

// schema contains the parts of a CustomResourceDefinition's schema that this package uses.
type schema struct {
	Type                 string             `json:"type"`
	Properties           map[string]*schema `json:"properties"`
	Required             []string           `json:"required"`
	AdditionalProperties *schema            `json:"additionalProperties"`
	Items                *schema            `json:"items"`
	MaxLength            *int               `json:"maxLength"`
	MaxItems             *int               `json:"maxItems"`
	MaxProperties        *int               `json:"maxProperties"`
	IsIntOrString        bool               `json:"x-kubernetes-int-or-string"`
	PreservesUnknown     bool               `json:"x-kubernetes-preserve-unknown-fields"`
}

// schemas are the schemas by kind. The files are embedded in the program, so a failure is a bug.
var schemas = sync.OnceValue(func() map[string]*schema {
	found := map[string]*schema{}
	entries, err := crd.Files.ReadDir(".")
	if err != nil {
		panic(err)
	}
	for _, entry := range entries {
		text, err := crd.Files.ReadFile(entry.Name())
		if err != nil {
			panic(err)
		}
		var definition struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema *schema }
				}
			}
		}
		if err := yaml.Unmarshal(text, &definition); err != nil {
			panic(err)
		}
		root := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		root.Properties["metadata"] = metadataSchema
		found[definition.Spec.Names.Kind] = root
	}
	return found
})

// metadataSchema has the fields of metadata that a person or the server writes. A definition does not contain it.
var metadataSchema = func() *schema {
	text := &schema{Type: "string"}
	texts := &schema{Type: "object", AdditionalProperties: text}
	fields := map[string]*schema{"name": text, "namespace": text, "labels": texts, "annotations": texts}
	for _, name := range []string{
		"generateName", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
		"ownerReferences", "finalizers", "managedFields",
	} {
		fields[name] = &schema{}
	}
	return &schema{Type: "object", Properties: fields}
}()

// checkStructure compares a value with a schema.
func (found *problems) checkStructure(path string, schema *schema, value any) {
	if schema.IsIntOrString {
		found.checkQuantity(path, value)
		return
	}
	if is, wanted := typeOf(value), schema.Type; wanted != "" && is != wanted {
		found.addf(path, "%s is %s; write %s", shown(value), typeNames[is], typeNames[wanted])
		return
	}
	switch value := value.(type) {
	case map[string]any:
		found.checkObject(path, schema, value)
	case []any:
		if schema.MaxItems != nil && len(value) > *schema.MaxItems {
			found.addf(path, "there are %d entries, more than %d; divide them", len(value), *schema.MaxItems)
		}
		for index, element := range value {
			if schema.Items != nil {
				found.checkStructure(fmt.Sprintf("%s[%d]", path, index), schema.Items, element)
			}
		}
	case string:
		if length := len([]rune(value)); schema.MaxLength != nil && length > *schema.MaxLength {
			found.addf(path, "%s has %d characters, more than %d; shorten it", shown(value), length, *schema.MaxLength)
		}
	}
}

func (found *problems) checkObject(path string, schema *schema, value map[string]any) {
	for _, name := range schema.Required {
		if _, isThere := value[name]; !isThere {
			found.add(joined(path, name), "the field is missing; set it")
		}
	}
	if schema.MaxProperties != nil && len(value) > *schema.MaxProperties {
		found.addf(path, "there are %d entries, more than %d; divide them", len(value), *schema.MaxProperties)
	}
	for _, name := range sortedNames(value) {
		field, isKnown := schema.Properties[name]
		switch {
		case isKnown:
			found.checkStructure(joined(path, name), field, value[name])
		case schema.AdditionalProperties != nil:
			found.checkStructure(fmt.Sprintf("%s[%s]", path, name), schema.AdditionalProperties, value[name])
		case schema.PreservesUnknown || len(schema.Properties) == 0:
		default:
			found.addf(joined(path, name), "there is no such field; %s", remedyFor(name, sortedNames(schema.Properties)))
		}
	}
}

func (found *problems) checkQuantity(path string, value any) {
	text := fmt.Sprint(value)
	switch value.(type) {
	case string, int64, float64:
	default:
		found.addf(path, "%s is %s; write an amount such as 256Mi or 500m", shown(value), typeNames[typeOf(value)])
		return
	}
	quantity, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		found.addf(path, "%s is not an amount; write one such as 256Mi or 500m", shown(value))
	case quantity.Sign() <= 0:
		found.addf(path, "%s is not more than 0; write an amount such as 256Mi or 500m", shown(value))
	}
}

func joined(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

var typeNames = map[string]string{
	"object": "a mapping", "array": "a list", "string": "text", "integer": "a whole number", "number": "a number",
	"boolean": "true or false", "null": "empty",
}

func typeOf(value any) string {
	switch value.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case int64:
		return "integer"
	case float64:
		return "number"
	case bool:
		return "boolean"
	}
	return "null"
}

const shownBytesMax = 80

// shown formats a value for a message.
func shown(value any) string {
	text, err := json.Marshal(value)
	if err != nil || len(text) > shownBytesMax {
		return "the value"
	}
	return string(text)
}

// remedyFor suggests the most similar field, or lists all fields.
func remedyFor(name string, known []string) string {
	best, distance := "", 3
	for _, candidate := range known {
		if d := editDistance(strings.ToLower(name), strings.ToLower(candidate)); d < distance {
			best, distance = candidate, d
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "use one of " + strings.Join(known, ", ")
}

// editDistance returns the number of characters to insert, remove or replace.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for column := range row {
		row[column] = column
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func sortedNames[Value any](values map[string]Value) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
