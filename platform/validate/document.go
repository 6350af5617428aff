package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// Document is one manifest of a file. If it has no problems, exactly one of App and Dunlin is set.
type Document struct {
	App      *v1alpha1.App
	Dunlin   *v1alpha1.Dunlin
	Problems []Problem
}

// manifestBytesMax is the largest manifest that an API server accepts.
const manifestBytesMax = 3 << 20

// Decode reads a file of Roost's own other than a manifest. It refuses unknown fields, and values that YAML would change.
func Decode(text []byte, into any) error {
	swallowed, err := Swallowed(text)
	if err != nil {
		return fmt.Errorf("%w; correct the YAML", err)
	}
	if len(swallowed) > 0 {
		return errors.New(swallowed[0].String())
	}
	return yaml.UnmarshalStrict(text, into)
}

// File parses and checks all documents of a YAML file.
func File(content []byte) []Document {
	if len(content) > manifestBytesMax {
		message := fmt.Sprintf("the file has %d bytes, more than %d; divide it", len(content), manifestBytesMax)
		return []Document{{Problems: []Problem{{"file", message}}}}
	}
	var documents []Document
	for _, text := range Split(content) {
		documents = append(documents, document([]byte(text)))
	}
	return documents
}

// documentMark matches the separator of YAML documents. Text in a block scalar cannot match, because it is indented.
var documentMark = regexp.MustCompile(`(?m)^---([ \t]+#.*|[ \t]*)\r?$`)

// Split splits a YAML file into its documents, without empty ones.
func Split(content []byte) []string {
	var documents []string
	for _, text := range documentMark.Split(string(content), -1) {
		if !isBlank(text) {
			documents = append(documents, text)
		}
	}
	return documents
}

// isBlank reports whether a document contains only comments.
func isBlank(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return false
		}
	}
	return true
}

func document(text []byte) Document {
	value, err := parse(text)
	if err != nil {
		message := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "\n", " ")
		return Document{Problems: []Problem{{"file", message + "; correct the YAML"}}}
	}
	if swallowed, err := Swallowed(text); err != nil {
		return Document{Problems: []Problem{{"file", strings.ReplaceAll(err.Error(), "\n", " ") + "; correct the YAML"}}}
	} else if len(swallowed) > 0 {
		return Document{Problems: swallowed}
	}
	version, _ := value["apiVersion"].(string)
	kind, _ := value["kind"].(string)
	schema := schemas()[kind]
	var structural problems
	if want := v1alpha1.GroupVersion.String(); version != want {
		structural.addf("apiVersion", "%s is not a version that Roost knows; write %s", shown(value["apiVersion"]), want)
	}
	if schema == nil {
		structural.addf("kind", "%s is not a kind of Roost; write App or Dunlin", shown(value["kind"]))
		return Document{Problems: structural}
	}
	structural.checkStructure("", schema, value)
	return typed(kind, value, structural)
}

func parse(text []byte) (map[string]any, error) {
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	var value map[string]any
	if err := utiljson.Unmarshal(converted, &value); err != nil {
		return nil, fmt.Errorf("the document is not a mapping with apiVersion, kind, metadata and spec")
	}
	return value, nil
}

// typed checks the rules for the part of the document whose structure is correct.
func typed(kind string, value map[string]any, structural problems) Document {
	converted, err := json.Marshal(value)
	if err != nil {
		return Document{Problems: append(structural, Problem{"file", "the document cannot be encoded; correct the YAML"})}
	}
	var result Document
	var rules []Problem
	switch kind {
	case "App":
		result.App = &v1alpha1.App{}
		if err = json.Unmarshal(converted, result.App); err == nil {
			rules = App(result.App)
		}
	case "Dunlin":
		result.Dunlin = &v1alpha1.Dunlin{}
		if err = json.Unmarshal(converted, result.Dunlin); err == nil {
			rules = Dunlin(result.Dunlin)
		}
	}
	if err != nil && len(structural) == 0 {
		structural.addf("file", "%s; correct the field", err)
	}
	result.Problems = append(structural, problems(rules).outside(structural)...)
	if len(result.Problems) > 0 {
		return Document{Problems: result.Problems}
	}
	return result
}
