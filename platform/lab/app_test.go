package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// app is an app under test: its manifest and its settings.
type app struct {
	*site
	name string
	// lines are added to the manifest's spec.
	lines string
}

func newApp(t *testing.T, name, lines string) *app {
	t.Helper()
	site := newSite(t)
	site.install()
	t.Cleanup(func() { site.must(kubectl("-n", namespace, "delete", "app", name, "--ignore-not-found", "--wait")) })
	return &app{site, name, lines}
}

func (app *app) host() string { return app.name + ".example.com" }

// release writes the manifest and the settings.
func (app *app) release(version, level, token, more string) {
	app.t.Helper()
	app.write("apps/"+app.name+".yaml", fmt.Sprintf(`apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: { name: %s, namespace: %s }
spec:
  image: %s
  host: %s
  ports: [{ port: 8080 }]
  envFiles: [%s.env]
%s%s`, app.name, namespace, image(version), app.host(), app.name, app.lines, more))
	if !strings.Contains(app.read(app.manifest()), "health:") {
		app.write(app.manifest(), app.read(app.manifest())+"  health: { path: /healthz }\n")
	}
	app.write("apps/"+app.name+".env", fmt.Sprintf("TOKEN=%s\nLEVEL=%s\n", token, level))
	app.roost(0, "secrets", "encrypt", "apps/"+app.name+".env")
}

func (app *app) manifest() string { return "apps/" + app.name + ".yaml" }

// deploy waits until the operator counts the release as rolled out.
func (app *app) deploy() {
	app.t.Helper()
	app.roost(0, "deploy", app.manifest())
}

func (app *app) waitUntilServing(version string) served {
	app.t.Helper()
	var found served
	app.wait("the ingress controller serves version "+version, func() bool {
		found = app.answer()
		return found.Version == version
	})
	return found
}

func TestAnAppFromDeployToServing(t *testing.T) {
	app := newApp(t, "first", "")
	app.release("1.4.2", "", "secret-one", "")
	began := time.Now()
	app.roost(0, "deploy", app.manifest())
	deployed := time.Since(began)
	app.wait("the ingress controller serves the app", func() bool { return app.answer().Version == "1.4.2" })
	app.figure("deployed after %.1f s, serving through Traefik after %.1f s", deployed.Seconds(), time.Since(began).Seconds())
	if answer := app.answer(); answer.Token != "secret-one" {
		t.Errorf("%+v", answer)
	}
	for _, pod := range app.pods(app.name) {
		if context := pod.Spec.SecurityContext; context == nil || !*context.RunAsNonRoot {
			t.Errorf("%+v", context)
		}
	}
}

// The words of real pods, and a command that runs once with the image and the settings of the app.
func TestLogsAndRuns(t *testing.T) {
	app := newApp(t, "spoken", "  replicas: 2\n")
	app.release("1.4.2", "info", "token", "")
	app.deploy()
	out := app.roost(0, "logs", "-n", namespace, app.name)
	if found := strings.Count(out, "shop 1.4.2 listens on port 8080"); found != 2 {
		t.Errorf("%d lines of 2 pods: %s", found, out)
	}
	began := time.Now()
	if out := app.roost(0, "run", "-n", namespace, app.name, "--", "/usr/bin/shop", "migrate"); !strings.Contains(out, "migrated") {
		t.Errorf("%q", out)
	}
	app.figure("a command of the app has run after %.1f s", time.Since(began).Seconds())
	app.roost(17, "run", "-n", namespace, app.name, "--", "/usr/bin/shop", "exit", "17")
	app.wait("the Jobs and their pods are gone", func() bool {
		labels := "apps.roost.dev/app=" + app.name + ",apps.roost.dev/part!=main"
		return app.must(kubectl("-n", namespace, "get", "jobs,pods", "-l", labels, "-o", "name")) == ""
	})
}
