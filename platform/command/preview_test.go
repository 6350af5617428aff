package command_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/command"
)

// wholeApp has all that a preview does not take over as it is.
const wholeApp = `apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: { name: shop, namespace: web }
spec:
  image: registry.example.com/shop:1.4.2
  host: shop.example.com
  hosts: [www.shop.example.com]
  tls: { secret: shop-tls }
  ports: [{ port: 8080 }]
  health: { path: /healthz }
  envFiles: [shop.env]
  replicas: 3
  migrate: { command: [shop, migrate] }
  runs: [{ name: seed, command: [shop, seed] }]
  cron: [{ name: clean, schedule: "0 4 * * *", command: [shop, clean] }]
  processes:
  - { name: worker, command: [shop, worker], replicas: 2, health: { none: "it has no state" } }
  - { name: idle, command: [shop, idle], replicas: 0, health: { none: "it has no state" } }
  volumes: [{ name: data, path: /data, size: 1Gi, storageClass: fast }]
  backup: { schedule: "30 4 * * *", repository: { claim: backups, file: backup.env } }
  onNodeLoss: Wait
  deletionPolicy: Orphan
  network: { from: [{ app: shop }, { app: other }], to: [{ app: shop, namespace: web }, { app: shop, namespace: elsewhere }] }
`

// TestPreviewsThatAreRefused needs no API server.
func TestPreviewsThatAreRefused(t *testing.T) {
	person := newPerson(t)
	person.repository()
	long := strings.Replace(app, "name: shop", "name: a-shop-with-a-long-name", 1)
	person.write("long/shop.yaml", long)
	person.write("long/shop.env", "LOG_LEVEL=info\n")
	person.write("apps/inside.yaml", strings.Replace(app, "  host: shop.example.com\n", "", 1))
	person.write("apps/whole/shop.yaml", wholeApp)
	person.write("apps/whole/shop.env", "LOG_LEVEL=info\n")
	person.write("apps/realtime.yaml", "apiVersion: apps.roost.dev/v1alpha1\nkind: Dunlin\nmetadata: { name: rt }\nspec: { image: \"dunlin:1\", keys: { secret: keys } }\n")
	for _, row := range []struct {
		code                int
		arguments, sentence string
	}{
		{command.ExitUsage, "--expires 1h @apps/shop.yaml", "--expires belongs to a preview; name one with --as, such as --as pr-42"},
		{command.ExitUsage, "--delete @apps/shop.yaml", "--delete belongs to a preview; name one with --as"},
		{command.ExitUsage, "--as= @apps/shop.yaml", "--as belongs to a preview; name one with --as"},
		{command.ExitUsage, "--as PR_42 @apps/shop.yaml", `--as: "PR_42" cannot end a name; use a-z, 0-9 and -, such as pr-42`},
		{command.ExitUsage, "--as pr-42 --expires 9m59s @apps/shop.yaml", `--expires: "9m59s" is out of range; set 10m to 720h (30 days)`},
		{command.ExitUsage, "--as pr-42 --expires 720h0m1s @apps/shop.yaml", `--expires: "720h0m1s" is out of range; set 10m to 720h (30 days)`},
		{command.ExitUsage, "--as pr-42 --migrations no @apps/shop.yaml", `--migrations: "no" is not known; set skip, run or run-shared`},
		{command.ExitUsage, "--as pr-42 --env-file shop.env @apps/shop.yaml", `--env-file: "shop.env" does not name two files; write OLD=NEW`},
		{command.ExitFound, "--as pr-42 @apps/shop.yaml", `spec.host: "shop.example.com" is the host of the original; set preview.host in roost.yaml, such as "{name}.preview.example.com", or --host`},
		{command.ExitFound, "--as pr-42 --host shop.example.com @apps/shop.yaml", `spec.host: "shop.example.com" is a host of the original; choose another one with --host`},
		{command.ExitFound, "--as pr-42 --migrations skip --host www.shop.example.com @apps/whole/shop.yaml", `spec.host: "www.shop.example.com" is a host of the original`},
		{command.ExitFound, "--as pr-42 --host pr.example.com @apps/whole/shop.yaml", "spec.migrate: its commands would run with the settings of the original, so perhaps in its database; set --migrations=skip"},
		{command.ExitFound, "--as pr-42 --host pr.example.com --migrations run @apps/whole/shop.yaml", "spec.migrate: --migrations=run would run its commands with the settings of the original, so perhaps in its database; give the preview the address of its own database with --env-file OLD=NEW and --migrations=run, or set --migrations=run-shared if that is meant"},
		{command.ExitUsage, "--as pr-42 --host pr.example.com --migrations run --env-file shop.env=shop.env @apps/whole/shop.yaml", `--env-file: "shop.env=shop.env" does not name two files`},
		{command.ExitUsage, "--as pr-42 --host pr.example.com --env-file web.env=shop.env @apps/shop.yaml", `--env-file: no App in the files has "web.env" in spec.envFiles; correct it`},
		{command.ExitUsage, "--as process-worker @apps/shop.yaml", `--as: "process-worker" makes names of objects of the App; use another one, such as pr-42`},
		{command.ExitUsage, "--as gen2 @apps/shop.yaml", `--as: "gen2" makes names of objects of the App; use another one, such as pr-42`},
		{command.ExitUsage, "--as backup @apps/shop.yaml", `--as: "backup" makes names of objects of the App; use another one, such as pr-42`},
		{command.ExitUsage, "--as pr-42 --delete --dry-run @apps/shop.yaml", "--delete and --dry-run are mutually exclusive"},
		{command.ExitUsage, "--as pr-42 --delete --host pr.example.com @apps/shop.yaml", "--delete needs no --host, which says how a preview is deployed; remove one of them"},
		{command.ExitUsage, "--as pr-42 --delete --expires 24h @apps/shop.yaml", "--delete needs no --expires, which says"},
		{command.ExitUsage, "--as pr-42 --delete --replicas 2 @apps/shop.yaml", "--delete needs no --replicas, which says"},
		{command.ExitUsage, "--as pr-42 --delete --cron @apps/shop.yaml", "--delete needs no --cron, which says"},
		{command.ExitUsage, "--as pr-42 --delete --migrations skip @apps/shop.yaml", "--delete needs no --migrations, which says"},
		{command.ExitUsage, "--as pr-42 --delete --env-file a=b @apps/shop.yaml", "--delete needs no --env-file, which says"},
		{command.ExitUsage, "--as pr-42 --delete --image shop@sha256:abc @apps/shop.yaml", "--delete needs no --image, which says"},
		{command.ExitUsage, "--as pr-42 --host pr.example.com --env-file web.env=new.env @apps/shop.yaml", `--env-file: no App in the files has "web.env" in spec.envFiles; correct it`},
		{command.ExitUsage, "--as pr-42 --host pr.example.com @apps/inside.yaml", "--host: no App in the files has spec.host; remove the flag"},
		{command.ExitFound, "--as pr-42 --host pr.example.com --replicas 101 @apps/shop.yaml", "spec.replicas: 101 is out of range; set 0 to 100"},
		{command.ExitFound, "--as pr-4242 --host pr.example.com @long/shop.yaml", `metadata.name: "a-shop-with-a-long-name-pr-4242" has 31 characters, more than 30; use a shorter --as`},
		{command.ExitFound, "--as pr-42 @apps/realtime.yaml", `kind: "Dunlin" has no previews; name only manifests of Apps`},
	} {
		_, stderr := person.roost(row.code, append([]string{"deploy"}, strings.Fields(row.arguments)...)...)
		contains(t, stderr, row.sentence)
	}
	person.write("apps/roost.yaml", person.read("apps/roost.yaml")+"preview: { host: preview.example.com }\n")
	_, stderr := person.roost(command.ExitFailed, "deploy", "--as", "pr-42", "@apps/shop.yaml")
	contains(t, stderr, `preview.host: "preview.example.com" is the same for all previews; write one with {name}, such as "{name}.preview.example.com"`)
}

