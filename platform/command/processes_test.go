package command_test

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/command"
)

// TestProcesses selects the pods of one process of an App that has several.
func TestProcesses(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	kubelet := site.newKubelet()
	site.runOperator()
	site.runControllers()
	site.write("apps/shop.yaml", app+"  processes:\n  - { name: worker, command: [shop, worker], replicas: 2, resources: { memory: 512Mi }, health: { none: it has no state } }\n")
	site.roost(command.ExitFine, "deploy", "@apps/shop.yaml")
	out, _ := site.roost(command.ExitFine, "status", "-n", "web", "shop")
	contains(t, out, "process web               1 of 1 pods ready; 1 of the newest revision\n", "process worker            2 of 2 pods ready; 2 of the newest revision\n")

	site.asIdentity("debugger")
	for pod, workload := range map[string]string{"shop-1": "shop", "worker-1": "shop-process-worker"} {
		site.addPodOf(workload, pod)
		kubelet.write(pod, time.Now(), "log of "+pod)
		kubelet.end(pod)
	}
	for process, pod := range map[string]string{"web": "shop-1", "worker": "worker-1"} {
		out, _ := site.roost(command.ExitFine, "logs", "-n", "web", "shop", "--process", process)
		if out != "log of "+pod+"\n" {
			t.Errorf("%s: %q", process, out)
		}
		out, _ = site.roost(command.ExitFine, "exec", "-n", "web", "shop", "--process", process, "--", "echo")
		if out != pod+": \n" {
			t.Errorf("%s: %q", process, out)
		}
	}
	// Without --process, a pod of the app's own process is taken, and all logs are shown.
	out, _ = site.roost(command.ExitFine, "exec", "-n", "web", "shop", "--", "echo")
	if out != "shop-1: \n" {
		t.Errorf("%q", out)
	}
	out, _ = site.roost(command.ExitFine, "logs", "-n", "web", "shop")
	contains(t, out, "shop-1 | log of shop-1\n", "worker-1 | log of worker-1\n")
	site.createText(metricsDefinition)
	waitUntil(t, "the API server has the kind PodMetrics", func() bool { return site.tryText(measurement) })
	out, _ = site.roost(command.ExitFine, "top", "-n", "web", "shop", "--process", "worker")
	contains(t, out, "worker-1  -    1000m  -       512Mi  0\n")
	if strings.Contains(out, "shop-1") {
		t.Errorf("pods of another process are listed: %s", out)
	}
	site.refuses([]refusal{
		{command.ExitFailed, "logs -n web shop --process mailer", "App web/shop has no process mailer; it has web, worker"},
		{command.ExitFailed, "exec -n web shop --process mailer -- env", "App web/shop has no process mailer; it has web, worker"},
		{command.ExitUsage, "logs -n web shop --process worker --jobs", "--process and --jobs are mutually exclusive"},
		{command.ExitFailed, "logs -n web shop --process worker --pod shop-1", "App web/shop has no pod shop-1; it has worker-1"},
	})
	site.runOfProcess()
}

// runOfProcess creates a Job with the resources of a process, and interrupts it.
func (site *site) runOfProcess() {
	t := site.t
	t.Helper()
	site.asIdentity("runner")
	site.refuses([]refusal{{command.ExitFailed, "run -n web shop --process mailer -- reindex", "App web/shop has no process mailer; it has web, worker"}})
	running := site.inBackgroundUntilInterrupted("run", "-n", "web", "shop", "--process", "worker", "--", "reindex")
	running.waitFor("created from revision")
	var jobs batchv1.JobList
	if err := site.admin.List(t.Context(), &jobs, client.InNamespace("web")); err != nil {
		t.Fatal(err)
	}
	if len(jobs.Items) != 1 || jobs.Items[0].Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String() != "512Mi" {
		t.Errorf("%+v", jobs.Items)
	}
	if code := running.interrupt(); code != command.ExitInterrupted {
		t.Errorf("exit code %d: %s", code, running.text())
	}
}
