package values

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/util/parsers"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
	"github.com/dunlin-project/dunlin/platform/validate"
)

// strategies are those with which an API server creates objects.
var strategies = map[string]rest.RESTCreateStrategy{
	"ServiceAccount": serviceaccount.Strategy, "ConfigMap": configmap.Strategy, "Secret": secret.Strategy, "Service": service.Strategy,
	"PersistentVolumeClaim": persistentvolumeclaim.Strategy, "Deployment": deployment.Strategy, "StatefulSet": statefulset.Strategy,
	"HorizontalPodAutoscaler": horizontalpodautoscaler.Strategy, "Job": job.Strategy, "CronJob": cronjob.Strategy, "Ingress": ingress.Strategy,
	"NetworkPolicy": networkpolicy.Strategy, "PodDisruptionBudget": poddisruptionbudget.Strategy,
}

// wholeManifests set each field with a value of a user's own that is copied into other objects.
var wholeManifests = []string{`
apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: { name: shop, namespace: web, labels: { team: shop }, annotations: { example.com/a: b } }
spec:
  image: registry.example.com:5000/team/shop:1.4.2
  pullSecret: registry
  command: [serve]
  args: [fast]
  user: 1000
  ports: [{ name: web, port: 8080 }, { name: metrics, port: 9090 }]
  host: shop.example.com
  path: /cart
  tls: { secret: shop-tls, issuer: letsencrypt }
  envFiles: [shop.env]
  files: [{ file: files/shop.yml, path: /etc/shop/shop.yml, mode: "0555" }, { file: secret/tls.key, path: /etc/shop/tls.key }]
  env: { LEVEL: info }
  resources: { cpu: 100m, cpuLimit: "1", memory: 64Mi }
  replicas: 1
  health: { path: /healthz, port: 8080 }
  migrate: { command: [migrate] }
  processes: [{ name: worker, command: [work], replicas: 2, resources: { cpu: 50m, cpuLimit: "1", memory: 64Mi }, health: { command: [ping] } }]
  cron: [{ name: nightly, schedule: 0 3 * * *, timeZone: Europe/Berlin, command: [clean] }]
  runs: [{ name: once, command: [import] }]
  volumes: [{ name: data, path: /data, size: 1Gi, storageClass: fast }, { name: cache, path: /cache, temporary: 1Gi }]
  backup:
    schedule: 15 3 * * *
    drillSchedule: 45 4 * * 0
    repository: { url: "s3:https://s3.example.com/bucket", file: backup.env }
  network: { from: [{ app: front, namespace: web, ports: [8080] }], to: [{ cidr: 10.0.0.0/8, ports: [5432] }, { app: db }] }
`, `
apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: { name: db, namespace: web }
spec:
  image: postgres:15
  ports: [{ port: 5432 }]
  health: { command: [pg_isready] }
  volumes: [{ name: data, path: /data, size: 1Gi }, { name: cache, path: /cache, temporary: 1Gi }]
  backup:
    schedule: 15 3 * * *
    command: [dump]
    restoreCommand: [load, --host=$(ROOST_RESTORE_HOST)]
    repository: { claim: backups, file: backup.env }
`, `
apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: { name: site, namespace: web }
spec:
  image: site:1
  ports: [{ port: 8080 }]
  health: { tcp: true }
  autoscaling: { min: 1, max: 3, cpuPercent: 70, memoryPercent: 70 }
`, `
apiVersion: apps.roost.dev/v1alpha1
kind: Dunlin
metadata: { name: realtime, namespace: web }
spec:
  image: dunlin:0.1.0
  pullSecret: registry
  nodes: 3
  host: rt.example.com
  path: /rt
  tls: { secret: rt-tls, issuer: letsencrypt }
  keys: { secret: keys }
  trustedProxies: [10.42.0.0/16]
  resources: { cpu: 100m, cpuLimit: "1", memory: 64Mi }
  nats: { servers: 3, image: "nats:2.15.2", size: 1Gi, storageClass: fast, prefix: rt, resources: { cpu: 100m, memory: 64Mi } }
  backup: { schedule: 15 3 * * *, drillSchedule: 45 4 * * 0, repository: { claim: backups, file: backup.env } }
  network: { from: [{ app: front, namespace: web }], to: [{ cidr: 10.0.0.0/8, ports: [5432] }] }
`, `
apiVersion: apps.roost.dev/v1alpha1
kind: Dunlin
metadata: { name: realtime, namespace: web }
spec:
  image: dunlin:0.1.0
  keys: { file: keys.env }
  storage: { size: 1Gi, storageClass: fast }
  backup: { schedule: 15 3 * * *, repository: { url: "rest:https://backup.example.com", file: backup.env } }
`}

