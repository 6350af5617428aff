package command_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/command"
)

// TestDebugging starts one server for `roost exec`, `roost port-forward` and `roost top`.
func TestDebugging(t *testing.T) {
	t.Parallel()
	site, kubelet := deployed(t)
	site.refuses([]refusal{
		{command.ExitUsage, "exec shop", "write the name of one App or Dunlin, then --, then the program"},
		{command.ExitUsage, "exec shop -o json -- env", "--output is json, and the output of exec is that of the program; remove -o json"},
		{command.ExitUsage, "exec shop -t -- sh", "--tty is set without --stdin, so nothing could be typed; add -i, or remove -t"},
		{command.ExitUsage, "port-forward shop", "there are 1 arguments; name one App or Dunlin, and a port such as 8080 or 15432:5432"},
		{command.ExitUsage, "top a b", "there are 2 arguments; name one App or Dunlin, or none"},
	})
	site.asIdentity("debugger")
	site.refuses([]refusal{
		{command.ExitFailed, "exec -n web none -- env", "there is no App and no Dunlin none in the namespace web"},
		{command.ExitFailed, "exec -n web shop -- env", "App web/shop has no running pod; `roost status -n web shop` shows why"},
	})
	site.forgePods(kubelet)
	site.addPod("shop-1")
	site.addPod("shop-2")
	site.runInPods()
	site.forwardPort()
	site.showUsage()
	// A reader has no shell.
	site.asIdentity("reader")
	site.refuses([]refusal{
		{command.ExitNotRun, "exec -n web shop -- echo a", "ask an administrator for the ClusterRole roost-debugger in that namespace"},
		{command.ExitFailed, "port-forward -n web shop 0:8080", "ask an administrator for the ClusterRole roost-debugger in that namespace"},
	})
	site.roost(command.ExitFine, "top", "-n", "web")
}

func (site *site) runInPods() {
	t := site.t
	t.Helper()
	out, stderr := site.roost(command.ExitFine, "exec", "-n", "web", "shop", "--", "echo", "$HOME", "a b")
	if out != "shop-1: $HOME|a b\n" || stderr != "" {
		t.Errorf("%q, %q", out, stderr)
	}
	out, _ = site.roost(command.ExitFine, "exec", "-n", "web", "shop", "--pod", "shop-2", "--", "echo")
	if out != "shop-2: \n" {
		t.Errorf("%q", out)
	}
	out, stderr = site.roost(3, "exec", "-n", "web", "shop", "--", "fail")
	if out != "" || stderr != "no such table\n" {
		t.Errorf("%q, %q", out, stderr)
	}
	site.refuses([]refusal{
		{command.ExitFailed, "exec -n web shop --pod shop-0 -- env", "App web/shop has no pod shop-0; it has shop-1, shop-2"},
		{command.ExitFailed, "exec -n web shop -it -- sh", "--tty is set, and standard input is no terminal; remove -t"},
	})
	site.input = "one\ntwo\n"
	out, _ = site.roost(command.ExitFine, "exec", "-n", "web", "shop", "-i", "--", "cat")
	site.input = ""
	if out != "one\ntwo\n" {
		t.Errorf("%q", out)
	}
	waiting := site.inBackgroundUntilInterrupted("exec", "-n", "web", "shop", "--", "wait")
	waiting.waitFor("waiting")
	if code := waiting.interrupt(); code != command.ExitInterrupted {
		t.Errorf("exit code %d: %s", code, waiting.text())
	}
	contains(t, waiting.text(), "interrupted; the program may still run in the pod shop-1")
}