// TestPreviews has steps that build on one another, with the rights of roost-deployer.
func TestPreviews(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	site.runOperator()
	site.runControllers()
	site.write("apps/roost.yaml", site.read("apps/roost.yaml")+"preview: { host: \"{name}.preview.example.com\", tlsSecret: wildcard }\n")
	site.roost(command.ExitFine, "deploy", "@apps/shop.yaml")
	site.write("apps/shop.yaml", wholeApp)
	site.write("apps/backup.env", "")
	site.roost(command.ExitFine, "deploy", "--as", "pr-42", "--migrations", "skip", "@apps/shop.yaml")
	site.checkPreview()

	// A second deploy extends the preview, and is the same revision.
	var before, after v1alpha1.App
	site.get("shop-pr-42", &before)
	site.roost(command.ExitFine, "deploy", "--as", "pr-42", "--migrations", "skip", "--expires", "100h30m", "@apps/shop.yaml")
	site.get("shop-pr-42", &after)
	if before.Status.Revision != after.Status.Revision || before.Spec.Preview.Expires >= after.Spec.Preview.Expires {
		t.Errorf("%+v and %+v", before.Spec.Preview, after.Spec.Preview)
	}
	out, _ := site.roost(command.ExitFine, "status", "-n", "web")
	contains(t, out, "preview of shop, 101h left: ")
	out, _ = site.roost(command.ExitFine, "status", "-n", "web", "shop-pr-42")
	contains(t, out, "preview   of shop, until "+after.Spec.Preview.Expires+" (101h left)", "Expiring")
	var states []struct{ Preview *struct{ Of, Expires string } }
	site.json(command.ExitFine, &states, "status", "-n", "web")
	if len(states) != 2 || states[0].Preview != nil || states[1].Preview == nil || states[1].Preview.Of != "shop" {
		t.Errorf("%+v", states)
	}
	site.rollBackPreview(after.Spec.Preview.Expires)

	out, _ = site.roost(command.ExitFine, "deploy", "--as", "pr-42", "--delete", "@apps/shop.yaml")
	contains(t, out, "deleted: App web/shop-pr-42\n", "deletes in the background: Deployment shop-pr-42\n")
	if err := site.admin.Get(t.Context(), client.ObjectKey{Namespace: "web", Name: "shop-pr-42"}, &after); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	_, stderr := site.roost(command.ExitFine, "deploy", "--as", "pr-42", "--delete", "@apps/shop.yaml")
	contains(t, stderr, "there is no App shop-pr-42; nothing is to be deleted")
	site.get("shop", &after)
	site.keepOthers()
}