// otherValues are tried in each field. Values of other fields are tried as well.
var otherValues = []any{
	"", " ", "a b", "A", "a_b", "-a", "a-", "a.", ".a", "a.b", "a..b", "a--b", "1", "1a", "é", "a\nb", "a\x00b", "a:b", "a/b", "a,b", "a=b", "$(HOME)", "$$", "$",
	strings.Repeat("a", 16), strings.Repeat("a", 17), strings.Repeat("a", 31), strings.Repeat("a", 64), strings.Repeat("a", 254),
	"tmp", "work", "keys", "dump", "scratch", "repository", "config", "http", "10.0.0.1", "::1", "a.b.c", "*.example.com",
	"/", "/a", "/a/", "/a//b", "/a/./b", "/a/../b", "/a/..", "/a b", "/a%2fb", "/a?b", "/a\nb", "/tmp", "/tmp/x", "/dev", "/proc/x", "/etc/hosts", "/backup", "/backup/dump", "/backup/x", "/data",
	"/" + strings.Repeat("a", 256), "/a:b",
	"a:1", "a:1:2", "a//b:1", "a/B:1", "a:-1", "a:" + strings.Repeat("1", 129), "A.example.com/b:1", "a_.b:1", "a@sha256:" + strings.Repeat("0", 64), "a:1@sha256:" + strings.Repeat("0", 64), "a@sha256:1", "a@sha256:" + strings.Repeat("A", 64),
	strings.Repeat(strings.Repeat("a", 63)+"/", 4) + "a:1", "example.com:x/a:1",
	"@daily", "@every 1h", "TZ=UTC 0 0 * * *", "CRON_TZ=UTC 0 0 * * *", "60 * * * *", "* 24 * * *", "0 3 * * 7", "0 0 L * *", "0 0 32 * *", "0 0 0 * *", "0 0 * 13 *", "0 22-6 * * *", "0 0 * * FRI-MON",
	"*/0 * * * *", "*-5 * * * *", ", * * * *", "0 0 * * MON", "0 0 ? * *", "0  0 * * *", "1/99999999999999999999 * * * *", "TZ * * * *",
	"Local", "LOCAL", "Mars/Olympus", "UTC", "America/Argentina/Buenos_Aires", "CET", "Etc/GMT+1", "../UTC",
	"0", "-1", "1e3", "100u", "1n", "500m", "1Mi", "1.5Gi", "1Ki", "1e30", "1E", "1.1.1", "10.0.0.0/33", "10.0.0.1/8", "::ffff:10.0.0.0/104", "::/0", "010.0.0.0/8", "10.0.0.0/08", "fe80::%eth0/64",
	"./a.env", "../a.env", "a/b.env", "a//b.env", "a/./b.env", "a b.env", ".env", "a/.env", "é.env", strings.Repeat("a", 250) + ".env", strings.Repeat("a/", 100) + "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.env",
	int64(0), int64(-1), int64(1), int64(80), int64(1023), int64(1024), int64(8080), int64(9090), int64(65535), int64(65536), int64(1 << 31), int64(1 << 40),
}

