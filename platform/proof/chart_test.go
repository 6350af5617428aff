package proof

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/crd"
	"github.com/dunlin-project/dunlin/platform/deploy"
)

const (
	chartFolder    = "../charts/roost"
	chartNamespace = "roost-system"
)

// manifestKey names an object.
func manifestKey(object map[string]any) string {
	read := unstructured.Unstructured{Object: object}
	return fmt.Sprintf("%s %s/%s", read.GroupVersionKind(), read.GetNamespace(), read.GetName())
}

// objectsOf returns the objects of a text with several documents, but for Namespaces.
func objectsOf(t *testing.T, text []byte) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for document := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---\n")) {
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if object != nil && object["kind"] != "Namespace" {
			found[manifestKey(object)] = object
		}
	}
	return found
}

func loadedChart(t *testing.T) *chart.Chart {
	t.Helper()
	loaded, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// templated renders the chart as `helm template` does.
func templated(t *testing.T, namespace string, values map[string]any) (map[string]map[string]any, error) {
	t.Helper()
	version, err := common.ParseKubeVersion("v1.36.3")
	if err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(action.NewConfiguration())
	install.KubeVersion = version
	install.DryRunStrategy, install.ReleaseName, install.Namespace = action.DryRunClient, "roost", namespace
	made, err := install.Run(loadedChart(t), values)
	if err != nil {
		return nil, err
	}
	return objectsOf(t, []byte(made.(*release.Release).Manifest)), nil
}

// manifestsOf returns the objects of platform/deploy.
func manifestsOf(t *testing.T) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	entries, err := deploy.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := deploy.Files.ReadFile(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, objectsOf(t, text))
	}
	return all
}

// TestTheChartRendersTheManifests compares the objects of the chart with those of platform/deploy and platform/crd.
func TestTheChartRendersTheManifests(t *testing.T) {
	rendered, err := templated(t, chartNamespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	wanted := manifestsOf(t)
	if got, want := slices.Sorted(maps.Keys(rendered)), slices.Sorted(maps.Keys(wanted)); !slices.Equal(got, want) {
		t.Fatalf("the chart has\n%s\ninstead of\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for key, object := range wanted {
		if !reflect.DeepEqual(rendered[key], object) {
			t.Errorf("%s differs:\n%v\n%v", key, rendered[key], object)
		}
	}
	definitions := map[string]map[string]any{}
	for _, file := range loadedChart(t).CRDObjects() {
		maps.Copy(definitions, objectsOf(t, file.File.Data))
	}
	entries, err := crd.Files.ReadDir(".")
	if err != nil || len(entries) != len(definitions) {
		t.Fatalf("%d definitions for %d, %v", len(definitions), len(entries), err)
	}
	for _, entry := range entries {
		text, err := crd.Files.ReadFile(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		for key, object := range objectsOf(t, text) {
			if !reflect.DeepEqual(definitions[key], object) {
				t.Errorf("%s is not that of platform/crd; run platform/generate", key)
			}
		}
	}
	metadata := loadedChart(t).Metadata
	if image := deploy.Image("roost-operator"); !strings.HasSuffix(image, ":"+metadata.AppVersion) || metadata.Version != metadata.AppVersion {
		t.Errorf("the chart has the versions %s and %s, the image %s", metadata.Version, metadata.AppVersion, image)
	}
}

// TestTheValuesOfTheChart changes each value, and finds it where it belongs.
func TestTheValuesOfTheChart(t *testing.T) {
	resources := map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "256Mi"}, "limits": map[string]any{"memory": "256Mi"}}
	rendered, err := templated(t, chartNamespace, map[string]any{
		"namespaces": []any{"jobs", "shop"}, "image": "ghcr.io/a/roost-operator:2", "backupImage": "ghcr.io/a/roost-backup:2",
		"resources": resources, "goMemoryLimit": "160MiB", "flags": []any{"--ingress-class=nginx"},
	})
	if err != nil {
		t.Fatal(err)
	}
	deployment := rendered["apps/v1, Kind=Deployment roost-system/roost-operator"]
	containers, _, err := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatalf("%v, %v", containers, err)
	}
	container := containers[0].(map[string]any)
	arguments := []any{"--namespaces=jobs,shop", "--leader-namespace=roost-system", "--backup-image=ghcr.io/a/roost-backup:2", "--ingress-class=nginx"}
	if container["image"] != "ghcr.io/a/roost-operator:2" || !reflect.DeepEqual(container["args"], arguments) || !reflect.DeepEqual(container["resources"], resources) {
		t.Errorf("%v", container)
	}
	limit := map[string]any{"name": "GOMEMLIMIT", "value": "160MiB"}
	if environment := container["env"].([]any); !reflect.DeepEqual(environment[0], limit) || len(environment) != 2 {
		t.Errorf("%v", environment)
	}
	for namespace, isBound := range map[string]bool{"jobs": true, "shop": true, "web": false} {
		if _, isThere := rendered["rbac.authorization.k8s.io/v1, Kind=RoleBinding "+namespace+"/roost-operator"]; isThere != isBound {
			t.Errorf("a RoleBinding in %s: %v", namespace, isThere)
		}
	}
	for message, values := range map[string]map[string]any{
		"'/namespaces'": {"namespaces": []any{}},
		"'imag'":        {"imag": "a:1"},
		"'/flags/0'":    {"flags": []any{"ingress-class=nginx"}},
	} {
		if _, err := templated(t, chartNamespace, values); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%v: %v", values, err)
		}
	}
	if _, err := templated(t, "default", nil); err == nil || !strings.Contains(err.Error(), `the namespace of the release is "default"; use --namespace roost-system`) {
		t.Errorf("another namespace: %v", err)
	}
}

