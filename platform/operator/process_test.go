package operator_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/deploy"
	"github.com/dunlin-project/dunlin/platform/ports"
)

const (
	// conditionSecondsMax bounds the wait for what must come. On a busy machine it takes many times what it does alone.
	conditionSecondsMax = 300
	// wholeTimes is how many times longer what takes minutes may take.
	wholeTimes = 4
	startsMax  = 3
)

// process is the operator in a separate process.
type process struct {
	t       *testing.T
	command *exec.Cmd
	metrics string
	log     *bytes.Buffer
	ended   chan struct{}
}

// programOfOperator compiles the operator.
func programOfOperator(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "roost-operator")
	build := exec.Command("../operator-binary", program)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return program
}

// start starts the operator, and returns when it serves its metrics.
func (world *world) start(program string, arguments ...string) *process {
	world.t.Helper()
	server, _ := server(world.t)
	return world.startAt(server.AsOperator(), program, arguments...)
}

// startAt starts the operator with a connection.
func (world *world) startAt(connection *rest.Config, program string, arguments ...string) *process {
	world.t.Helper()
	kubeconfig, err := apiserver.Kubeconfig(connection)
	if err != nil {
		world.t.Fatal(err)
	}
	file := filepath.Join(world.t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		world.t.Fatal(err)
	}
	for range startsMax {
		// Another process may take the port before it is used.
		metrics := fmt.Sprint("127.0.0.1:", ports.One(world.t))
		started := startProcess(world.t, file, program, world.variables, append([]string{
			"--namespaces=" + world.namespace, "--identity=" + world.operator.IdentityFile, "--health=0", "--metrics=" + metrics,
		}, arguments...))
		started.metrics = metrics
		if started.isAnswering() {
			return started
		}
		world.t.Logf("the operator has ended: %s", started.log)
	}
	world.t.Fatal("the operator does not start")
	return nil
}

func startProcess(t *testing.T, kubeconfig, program string, variables, arguments []string) *process {
	t.Helper()
	started := &process{t: t, command: exec.Command(program, arguments...), log: &bytes.Buffer{}, ended: make(chan struct{})}
	started.command.Env = append(variablesOfManifest(t), "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir(), "KUBECONFIG="+kubeconfig)
	started.command.Env = append(started.command.Env, variables...)
	started.command.Stderr = started.log
	started.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	failed := make(chan error, 1)
	go func() {
		// The kernel kills the process when the thread that started it exits, so the thread waits for the process.
		runtime.LockOSThread()
		err := started.command.Start()
		failed <- err
		if err == nil {
			_ = started.command.Wait()
		}
		close(started.ended)
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = started.command.Process.Kill()
		<-started.ended
	})
	return started
}

// variablesOfManifest returns the environment variables of the container in deploy/operator.yaml.
func variablesOfManifest(t *testing.T) []string {
	t.Helper()
	text, err := deploy.Files.ReadFile("operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var deployment appsv1.Deployment
		if err := yaml.Unmarshal(document, &deployment); err != nil || deployment.Kind != "Deployment" {
			continue
		}
		for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
			found = append(found, variable.Name+"="+variable.Value)
		}
	}
	if len(found) == 0 {
		t.Fatal("the manifest of the operator has no variables")
	}
	return found
}

// isAnswering waits until the operator responds or exits.
func (process *process) isAnswering() bool {
	process.t.Helper()
	isThere := false
	wait(process.t, "the operator answers", func() bool {
		select {
		case <-process.ended:
			return true
		default:
		}
		_, err := process.figures()
		isThere = err == nil
		return isThere
	})
	return isThere
}

// stop stops the operator as Kubernetes does.
func (process *process) stop() {
	process.t.Helper()
	if err := process.command.Process.Signal(syscall.SIGTERM); err != nil {
		process.t.Fatal(err)
	}
	<-process.ended
	if code := process.command.ProcessState.ExitCode(); code != 0 {
		process.t.Errorf("the operator has ended with %d: %s", code, process.log)
	}
}

// figures returns the metrics, with the labels in their names.
func (process *process) figures() (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(process.t.Context(), conditionSecondsMax*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+process.metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d, %v", answer.StatusCode, err)
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if figure, err := strconv.ParseFloat(value, 64); err == nil {
			found[name] = figure
		}
	}
	return found, nil
}

// waitForPasses returns when the operator has reconciled this number of Apps and Dunlins without an error, and its queue is empty.
func (process *process) waitForPasses(apps, dunlins int) {
	process.t.Helper()
	process.waitForController("App", apps)
	process.waitForController("Dunlin", dunlins)
}

func (process *process) waitForController(kind string, count int) {
	process.t.Helper()
	wait(process.t, fmt.Sprintf("%d passes over %ss", count, kind), func() bool {
		figures, err := process.figures()
		if err != nil {
			process.t.Fatalf("%v: %s", err, process.log)
		}
		waiting, queues := figures[`controller_runtime_active_workers{controller="`+kind+`"}`], 0
		for name, depth := range figures {
			// What was there at the start has a queue of its own, with a lower priority.
			if strings.HasPrefix(name, `workqueue_depth{controller="`+kind+`"`) {
				waiting += depth
				queues++
			}
		}
		passes := 0.0
		for _, result := range []string{"success", "requeue_after"} {
			passes += figures[`controller_runtime_reconcile_total{controller="`+kind+`",result="`+result+`"}`]
		}
		return passes >= float64(count) && queues > 0 && waiting == 0
	})
}

// kib returns the value of a line of /proc/PID/status.
func (process *process) kib(name string) int {
	process.t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", process.command.Process.Pid))
	if err != nil {
		process.t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == name+":" {
			value, err := strconv.Atoi(fields[1])
			if err != nil {
				process.t.Fatal(err)
			}
			return value
		}
	}
	process.t.Fatalf("there is no %s", name)
	return 0
}

// wait returns when the condition holds.
func wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	most := conditionSecondsMax * time.Second
	if isWhole() {
		most *= wholeTimes
	}
	deadline := time.Now().Add(most)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
