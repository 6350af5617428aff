package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// Revision identifies a spec with its settings. A rollback restores a revision, so image, configuration and secrets change together.
func Revision(spec any, values settings.Settings, scope string) (string, error) {
	text, err := json.Marshal(recorded(spec))
	if err != nil {
		return "", fmt.Errorf("encoding the spec: %w", err)
	}
	content := fmt.Appendf(nil, "%s\n%s", text, values.Hash(scope))
	if len(values.Repository) > 0 {
		content = fmt.Appendf(content, "\n%s", settings.Settings{Secret: values.Repository}.Hash(scope))
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])[:10], nil
}

// recorded returns the part of a spec that a revision has: a preview that lives longer is no other revision, so its migration does not run again.
func recorded(spec any) any {
	app, isApp := spec.(v1alpha1.AppSpec)
	if !isApp || app.Preview == nil {
		return spec
	}
	app.Preview = &v1alpha1.Preview{Of: app.Preview.Of}
	return app
}

// environmentName contains the hash of the content. So pods of an old revision keep their settings until they end, and only a change of the
// content restarts pods.
func (view *appView) environmentName() string {
	return view.name + "-env-" + view.values.Environment().Hash(view.namespace + "/" + view.name)[:10]
}

// environment returns a Secret and a ConfigMap, each only if it has content. Both are immutable.
func (view *appView) environment() []runtime.Object {
	var objects []runtime.Object
	if len(view.values.Plain) > 0 {
		objects = append(objects, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: view.meta(view.environmentName(), partMain),
			Data:       view.values.Plain,
			Immutable:  new(true),
		})
	}
	if len(view.values.Secret) > 0 {
		objects = append(objects, view.secretOf(view.environmentName(), view.values.Secret))
	}
	return objects
}

func (view *appView) envFrom() []corev1.EnvFromSource {
	var sources []corev1.EnvFromSource
	reference := corev1.LocalObjectReference{Name: view.environmentName()}
	if len(view.values.Plain) > 0 {
		sources = append(sources, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: reference}})
	}
	if len(view.values.Secret) > 0 {
		sources = append(sources, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: reference}})
	}
	return sources
}

// secretOf returns an immutable Secret. Another content has another name.
func (owner owner) secretOf(name string, values map[string]string) runtime.Object {
	data := map[string][]byte{}
	for key, value := range values {
		data[key] = []byte(value)
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: owner.meta(name, partMain),
		Data:       data,
		Type:       corev1.SecretTypeOpaque,
		Immutable:  new(true),
	}
}
