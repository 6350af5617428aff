package lab

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	rollouts          = 10
	rolloutsBare      = 3
	requestsPerSecond = 200
	// conditionSecondsMax from a release that cannot serve to its condition.
	conditionSecondsMax = 30
)

// Each rollout replaces all pods while requests come, and none of them may fail.
func TestRolloutsUnderLoad(t *testing.T) {
	app := newApp(t, "busy", "  replicas: 2\n")
	versions := []string{"1.4.2", "1.5.0"}
	app.release(versions[0], "info", "token", "")
	app.deploy()
	app.waitUntilServing(versions[0])
	load := startLoad(t.Context(), app.host(), requestsPerSecond)
	began := time.Now()
	for number := range rollouts {
		version := versions[(number+1)%2]
		app.release(version, "info", "token", "")
		app.deploy()
		app.waitUntilServing(version)
	}
	load.end()
	app.figure("%d rollouts under %d requests/s in %.0f s: %d requests, %d errors, at most %.2f s for an answer", rollouts,
		requestsPerSecond, time.Since(began).Seconds(), load.requests, load.failed(), load.longest.Seconds())
	if load.failed() != 0 || load.versions["1.4.2"] == 0 || load.versions["1.5.0"] == 0 {
		t.Errorf("failures %v, versions %v", load.failures, load.versions)
	}
	app.rollOutWithoutPreStop()
}

// rollOutWithoutPreStop shows that the load finds errors where there are some: the same objects, but for the pause before SIGTERM.
func (app *app) rollOutWithoutPreStop() {
	app.t.Helper()
	const name = "bare"
	for _, kind := range []string{"deployment", "service", "ingress"} {
		text := app.must(kubectl("-n", namespace, "get", kind, app.name, "-o", "json"))
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			app.t.Fatal(err)
		}
		delete(object, "status")
		object["metadata"] = map[string]any{"name": name, "namespace": namespace}
		if spec := object["spec"].(map[string]any); kind == "service" {
			delete(spec, "clusterIP")
			delete(spec, "clusterIPs")
		}
		out, err := json.Marshal(object)
		if err != nil {
			app.t.Fatal(err)
		}
		changed := strings.NewReplacer(
			`"apps.roost.dev/app":"busy"`, `"apps.roost.dev/app":"bare"`, `"busy.example.com"`, `"bare.example.com"`,
			`"service":{"name":"busy"`, `"service":{"name":"bare"`, `"lifecycle":{"preStop":{"sleep":{"seconds":4}}},`, "").Replace(string(out))
		if kind == "deployment" && strings.Contains(changed, "preStop") {
			app.t.Fatal(changed)
		}
		command := kubectl("create", "-f", "-")
		command.Stdin = strings.NewReader(changed)
		app.must(command)
		app.t.Cleanup(func() { app.must(kubectl("-n", namespace, "delete", kind, name)) })
	}
	wait := func() {
		app.must(kubectl("-n", namespace, "rollout", "status", "deployment/"+name, fmt.Sprintf("--timeout=%ds", waitSecondsMax)))
	}
	wait()
	bare := *app
	bare.name = name
	app.wait("the ingress controller serves it", func() bool { return bare.answer().Version != "" })
	load := startLoad(app.t.Context(), bare.host(), requestsPerSecond)
	for number := range rolloutsBare {
		app.must(kubectl("-n", namespace, "set", "env", "deployment/"+name, fmt.Sprintf("ROLLOUT=%d", number)))
		wait()
	}
	load.end()
	app.figure("without preStop, %d rollouts: %d requests, %d errors", rolloutsBare, load.requests, load.failed())
	if load.failed() == 0 {
		app.t.Error("the load finds no error without preStop, so that it proves nothing with it")
	}
}

// A release that cannot serve leaves the old pods alone, and the condition has what the pod said last.
func TestReleasesThatCannotServe(t *testing.T) {
	for _, row := range []struct {
		name, version, more string
		words               []string
	}{
		{"bad-image", "9.9.9", "", []string{"9.9.9"}},
		{"crash-loop", "1.5.0", "  env: { FAILS: cannot open the database }\n", []string{"exit code 1", "shop: cannot open the database"}},
		{"never-ready", "1.5.0", "  health: { path: /healthz, startSeconds: 10 }\n  env: { NEVER_READY: always }\n", []string{"its health check failed"}},
		// It may take the default of 60 seconds to start.
		{"not-ready-yet", "1.5.0", "  env: { NEVER_READY: always }\n", []string{"PodNotReady", "has not been ready since"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			app := newApp(t, row.name, "  replicas: 2\n")
			app.release("1.4.2", "info", "token", "")
			app.deploy()
			app.waitUntilServing("1.4.2")
			before := app.podNames(app.name)
			load := startLoad(t.Context(), app.host(), 20)
			app.release(row.version, "info", "token", row.more)
			app.roost(0, "deploy", "--wait", "0", app.manifest())
			took := app.wait("the release counts as failed", func() bool { return app.state(app.name).is("Degraded") })
			load.end()
			message := app.state(app.name).message("Degraded")
			app.figure("the condition is there after %.1f s: %s", took.Seconds(), message)
			if took > conditionSecondsMax*time.Second {
				t.Errorf("the condition is there after %.1f s; %d s are allowed", took.Seconds(), conditionSecondsMax)
			}
			for _, words := range row.words {
				if !strings.Contains(message, words) {
					t.Errorf("%q lacks %q", message, words)
				}
			}
			if load.failed() != 0 || len(load.versions) != 1 || load.versions["1.4.2"] == 0 {
				t.Errorf("failures %v, versions %v", load.failures, load.versions)
			}
			now := app.podNames(app.name)
			for _, name := range before {
				if !slices.Contains(now, name) {
					t.Errorf("the pod %s of the old revision is gone: %v", name, now)
				}
			}
			app.roost(0, "rollback", "-n", namespace, app.name)
			if state := app.state(app.name); state.is("Degraded") || !state.is("Ready") {
				t.Errorf("%+v", state)
			}
			if after := app.podNames(app.name); !slices.Equal(before, after) {
				t.Errorf("pods %v before, %v after", before, after)
			}
		})
	}
}

