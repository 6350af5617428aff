package ci

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/registry"
)

const registryPassword = "canary-of-the-registry"

// pipeline runs the scripts of app.yml's jobs as GitHub does: bash, a file of outputs, and expressions that are replaced before.
type pipeline struct {
	t        *testing.T
	folder   string
	workflow Workflow
	values   map[string]string
	log      strings.Builder
}

func TestTheScriptsOfTheWorkflow(t *testing.T) {
	if _, err := exec.LookPath("skopeo"); err != nil {
		t.Skip("skopeo is not installed; `make platform` installs it")
	}
	stored := registry.NewMemory(registryPassword)
	server := httptest.NewTLSServer(stored)
	t.Cleanup(server.Close)
	name := strings.TrimPrefix(server.URL, "https://") + "/team/roost-operator"
	pipeline := newPipeline(t, name, "roost-operator")
	pipeline.write("authority.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	key := pipeline.writeKeys()

	pipeline.run("image")
	image := pipeline.values["jobs.image.image"]
	if !strings.HasPrefix(image, name+"@sha256:") || !strings.HasPrefix(pipeline.values["jobs.image.sbom-digest"], "sha256:") {
		t.Fatalf("%q\n%s", pipeline.values, &pipeline.log)
	}
	digest := strings.Replace(image[strings.Index(image, "@")+1:], ":", "-", 1)
	for _, tag := range []string{"v1.2.3", digest + ".sbom"} {
		if !stored.HasManifest("team/roost-operator:" + tag) {
			t.Errorf("the registry has no %s", tag)
		}
	}

	if output, err := pipeline.try("deploy"); err == nil || !strings.Contains(output, "manifest unknown") {
		t.Errorf("without a signature: %v\n%s", err, output)
	}
	pipeline.values["secrets.IMAGE_SIGNING_KEY"] = ""
	if output, err := pipeline.try("sign"); err == nil || !strings.Contains(output, "there is no key") {
		t.Errorf("without a key: %v\n%s", err, output)
	}
	pipeline.values["secrets.IMAGE_SIGNING_KEY"] = newKeyText(t)
	pipeline.run("sign")
	if output, err := pipeline.try("deploy"); err == nil || !strings.Contains(output, "the signature was not made with this key") {
		t.Errorf("with another key: %v\n%s", err, output)
	}
	pipeline.values["secrets.IMAGE_SIGNING_KEY"] = key
	pipeline.run("sign")
	pipeline.run("deploy")
	deployed, err := os.ReadFile(filepath.Join(pipeline.folder, "deployed"))
	must(t, err)
	if want := "deploy --kubeconfig TEMP/kubeconfig --image " + image + " apps\n600 canary-of-the-kubeconfig\n"; string(deployed) != want {
		t.Errorf("%s\nwant %s", deployed, want)
	}
	if _, err := os.Stat(filepath.Join(pipeline.folder, "temp/kubeconfig")); err == nil {
		t.Error("the kubeconfig is still there")
	}
	for _, secret := range []string{"canary-of", "PRIVATE KEY"} {
		if strings.Contains(pipeline.log.String(), secret) {
			t.Errorf("%q was printed", secret)
		}
	}
}

// TestAReleaseHasEachImage that platform/images writes. The command of roost-backup is run as well, with the restic of this machine.
func TestAReleaseHasEachImage(t *testing.T) {
	workflows, err := ReadWorkflows(filepath.Join(root, ".github/workflows"))
	must(t, err)
	script, err := os.ReadFile("../images")
	must(t, err)
	cases := regexp.MustCompile(`(?m)^\t([a-z]+)\)$`).FindAllStringSubmatch(string(script), -1)
	if len(cases) < 3 {
		t.Fatalf("%q", cases)
	}
	for _, found := range cases {
		// It writes the operator's manifest, which is no image.
		if found[1] == "manifests" {
			continue
		}
		isBuilt := slices.ContainsFunc(slices.Collect(maps.Values(workflows["release.yml"].Jobs)), func(job Job) bool {
			return strings.Contains(fmt.Sprint(job.With["image-command"])+" ", "platform/images out "+found[1]+" ")
		})
		if !isBuilt {
			t.Errorf("no job of release.yml writes the image `platform/images FOLDER %s`", found[1])
		}
	}
	for _, program := range []string{"skopeo", "restic"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed; `make platform` installs it")
		}
	}
	stored := registry.NewMemory(registryPassword)
	server := httptest.NewTLSServer(stored)
	t.Cleanup(server.Close)
	pipeline := newPipeline(t, strings.TrimPrefix(server.URL, "https://")+"/team/roost-backup", "roost-backup")
	pipeline.write("authority.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	pipeline.writeProgram("sudo", `echo "$*" >>"$OWN/../sudo"`)
	pipeline.run("image")
	if !stored.HasManifest("team/roost-backup:v1.2.3") {
		t.Error("the registry has no image")
	}
	installed, err := os.ReadFile(filepath.Join(pipeline.folder, "sudo"))
	must(t, err)
	if !strings.Contains(string(installed), "install -y -qq --no-install-recommends restic\n") {
		t.Errorf("%s", installed)
	}
}

func newPipeline(t *testing.T, image, job string) *pipeline {
	t.Helper()
	workflows, err := ReadWorkflows(filepath.Join(root, ".github/workflows"))
	must(t, err)
	pipeline := &pipeline{t: t, folder: t.TempDir(), workflow: workflows["app.yml"]}
	pipeline.values = map[string]string{
		"github.token": registryPassword, "runner.temp": filepath.Join(pipeline.folder, "temp"), "secrets.KUBECONFIG": "canary-of-the-kubeconfig",
		"inputs.public-key": "image.pub", "inputs.manifests": "apps",
	}
	for input, value := range workflows["release.yml"].Jobs[job].With {
		pipeline.values["inputs."+input] = fmt.Sprint(value)
	}
	pipeline.values["inputs.image"], pipeline.values["inputs.image-tag"], pipeline.values["inputs.roost-version"] = image, "v1.2.3", "v1.2.3"
	platform, err := filepath.Abs("..")
	must(t, err)
	for _, name := range []string{"temp", "bin", "home", "apps"} {
		must(t, os.Mkdir(filepath.Join(pipeline.folder, name), 0o755))
	}
	must(t, os.Symlink(platform, filepath.Join(pipeline.folder, "platform")))
	pipeline.writeProgram("roost", `if [ "$1" = deploy ]; then
	  echo "$*" | sed "s,$RUNNER_TEMP,TEMP," >deployed
	  echo "$(stat -c %a "$RUNNER_TEMP/kubeconfig") $(cat "$RUNNER_TEMP/kubeconfig")" >>deployed
	fi`)
	// `go install PACKAGE@VERSION` compiles this tree; roost, which would need a cluster, is the script above.
	goProgram, err := exec.LookPath("go")
	must(t, err)
	pipeline.writeProgram("go", `if [ "$1" != install ]; then exec `+goProgram+` "$@"; fi
	shift
	mkdir -p "$GOBIN"
	for package; do
	  name=$(basename "${package%@*}")
	  case $package in
	    *@v1.2.3) ;;
	    *) echo "no version in $package" >&2; exit 1 ;;
	  esac
	  if [ "$name" = roost ]; then cp "$OWN/roost" "$GOBIN/roost"; continue; fi
	  `+goProgram+` build -C `+platform+` -o "$GOBIN/$name" "./cmd/$name"
	done`)
	return pipeline
}

func (pipeline *pipeline) write(name, text string) {
	pipeline.t.Helper()
	must(pipeline.t, os.WriteFile(filepath.Join(pipeline.folder, name), []byte(text), 0o644))
}

func (pipeline *pipeline) writeProgram(name, text string) {
	pipeline.t.Helper()
	must(pipeline.t, os.WriteFile(filepath.Join(pipeline.folder, "bin", name), []byte("#!/bin/bash\nset -eu\n"+text+"\n"), 0o755))
}

// writeKeys writes the public key into the repository and returns the private one.
func (pipeline *pipeline) writeKeys() string {
	pipeline.t.Helper()
	private := newKeyText(pipeline.t)
	block, _ := pem.Decode([]byte(private))
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	must(pipeline.t, err)
	public, err := x509.MarshalPKIXPublicKey(&key.(*ecdsa.PrivateKey).PublicKey)
	must(pipeline.t, err)
	pipeline.write("image.pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
	return private
}

func newKeyText(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
}

func (pipeline *pipeline) run(job string) {
	pipeline.t.Helper()
	if output, err := pipeline.try(job); err != nil {
		pipeline.t.Fatalf("%s: %v\n%s", job, err, output)
	}
}

var expression = regexp.MustCompile(`\$\{\{ *([^}]+?) *\}\}`)

// resolve replaces expressions. `A || B` is A here, which each caller of the test gives.
func (pipeline *pipeline) resolve(text string) string {
	return expression.ReplaceAllStringFunc(text, func(found string) string {
		name, _, _ := strings.Cut(expression.FindStringSubmatch(found)[1], " || ")
		for _, prefix := range []string{"needs.", "steps.push."} {
			if rest, isOutput := strings.CutPrefix(name, prefix); isOutput {
				name = "jobs." + strings.Replace(rest, "outputs.", "", 1)
				if prefix == "steps.push." {
					name = "jobs.image." + strings.TrimPrefix(rest, "outputs.")
				}
			}
		}
		value, isThere := pipeline.values[name]
		if !isThere {
			pipeline.t.Fatalf("the test has no value of %q", name)
		}
		return value
	})
}

// try runs a job's scripts one after another, until one fails.
func (pipeline *pipeline) try(job string) (string, error) {
	pipeline.t.Helper()
	definition := pipeline.workflow.Jobs[job]
	var output strings.Builder
	for _, step := range definition.Steps {
		if step.Run == "" {
			continue
		}
		script := filepath.Join(pipeline.folder, "script")
		outputs := filepath.Join(pipeline.folder, "outputs")
		pipeline.write("script", step.Run)
		pipeline.write("outputs", "")
		// What the workflow's `defaults` name as shell.
		command := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", script)
		command.Dir = pipeline.folder
		command.Env = append(os.Environ(),
			"PATH="+filepath.Join(pipeline.folder, "bin")+":"+os.Getenv("PATH"), "OWN="+filepath.Join(pipeline.folder, "bin"),
			"GITHUB_ACTOR=somebody", "GITHUB_OUTPUT="+outputs, "RUNNER_TEMP="+pipeline.values["runner.temp"],
			"SSL_CERT_FILE="+filepath.Join(pipeline.folder, "authority.pem"), "REGISTRY_AUTH_FILE="+filepath.Join(pipeline.folder, "auth.json"),
		)
		for _, variables := range []map[string]any{definition.Env, step.Env} {
			for name, value := range variables {
				command.Env = append(command.Env, name+"="+pipeline.resolve(fmt.Sprint(value)))
			}
		}
		text, err := command.CombinedOutput()
		output.Write(text)
		pipeline.log.Write(text)
		if err != nil {
			return output.String(), err
		}
		written, err := os.ReadFile(outputs)
		must(pipeline.t, err)
		for line := range strings.Lines(string(written)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			pipeline.values["jobs."+job+"."+name] = value
		}
	}
	return output.String(), nil
}
