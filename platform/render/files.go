package render

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/settings"
)

// FilesBytesMax bounds the encrypted files of an app. It is the limit of Kubernetes for one ConfigMap.
const FilesBytesMax = 1 << 20

// RevisionBytesMax bounds the JSON of a spec and its files in a revision. etcd takes at most 1.5 MiB for an object; an eighth of a MiB is left for its
// metadata, with the names of all fields.
const RevisionBytesMax = 11 << 17

// RecordBytesMax bounds the JSON of the files in a revision, so that an eighth of a MiB is left for the spec.
const RecordBytesMax = 5 << 18

var filesKeyPattern = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)

// FilesKey returns the key of a file in the ConfigMap of files. A key must not contain `/`, and file names do not contain `..`.
func FilesKey(name string) string { return strings.ReplaceAll(name, "/", "..") }

// FilesName returns the name of the ConfigMap of an app's files, unless an annotation names another.
func FilesName(name string) string { return name + "-files" }

// Files returns the ConfigMap that carries .env files and mounted files to the operator as they are in the repository. It is never changed: other
// files get another name, so a spec and its files change together.
func Files(namespace, name string, files map[string]string) (*corev1.ConfigMap, error) {
	size, data := 0, map[string]string{}
	for file, content := range files {
		key := FilesKey(file)
		if !filesKeyPattern.MatchString(key) {
			return nil, fmt.Errorf("%q cannot be stored in a ConfigMap; rename the file, with only letters, digits, `.`, `_`, `-` and `/`", file)
		}
		size += len(key) + len(content)
		data[key] = content
	}
	if size > FilesBytesMax {
		return nil, fmt.Errorf("the files have %d bytes, more than the limit of %d for a ConfigMap; encrypted values are a third longer; mount large content as a volume", size, FilesBytesMax)
	}
	if size, err := sizeInRecord(data); err != nil || size > RecordBytesMax {
		return nil, fmt.Errorf("the files take %d bytes in a revision, more than the limit of %d: in its JSON, a line break takes 2 bytes, and <, >, & and most control characters take 6; shorten the largest file, or mount its content as a volume", size, RecordBytesMax)
	}
	hash := settings.Settings{Plain: data}.Hash(namespace + "/" + name)
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: FilesName(name) + "-" + hash[:10], Namespace: namespace,
			Labels: map[string]string{LabelManagedBy: ManagedBy, LabelFilesOf: name},
		},
		Data:      data,
		Immutable: new(true),
	}, nil
}

// sizeInRecord returns the size of files in the JSON of a Record.
func sizeInRecord(files map[string]string) (int, error) {
	text, err := json.Marshal(files)
	return len(text), err
}