func (site *site) forwardPort() {
	t := site.t
	t.Helper()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	site.refuses([]refusal{
		{command.ExitUsage, "port-forward -n web shop web", `the port "web" is neither a number nor a name in spec.ports; write 1 to 65535, or one of spec.ports: 8080`},
		{command.ExitUsage, "port-forward -n web shop 0", `the port "0" is neither a number nor a name in spec.ports`},
		{command.ExitUsage, "port-forward -n web shop 65536:80", `the port "65536" is not a port of this machine; write 0 to 65535, such as 15432:5432`},
		{command.ExitFailed, "port-forward -n web shop " + port + ":8080", "this machine cannot listen at port " + port + ": another program has it; write another port, such as 0:8080"},
	})
	running := site.inBackgroundUntilInterrupted("port-forward", "-n", "web", "shop", "0:http", "--pod", "shop-2", "-o", "json")
	running.waitFor("}\n")
	var line struct {
		Local, Port int
		Pod         string
	}
	if err := json.Unmarshal([]byte(running.text()), &line); err != nil || line.Pod != "shop-2" || line.Port != 8080 {
		t.Fatalf("%v: %s", err, running.text())
	}
	for _, text := range []string{"first\n", "second\n"} {
		if answer := askPort(t, line.Local, text); answer != "shop-2:8080 "+text {
			t.Errorf("%q", answer)
		}
	}
	if code := running.interrupt(); code != command.ExitFine {
		t.Errorf("exit code %d: %s", code, running.text())
	}
}

func askPort(t *testing.T, port int, line string) string {
	t.Helper()
	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Write([]byte(line)); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// metricsDefinition stands in for metrics-server, which serves the same objects.
const metricsDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pods.metrics.k8s.io
  annotations: { api-approved.kubernetes.io: "unapproved, for a test" }
spec:
  group: metrics.k8s.io
  scope: Namespaced
  names: { plural: pods, singular: pod, kind: PodMetrics, listKind: PodMetricsList }
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } }
`

const measurement = `
apiVersion: metrics.k8s.io/v1beta1
kind: PodMetrics
metadata: { name: shop-1, namespace: web }
containers: [{ name: app, usage: { cpu: 12345678n, memory: 20000Ki } }]
`

func (site *site) showUsage() {
	t := site.t
	t.Helper()
	site.refuses([]refusal{
		{command.ExitFailed, "top -n web shop", "has no metrics of pods (metrics.k8s.io); install metrics-server, which k3s has"},
		{command.ExitFailed, "top -n web none", "there is no App and no Dunlin none in the namespace web"},
	})
	site.createText(metricsDefinition)
	waitUntil(t, "the API server has the kind PodMetrics", func() bool { return site.tryText(measurement) })
	out, _ := site.roost(command.ExitFine, "top", "-n", "web")
	contains(t, out, "KIND  NAME  POD     CPU  OF     MEMORY  OF     RESTARTS\n", "App   shop  shop-1  13m  1000m  20Mi    256Mi  0\n", "App   shop  shop-2  -    1000m  -       256Mi  0\n")
	if strings.Contains(out, "shop-0") {
		t.Errorf("pods of others are listed: %s", out)
	}
	var usages []struct {
		Kind, Name, Pod                                      string
		CPUMillis, CPUMillisMax, MemoryBytes, MemoryBytesMax *int64
	}
	site.json(command.ExitFine, &usages, "top", "-n", "web", "shop")
	if len(usages) != 2 || *usages[0].CPUMillis != 13 || *usages[0].MemoryBytes != 20000<<10 || *usages[0].MemoryBytesMax != 256<<20 || usages[1].CPUMillis != nil {
		t.Errorf("%+v", usages)
	}
}

func (site *site) createText(text string) {
	site.t.Helper()
	if !site.tryText(text) {
		site.t.Fatalf("the API server does not have the kind of %s", text)
	}
}

// tryText creates an object, and returns false if the API server does not have its kind yet.
func (site *site) tryText(text string) bool {
	site.t.Helper()
	var object unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		site.t.Fatal(err)
	}
	err := site.admin.Create(site.t.Context(), &object)
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		site.t.Fatal(err)
	}
	return err == nil
}