func TestTheChartIsClean(t *testing.T) {
	lint := action.NewLint()
	lint.Strict, lint.Namespace = true, chartNamespace
	result := lint.Run([]string{chartFolder}, nil)
	for _, message := range result.Messages {
		// The chart has no icon.
		if !strings.Contains(message.Err.Error(), "icon is recommended") {
			t.Errorf("%v", message)
		}
	}
	if len(result.Errors) > 0 || result.TotalChartsLinted != 1 {
		t.Errorf("%d charts, %v", result.TotalChartsLinted, result.Errors)
	}
}

// TestTheChartOnAServer installs the chart, and removes it: definitions and namespaces stay.
func TestTheChartOnAServer(t *testing.T) {
	server := apiserver.ForTest(t)
	admin, err := client.New(server.Admin, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{chartNamespace, "web"} {
		if err := apiserver.NewNamespace(t.Context(), admin, name); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig, err := apiserver.Kubeconfig(server.Admin)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &file, new(chartNamespace)
	configuration := action.NewConfiguration()
	if err := configuration.Init(flags, chartNamespace, "secret"); err != nil {
		t.Fatal(err)
	}
	install := action.NewInstall(configuration)
	// No controller starts the pods, so nothing is waited for.
	install.ReleaseName, install.Namespace, install.WaitStrategy = "roost", chartNamespace, kube.HookOnlyStrategy
	if _, err := install.Run(loadedChart(t), nil); err != nil {
		t.Fatal(err)
	}
	objects := manifestsOf(t)
	expect := func(key string, object map[string]any, isThere bool) {
		t.Helper()
		found := &unstructured.Unstructured{Object: object}
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(found), found.DeepCopy())
		if client.IgnoreNotFound(err) != nil || apierrors.IsNotFound(err) == isThere {
			t.Errorf("%s: there is %v: %v", key, isThere, err)
		}
	}
	for key, object := range objects {
		expect(key, object, true)
	}
	uninstall := action.NewUninstall(configuration)
	uninstall.WaitStrategy = kube.HookOnlyStrategy
	if _, err := uninstall.Run("roost"); err != nil {
		t.Fatal(err)
	}
	for key, object := range objects {
		expect(key, object, false)
	}
	for _, file := range loadedChart(t).CRDObjects() {
		for key, object := range objectsOf(t, file.File.Data) {
			expect(key, object, true)
		}
	}
	for _, name := range []string{chartNamespace, "web"} {
		expect(name, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}, true)
	}
}