// TestTheServerTakesWhatRoostTakes sets each field of whole manifests to each value. If `roost validate` and the operator have no objection, an API
// server must take each object that the manifest renders to, and a kubelet each image.
func TestTheServerTakesWhatRoostTakes(t *testing.T) {
	tried, taken, refused := 0, 0, map[string]int{}
	for _, text := range wholeManifests {
		var whole map[string]any
		if err := yaml.Unmarshal([]byte(text), &whole); err != nil {
			t.Fatal(err)
		}
		fields := leavesOf("", whole)
		if errs, isTaken := serverErrors(t, text, nil); !isTaken || len(errs) > 0 {
			t.Fatalf("%s: %v", text, errs)
		}
		values := slices.Concat(otherValues, slices.Collect(maps.Values(fields)))
		for path := range fields {
			if path == "apiVersion" || path == "kind" {
				continue
			}
			for _, value := range values {
				tried++
				changed, err := json.Marshal(replaced(whole, path, value))
				if err != nil {
					t.Fatal(err)
				}
				errs, isTaken := serverErrors(t, string(changed), value)
				if isTaken {
					taken++
				}
				if len(errs) > 0 {
					refused[path]++
				}
				if len(errs) > 0 && refused[path] <= shownMax {
					t.Errorf("%s: %.60q: %.300s", path, fmt.Sprint(value), strings.Join(errs, "; "))
				}
			}
		}
	}
	t.Logf("%d values tried, %d taken, %d of them refused by the server in %d fields", tried, taken, sum(refused), len(refused))
	if tried < 10000 || taken < 1000 {
		t.Errorf("%d values tried, %d taken", tried, taken)
	}
}

// shownMax is the number of values of a field that are printed.
const shownMax = 5

func sum(counts map[string]int) int {
	total := 0
	for _, count := range counts {
		total += count
	}
	return total
}

// leavesOf returns the fields that hold a value, by their paths.
func leavesOf(path string, value any) map[string]any {
	found := map[string]any{}
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			maps.Copy(found, leavesOf(strings.TrimPrefix(path+"\t"+name, "\t"), field))
		}
	case []any:
		for index, element := range value {
			maps.Copy(found, leavesOf(fmt.Sprintf("%s\t%d", path, index), element))
		}
	case float64:
		found[path] = int64(value)
	default:
		found[path] = value
	}
	return found
}

// replaced returns a copy with another value at a path.
func replaced(value any, path string, leaf any) any {
	if path == "" {
		return leaf
	}
	name, rest, _ := strings.Cut(path, "\t")
	switch value := value.(type) {
	case map[string]any:
		copied := maps.Clone(value)
		copied[name] = replaced(value[name], rest, leaf)
		return copied
	case []any:
		copied := slices.Clone(value)
		var index int
		fmt.Sscan(name, &index)
		copied[index] = replaced(value[index], rest, leaf)
		return copied
	}
	panic(path)
}

// serverErrors returns what an API server and a kubelet refuse of a manifest that Roost takes.
func serverErrors(t *testing.T, manifest string, value any) ([]string, bool) {
	t.Helper()
	documents := validate.File([]byte(manifest))
	if len(documents) != 1 || len(documents[0].Problems) > 0 {
		return nil, false
	}
	document := documents[0]
	values := settings.Settings{
		Plain: map[string]string{"PLAIN": "1"}, Secret: map[string]string{"SECRET": "1", "api_key": "1", "token_hmac_secret_key": "1", "nats_password": "1"},
		Repository: map[string]string{"RESTIC_PASSWORD": "1"},
	}
	var objects []runtime.Object
	var err error
	var own *metav1.ObjectMeta
	var files []string
	if app := document.App; app != nil {
		own = &app.ObjectMeta
		// Without one, that of --namespace counts.
		own.Namespace = cmp.Or(own.Namespace, "default")
		for key, value := range app.Spec.Env {
			values.Plain[key] = string(value)
		}
		for _, name := range app.Spec.EnvFiles {
			files = append(files, string(name))
		}
		var contents []settings.Content
		for _, name := range app.Spec.MountedNames() {
			files = append(files, name)
			contents = append(contents, settings.Content{Name: name, Text: "a", IsSecret: strings.HasPrefix(name, "secret/")})
		}
		if len(contents) > 0 {
			values = values.WithContents(contents)
		}
		objects, err = render.App(app, values, render.Cluster{})
	} else {
		own = &document.Dunlin.ObjectMeta
		own.Namespace = cmp.Or(own.Namespace, "default")
		if file := document.Dunlin.Spec.Keys.File; file != "" {
			files = append(files, string(file))
		}
		objects, err = render.Dunlin(document.Dunlin, values, render.Cluster{})
	}
	if err != nil {
		return []string{err.Error()}, true
	}
	var errs []string
	for _, err := range apimachineryvalidation.ValidateObjectMeta(own, true, apimachineryvalidation.NameIsDNSSubdomain, field.NewPath("metadata")) {
		errs = append(errs, err.Error())
	}
	if len(files) > 0 {
		contents := map[string]string{}
		for _, name := range files {
			contents[name] = "A=1"
		}
		carrier, err := render.Files(own.Namespace, own.Name, contents)
		if err != nil {
			return append(errs, err.Error()), true
		}
		objects = append(objects, carrier)
	}
	for _, object := range objects {
		errs = append(errs, objectErrors(t, object)...)
	}
	return errs, true
}

