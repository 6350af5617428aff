package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// Record is the content of a revision, which a rollback restores together: the spec and its files. Files with secrets are encrypted.
type Record struct {
	Spec  json.RawMessage   `json:"spec"`
	Files map[string]string `json:"files,omitempty"`
}

// App returns the App of the record.
func (record Record) App(namespace, name string) (*v1alpha1.App, error) {
	app := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return app, record.read(&app.Spec)
}

// Dunlin returns the Dunlin of the record.
func (record Record) Dunlin(namespace, name string) (*v1alpha1.Dunlin, error) {
	dunlin := &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return dunlin, record.read(&dunlin.Spec)
}

func (record Record) read(spec any) error {
	if err := json.Unmarshal(record.Spec, spec); err != nil {
		return fmt.Errorf("reading the spec of a revision: %w", err)
	}
	return nil
}

// RevisionTooLargeError is the error for a spec and files that etcd does not take as a revision.
type RevisionTooLargeError struct {
	// Bytes of the JSON, of which the spec has SpecBytes.
	Bytes, SpecBytes int
	// Largest is the name of the file that takes the most bytes, or empty without files.
	Largest      string
	LargestBytes int
}

func (e *RevisionTooLargeError) Error() string {
	return fmt.Sprintf("the spec and its files take %d bytes in a revision, more than the limit of %d", e.Bytes, RevisionBytesMax)
}

func tooLarge(all, spec int, files map[string]string) error {
	failure := &RevisionTooLargeError{Bytes: all, SpecBytes: spec}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if size, err := sizeInRecord(map[string]string{name: files[name]}); err == nil && size > failure.LargestBytes {
			failure.Largest, failure.LargestBytes = name, size
		}
	}
	return failure
}

// History returns the object that stores a revision. Its number depends on the live revisions, so package reconcile sets it.
func History(kind, namespace, name, revision string, spec any, files map[string]string) (*appsv1.ControllerRevision, error) {
	encoded, err := json.Marshal(recorded(spec))
	if err != nil {
		return nil, fmt.Errorf("encoding the spec: %w", err)
	}
	text, err := json.Marshal(Record{encoded, files})
	if err != nil {
		return nil, fmt.Errorf("encoding the spec: %w", err)
	}
	if len(text) > RevisionBytesMax {
		return nil, tooLarge(len(text), len(encoded), files)
	}
	meta := owner{kind: kind, name: name, namespace: namespace}.meta(HistoryName(kind, name, revision), partMain)
	return &appsv1.ControllerRevision{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ControllerRevision"},
		ObjectMeta: meta,
		Data:       runtime.RawExtension{Raw: text},
	}, nil
}

// HistoryName contains the kind, because Kubernetes also names the revisions of a StatefulSet after the StatefulSet.
func HistoryName(kind, name, revision string) string {
	return name + "-" + strings.ToLower(kind) + "-" + revision
}
