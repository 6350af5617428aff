package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
)

// SchemaLocation returns the pattern for the file names of WriteSchemas that kubeconform understands.
func SchemaLocation(folder string) string {
	return filepath.Join(folder, "{{ .ResourceKind }}{{ .KindSuffix }}.json")
}

// WriteSchemas writes a JSON schema for each kind of a server, from its OpenAPI, and returns their number. The schemas are strict: they
// reject unknown fields, except where the server preserves them.
func WriteSchemas(ctx context.Context, connection *rest.Config, folder string) (int, error) {
	client, err := rest.HTTPClientFor(connection)
	if err != nil {
		return 0, err
	}
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := readJSON(ctx, client, connection.Host+"/openapi/v3", &index); err != nil {
		return 0, err
	}
	written := 0
	for _, path := range index.Paths {
		var document struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		if err := readJSON(ctx, client, connection.Host+path.ServerRelativeURL, &document); err != nil {
			return 0, err
		}
		schemas := document.Components.Schemas
		for name, schema := range schemas {
			for _, file := range schemaFiles(schema) {
				if err := writeSchema(filepath.Join(folder, file), name, schemas); err != nil {
					return 0, err
				}
				written++
			}
		}
	}
	return written, nil
}

func readJSON(ctx context.Context, client *http.Client, address string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d, %w", address, answer.StatusCode, err)
	}
	return json.Unmarshal(text, into)
}

// schemaFiles returns the file names that kubeconform uses for the kinds of a schema.
func schemaFiles(schema map[string]any) []string {
	kinds, _ := schema["x-kubernetes-group-version-kind"].([]any)
	var files []string
	for _, element := range kinds {
		kind, _ := element.(map[string]any)
		group, _, _ := strings.Cut(fmt.Sprint(kind["group"]), ".")
		name := strings.ToLower(fmt.Sprint(kind["kind"]))
		if group != "" {
			name += "-" + group
		}
		files = append(files, fmt.Sprintf("%s-%s.json", name, kind["version"]))
	}
	return files
}

const schemaReference = "#/components/schemas/"

// writeSchema writes a schema and the schemas that it refers to.
func writeSchema(file, root string, schemas map[string]map[string]any) error {
	definitions := map[string]any{}
	for waiting := []string{root}; len(waiting) > 0; {
		name := waiting[0]
		waiting = waiting[1:]
		if _, isThere := definitions[name]; !isThere {
			definitions[name] = strict(schemas[name], func(other string) { waiting = append(waiting, other) })
		}
	}
	text, err := json.Marshal(map[string]any{"$ref": "#/definitions/" + root, "definitions": definitions})
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// strict converts a part of an OpenAPI document to a strict JSON schema.
func strict(value any, refersTo func(name string)) any {
	switch value := value.(type) {
	case []any:
		copied := make([]any, len(value))
		for index, element := range value {
			copied[index] = strict(element, refersTo)
		}
		return copied
	case map[string]any:
		copied := map[string]any{}
		for name, field := range value {
			reference, isText := field.(string)
			if other, isReference := strings.CutPrefix(reference, schemaReference); isText && name == "$ref" && isReference {
				refersTo(other)
				copied[name] = "#/definitions/" + other
				continue
			}
			copied[name] = strict(field, refersTo)
		}
		_, hasProperties := value["properties"].(map[string]any)
		_, isMap := value["additionalProperties"]
		if keeps, _ := value["x-kubernetes-preserve-unknown-fields"].(bool); hasProperties && !isMap && !keeps && value["type"] == "object" {
			copied["additionalProperties"] = false
		}
		return copied
	}
	return value
}