// known are the results of objectErrors, because most objects do not change with a value.
var known = map[string][]string{}

func objectErrors(t *testing.T, object runtime.Object) []string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if errs, isKnown := known[string(text)]; isKnown {
		return errs
	}
	var errs []string
	if err := create(t, object); err != nil {
		errs = append(errs, err.Error())
	}
	for _, image := range imagesOf(t, object) {
		if _, _, _, err := parsers.ParseImageName(image); err != nil {
			errs = append(errs, err.Error())
		}
	}
	known[string(text)] = errs
	return errs
}

// create does what an API server does with a new object before it writes it.
func create(t *testing.T, object runtime.Object) error {
	t.Helper()
	kind := object.GetObjectKind().GroupVersionKind()
	strategy := strategies[kind.Kind]
	if strategy == nil {
		t.Fatalf("there is no strategy for %s", kind)
	}
	object = object.DeepCopyObject()
	legacyscheme.Scheme.Default(object)
	internal, err := legacyscheme.Scheme.ConvertToVersion(object, schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		t.Fatal(err)
	}
	accessor, err := meta.Accessor(internal)
	if err != nil {
		t.Fatal(err)
	}
	if service, isService := internal.(*core.Service); isService {
		// The server gives addresses first.
		if service.Spec.ClusterIP == "" {
			service.Spec.ClusterIP = "10.0.0.1"
		}
		service.Spec.ClusterIPs = []string{service.Spec.ClusterIP}
		policy := core.IPFamilyPolicySingleStack
		service.Spec.IPFamilies, service.Spec.IPFamilyPolicy = []core.IPFamily{core.IPv4Protocol}, &policy
	}
	rest.FillObjectMetaSystemFields(accessor)
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	ctx := request.WithNamespace(context.Background(), accessor.GetNamespace())
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: kind.Group, APIVersion: kind.Version, Resource: plural.Resource, Namespace: accessor.GetNamespace(),
	})
	return rest.BeforeCreate(strategy, ctx, internal)
}

// imagesOf returns all values of `image` in an object.
func imagesOf(t *testing.T, object runtime.Object) []string {
	t.Helper()
	manifest, err := render.Manifest(object)
	if err != nil {
		t.Fatal(err)
	}
	var images []string
	for path, value := range leavesOf("", manifest) {
		if strings.HasSuffix(path, "\timage") {
			images = append(images, value.(string))
		}
	}
	return images
}

// TestKubernetesPassesOnWhatWasTyped reads the command of `roost run` as a kubelet does.
func TestKubernetesPassesOnWhatWasTyped(t *testing.T) {
	command := []string{"sh", "-c", "echo $(HOME) $$ $HOME $$(HOME) $", "$", "$$", "$(", "a$$b"}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	made := render.OneOff{Namespace: "web", App: "shop", Template: template, Command: command}.Job().Spec.Template.Spec.Containers[0].Command
	mapping := expansion.MappingFuncFor(map[string]string{"HOME": "/root"})
	var seen []string
	for _, word := range made {
		seen = append(seen, expansion.Expand(word, mapping))
	}
	if !slices.Equal(seen, command) {
		t.Errorf("%q\nbecame %q", command, seen)
	}
}
