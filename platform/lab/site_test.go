// Package lab has the proofs that need pods. `platform/lab/run` boots the machine that they run in; elsewhere they are skipped.
package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/operator"
)

const (
	namespace         = "web"
	operatorNamespace = "roost-system"
	// waitSecondsMax bounds every wait for a condition. It is no figure: a busy machine takes many times what an idle one takes.
	waitSecondsMax = 240
	pollPause      = 100 * time.Millisecond
	platformFolder = ".."
)

// site is a person with a folder of manifests, and the programs roost and kubectl.
type site struct {
	t      *testing.T
	folder string
	home   string
	admin  client.Client
}

// newSite has an operator that runs, and an app of its own name with a file of encrypted settings.
func newSite(t *testing.T) *site {
	t.Helper()
	work := os.Getenv("ROOST_LAB")
	if work == "" {
		t.Skip("ROOST_LAB is not set; `make lab` boots the machine that the proofs run in")
	}
	connection, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	connection.QPS = -1
	admin, err := client.New(connection, client.Options{Scheme: operator.NewScheme()})
	if err != nil {
		t.Fatal(err)
	}
	site := &site{t, t.TempDir(), filepath.Join(work, "home"), admin}
	if err := os.MkdirAll(site.home, 0o700); err != nil {
		t.Fatal(err)
	}
	return site
}

// install does what the README says about the operator. A second time, it changes nothing.
func (site *site) install() {
	site.t.Helper()
	site.roost(0, "init", "apps", "shop", "--namespace", namespace, "--image", image("1.4.2"), "--host", "shop.example.com")
	site.must(kubectl("apply", "--server-side", "-f", filepath.Join(platformFolder, "crd"),
		"-f", filepath.Join(platformFolder, "deploy/machines/operator.yaml"), "-f", filepath.Join(platformFolder, "deploy/roles.yaml"),
		"-f", filepath.Join(platformFolder, "deploy/namespace.yaml")))
	identity := filepath.Join(site.home, ".config/roost/identity.txt")
	if err := kubectl("-n", operatorNamespace, "get", "secret", "roost-identity").Run(); err != nil {
		site.must(kubectl("-n", operatorNamespace, "create", "secret", "generic", "roost-identity", "--from-file=identity.txt="+identity))
	}
	site.waitForOperator()
}

func (site *site) waitForOperator() {
	site.t.Helper()
	site.must(kubectl("-n", operatorNamespace, "rollout", "status", "deployment/roost-operator", fmt.Sprintf("--timeout=%ds", waitSecondsMax)))
}

func image(version string) string { return "registry.example.com/shop:" + version }

// must returns what the program prints.
func (site *site) must(command *exec.Cmd) string {
	site.t.Helper()
	command.Env = append(os.Environ(), "HOME="+site.home)
	out, err := command.CombinedOutput()
	if err != nil {
		site.t.Fatalf("%s: %v\n%s", strings.Join(command.Args, " "), err, out)
	}
	return string(out)
}

// roost runs in the site's folder, is to end with the exit code, and returns what it prints.
func (site *site) roost(code int, arguments ...string) string {
	site.t.Helper()
	out, _ := site.roostWords(code, arguments...)
	return out
}

// roostWords is roost with what it prints to its standard error as well.
func (site *site) roostWords(code int, arguments ...string) (out, words string) {
	site.t.Helper()
	command := exec.Command("roost", arguments...)
	command.Dir, command.Env = site.folder, append(os.Environ(), "HOME="+site.home)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	_ = command.Run()
	if found := command.ProcessState.ExitCode(); found != code {
		site.t.Fatalf("roost %s: exit code %d, expected %d\n%s%s", strings.Join(arguments, " "), found, code, stdout.String(), stderr.String())
	}
	return stdout.String(), stderr.String()
}

func (site *site) write(name, text string) {
	site.t.Helper()
	path := filepath.Join(site.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		site.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		site.t.Fatal(err)
	}
}

func (site *site) read(name string) string {
	site.t.Helper()
	text, err := os.ReadFile(filepath.Join(site.folder, name))
	if err != nil {
		site.t.Fatal(err)
	}
	return string(text)
}

// state is what `roost status -o json` prints.
type state struct {
	Image, Revision string
	Conditions      []metav1.Condition
	Backup          *v1alpha1.BackupStatus
	Dunlin          *v1alpha1.DunlinStatus
}

func (state state) is(condition string) bool {
	return meta.IsStatusConditionTrue(state.Conditions, condition)
}

func (state state) message(condition string) string {
	if found := meta.FindStatusCondition(state.Conditions, condition); found != nil {
		return found.Reason + ": " + found.Message
	}
	return ""
}

func (site *site) state(name string) state {
	site.t.Helper()
	command := exec.Command("roost", "status", "-n", namespace, "-o", "json", name)
	out, _ := command.Output()
	var states []state
	if err := json.Unmarshal(out, &states); err != nil || len(states) != 1 {
		site.t.Fatalf("%v: %s", err, out)
	}
	return states[0]
}

func (site *site) pods(name string) []corev1.Pod {
	site.t.Helper()
	var pods corev1.PodList
	labels := client.MatchingLabels{"apps.roost.dev/app": name, "apps.roost.dev/part": "main"}
	if err := site.admin.List(site.t.Context(), &pods, client.InNamespace(namespace), labels); err != nil {
		site.t.Fatal(err)
	}
	return pods.Items
}

// podNames are those of pods that are not on their way out.
func (site *site) podNames(name string) []string {
	site.t.Helper()
	var names []string
	for _, pod := range site.pods(name) {
		if pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

// wait returns how long it took until it held.
func (site *site) wait(what string, holds func() bool) time.Duration {
	site.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(site.t.Context(), waitSecondsMax*time.Second)
	defer cancel()
	pause := time.NewTicker(pollPause)
	defer pause.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			events, _ := kubectl("-n", namespace, "get", "pods,persistentvolumeclaims,events").CombinedOutput()
			site.t.Fatalf("timed out after %d s: %s\n%s", waitSecondsMax, what, events)
		case <-pause.C:
		}
	}
	return time.Since(began)
}

// figure is a line of the report.
func (site *site) figure(format string, values ...any) {
	fmt.Printf("FIGURE %s: %s\n", site.t.Name(), fmt.Sprintf(format, values...))
}