func TestAMigrationThatFails(t *testing.T) {
	app := newApp(t, "migrated", "  migrate: { command: [/usr/bin/shop, migrate] }\n")
	app.release("1.4.2", "info", "token", "")
	app.deploy()
	app.waitUntilServing("1.4.2")
	before := app.podNames(app.name)
	app.release("1.5.0", "info", "token", "  env: { MIGRATION_FAILS: there is no column price }\n")
	began := time.Now()
	app.roost(1, "deploy", app.manifest())
	message := app.state(app.name).message("Degraded")
	app.figure("`roost deploy` ends with exit code 1 after %.1f s: %s", time.Since(began).Seconds(), message)
	if !strings.Contains(message, "migration: there is no column price") {
		t.Error("the condition lacks the last output of the migration")
	}
	if after := app.podNames(app.name); !slices.Equal(before, after) || app.answer().Version != "1.4.2" {
		t.Errorf("pods %v before, %v after; %+v", before, after, app.answer())
	}
	app.release("1.5.0", "info", "token", "")
	app.deploy()
	app.waitUntilServing("1.5.0")
}

func TestChangedSettingsRestartPodsOnce(t *testing.T) {
	app := newApp(t, "settled", "  replicas: 2\n")
	app.release("1.4.2", "info", "token-one", "")
	app.deploy()
	app.waitUntilServing("1.4.2")
	first := app.podNames(app.name)

	app.release("1.4.2", "info", "token-two", "")
	began := time.Now()
	app.deploy()
	app.wait("the app has the new token", func() bool { return app.answer().Token == "token-two" })
	took := time.Since(began)
	second := app.podNames(app.name)
	for _, name := range second {
		if slices.Contains(first, name) {
			t.Errorf("the pod %s was not replaced", name)
		}
	}
	// Nothing of this is another content.
	app.release("1.4.2", "info", "token-two", "")
	app.deploy()
	app.must(kubectl("-n", operatorNamespace, "rollout", "restart", "deployment/roost-operator"))
	app.waitForOperator()
	app.deploy()
	if third := app.podNames(app.name); !slices.Equal(second, third) {
		t.Errorf("pods %v, then %v", second, third)
	}
	sets := app.replicaSets()
	app.figure("changed settings serve after %.1f s; %d generations of pods for 2 contents, 4 deploys and a restart of the operator", took.Seconds(), sets)
	if sets != 2 {
		t.Errorf("%d generations of pods", sets)
	}
}

func (app *app) replicaSets() int {
	out := app.must(kubectl("-n", namespace, "get", "replicasets", "-l", "apps.roost.dev/app="+app.name, "-o", "name"))
	return len(strings.Fields(out))
}

func TestRollbackTakesImageAndSettings(t *testing.T) {
	app := newApp(t, "back", "")
	app.release("1.4.2", "info", "token-one", "")
	app.deploy()
	first := app.waitUntilServing("1.4.2")
	app.release("1.5.0", "debug", "token-two", "")
	app.deploy()
	second := app.waitUntilServing("1.5.0")
	if first.Token != "token-one" || second.Token != "token-two" || second.Level != "debug" {
		t.Fatalf("%+v, %+v", first, second)
	}
	began := time.Now()
	app.roost(0, "rollback", "-n", namespace, app.name)
	found := app.waitUntilServing("1.4.2")
	app.figure("image, configuration and secrets of the revision before serve after %.1f s", time.Since(began).Seconds())
	if found.Pod, first.Pod = "", ""; found != first {
		t.Errorf("%+v, expected %+v", found, first)
	}
}

// A change of the manifest is merged in Git; CI deploys it with an identity that lives for minutes.
func TestAMergedCommitServes(t *testing.T) {
	app := newApp(t, "merged", "")
	app.release("1.4.2", "info", "token", "")
	app.deploy()
	app.waitUntilServing("1.4.2")
	git := func(arguments ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-C", app.folder, "-c", "user.name=lab", "-c", "user.email=lab@example.com"}, arguments...)...)
		app.must(command)
	}
	app.write(".gitignore", "*.kubeconfig\n")
	git("init", "--quiet", "--initial-branch=main")
	git("add", ".")
	git("commit", "--quiet", "--message=first")
	app.write("ci.kubeconfig", app.roost(0, "identity", "create", "ci", "--role", "deployer", "-n", namespace, "--lifetime", "10m"))
	git("switch", "--quiet", "--create", "release")
	app.write(app.manifest(), strings.Replace(app.read(app.manifest()), image("1.4.2"), image("1.5.0"), 1))
	git("commit", "--quiet", "--all", "--message=release")
	git("switch", "--quiet", "main")
	began := time.Now()
	git("merge", "--quiet", "--no-ff", "--message=merge", "release")
	checkout := t.TempDir()
	app.must(exec.Command("git", "clone", "--quiet", app.folder, checkout))
	app.must(exec.Command("roost", "deploy", "--kubeconfig", app.folder+"/ci.kubeconfig", checkout+"/apps/"+app.name+".yaml"))
	app.waitUntilServing("1.5.0")
	took := time.Since(began)
	app.figure("serving %.1f s after the merge (60 s are allowed)", took.Seconds())
	if took > time.Minute {
		t.Errorf("%v", took)
	}
}