// checkPreview compares the preview with its original.
func (site *site) checkPreview() {
	t := site.t
	t.Helper()
	var app v1alpha1.App
	site.get("shop-pr-42", &app)
	spec := app.Spec
	ends, err := spec.Preview.ExpiresAt()
	if left := time.Until(ends); err != nil || left > v1alpha1.PreviewDefault || left < v1alpha1.PreviewDefault-time.Hour {
		t.Errorf("%v, %s", err, left)
	}
	volume := spec.Volumes[0]
	if *spec.Replicas != 1 || *spec.Processes[0].Replicas != 1 || *spec.Processes[1].Replicas != 0 || volume.Size != nil || volume.Temporary == nil || volume.StorageClass != "" {
		t.Errorf("%+v", spec)
	}
	if spec.Migrate != nil || spec.Runs != nil || spec.Cron != nil || spec.Backup != nil || spec.OnNodeLoss != "" || spec.DeletionPolicy != "" {
		t.Errorf("%+v", spec)
	}
	from, to := spec.Network.From, spec.Network.To
	if from[0].App != "shop-pr-42" || from[1].App != "other" || to[0].App != "shop-pr-42" || to[1].App != "shop" {
		t.Errorf("%+v", spec.Network)
	}
	var ingress networkingv1.Ingress
	site.get("shop-pr-42", &ingress)
	if len(ingress.Spec.Rules) != 1 || ingress.Spec.Rules[0].Host != "shop-pr-42.preview.example.com" || ingress.Spec.TLS[0].SecretName != "wildcard" {
		t.Errorf("%+v", ingress.Spec)
	}
	site.get("shop", &ingress)
	if ingress.Spec.Rules[0].Host != "shop.example.com" {
		t.Errorf("%+v", ingress.Spec)
	}
	var deployment appsv1.Deployment
	site.get("shop-pr-42", &deployment)
}

// rollBackPreview checks that an earlier revision does not bring back an earlier time.
func (site *site) rollBackPreview(expires string) {
	t := site.t
	t.Helper()
	site.write("apps/shop.yaml", strings.Replace(wholeApp, "1.4.2", "1.4.3", 1))
	site.roost(command.ExitFine, "deploy", "--as", "pr-42", "--migrations", "skip", "--expires", "101h30m", "@apps/shop.yaml")
	site.roost(command.ExitFine, "rollback", "-n", "web", "shop-pr-42")
	var app v1alpha1.App
	site.get("shop-pr-42", &app)
	if !strings.HasSuffix(app.Spec.Image, ":1.4.2") || app.Spec.Preview.Expires <= expires {
		t.Errorf("%s, %+v", app.Spec.Image, app.Spec.Preview)
	}
}

// keepOthers checks that --delete leaves alone an App with the name of a preview.
func (site *site) keepOthers() {
	t := site.t
	t.Helper()
	app := &v1alpha1.App{}
	app.Namespace, app.Name = "web", "shop-pr-43"
	app.Spec = v1alpha1.AppSpec{Image: "shop:1", Health: v1alpha1.Health{ProcessHealth: v1alpha1.ProcessHealth{Command: v1alpha1.Command{"true"}}}}
	if err := site.admin.Create(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	// A preview after it in the files is deleted nevertheless.
	site.write("apps/shop.yaml", wholeApp+"---\n"+strings.Replace(wholeApp, "name: shop", "name: store", 1))
	preview := &v1alpha1.App{}
	preview.Namespace, preview.Name, preview.Spec = "web", "store-pr-43", *app.Spec.DeepCopy()
	preview.Spec.Preview = &v1alpha1.Preview{Of: "store", Expires: v1alpha1.ExpiryText(time.Now().Add(time.Hour))}
	if err := site.admin.Create(t.Context(), preview); err != nil {
		t.Fatal(err)
	}
	out, stderr := site.roost(command.ExitFailed, "deploy", "--as", "pr-43", "--delete", "@apps/shop.yaml")
	contains(t, stderr, "App web/shop-pr-43 is no preview of shop; `roost delete -n web shop-pr-43` deletes it")
	contains(t, out, "deleted: App web/store-pr-43\n")
	site.write("apps/shop.yaml", wholeApp)
	// Its deployer cannot make it a preview either.
	_, stderr = site.roost(command.ExitFailed, "deploy", "--as", "pr-43", "--migrations", "skip", "@apps/shop.yaml")
	contains(t, stderr, "an App cannot become a preview or stop being one", "Nothing is written")
}
