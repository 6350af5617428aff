package command_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/command"
)

// asIdentity gives the user the rights of a new access identity.
func (site *site) asIdentity(role string) {
	site.t.Helper()
	site.asAdmin()
	out, _ := site.roost(command.ExitFine, "identity", "create", "a-"+role, "--role", role, "-n", "web")
	site.write(role+".kubeconfig", out)
	site.variables["KUBECONFIG"] = filepath.Join(site.folder, role+".kubeconfig")
	// The server's authorizer sees a new RoleBinding through a watch.
	caller := newCaller(site.t, site.connection(out))
	waitUntil(site.t, "the role is known", func() bool {
		return isGranted(site.t, caller, attributesOf("apps.roost.dev", "v1alpha1", "apps", "get", "web"))
	})
}

// addPod adds a pod of the app's Deployment to the node.
func (site *site) addPod(name string) *corev1.Pod {
	site.t.Helper()
	return site.addPodOf("shop", name)
}

// addPodOf adds a pod of a Deployment.
func (site *site) addPodOf(workload, name string) *corev1.Pod {
	site.t.Helper()
	var deployment appsv1.Deployment
	site.get(workload, &deployment)
	replicas := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: workload + "-5d4f", Labels: deployment.Spec.Template.Labels}}
	replicas.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	replicas.Spec.Selector, replicas.Spec.Template = deployment.Spec.Selector, deployment.Spec.Template
	if err := site.admin.Create(site.t.Context(), replicas); apierrors.IsAlreadyExists(err) {
		site.get(replicas.Name, replicas)
	} else if err != nil {
		site.t.Fatal(err)
	}
	return site.addPodFrom(&deployment.Spec.Template, name, metav1.NewControllerRef(replicas, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")))
}

// addPodOwnedBy adds a pod with the labels and the containers of the app's pods.
func (site *site) addPodOwnedBy(name string, owner *metav1.OwnerReference) *corev1.Pod {
	site.t.Helper()
	var deployment appsv1.Deployment
	site.get("shop", &deployment)
	return site.addPodFrom(&deployment.Spec.Template, name, owner)
}

func (site *site) addPodFrom(template *corev1.PodTemplateSpec, name string, owner *metav1.OwnerReference) *corev1.Pod {
	site.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: template.Labels}, Spec: template.Spec}
	if owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	pod.Spec.NodeName = nodeName
	if err := site.admin.Create(site.t.Context(), pod); err != nil {
		site.t.Fatal(err)
	}
	site.setPod(pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
	return pod
}

// forgePods adds pods with the labels of the app that others have made: one without an owner, and one that names a foreign ReplicaSet.
func (site *site) forgePods(kubelet *kubelet) {
	site.t.Helper()
	forged := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "shop-5d4f", UID: "uid-of-another", Controller: new(true)}
	for name, owner := range map[string]*metav1.OwnerReference{"shop-0": nil, "shop-00": &forged} {
		site.addPodOwnedBy(name, owner)
		kubelet.write(name, time.Now(), "forged")
	}
}

func (site *site) setPod(pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) {
	site.t.Helper()
	pod.Status.Phase = phase
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: state, Image: pod.Spec.Containers[0].Image}}
	if state.Running != nil {
		// The kubelet keeps this log of a container that was restarted.
		pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, ContainerID: "x://1"}
	}
	if err := site.admin.Status().Update(site.t.Context(), pod); err != nil {
		site.t.Fatal(err)
	}
}

// deployed is a site with the app `shop`, an operator, and a kubelet that serves logs.
func deployed(t *testing.T) (*site, *kubelet) {
	t.Helper()
	site := newSite(t)
	kubelet := site.newKubelet()
	site.runOperator()
	site.runControllers()
	site.roost(command.ExitFine, "deploy", "@apps/shop.yaml")
	return site, kubelet
}

// TestLogsAndRuns starts one server for both.
func TestLogsAndRuns(t *testing.T) {
	t.Parallel()
	site, kubelet := deployed(t)
	site.showLogs(kubelet)
	site.runOnce(kubelet)
}

func (site *site) showLogs(kubelet *kubelet) {
	t := site.t
	t.Helper()
	_, stderr := site.roost(command.ExitFailed, "logs", "-n", "web", "shop")
	contains(t, stderr, "ask an administrator for the ClusterRole roost-reader in that namespace")
	site.asIdentity("reader")
	_, stderr = site.roost(command.ExitFailed, "logs", "-n", "web", "shop")
	contains(t, stderr, "App web/shop has no pod; `roost status -n web shop` shows why")

	begin := time.Now().Add(-time.Hour)
	site.forgePods(kubelet)
	_, stderr = site.roost(command.ExitFailed, "logs", "-n", "web", "shop", "--jobs")
	contains(t, stderr, "App web/shop has no pod; `roost status -n web shop` shows why")
	site.addPod("shop-1")
	for index, text := range []string{"GET /", "GET /cart", "<b> \"quoted\""} {
		kubelet.write("shop-1", begin.Add(time.Duration(2*index)*time.Second), text)
	}
	kubelet.write("shop-1/previous", begin.Add(-time.Minute), "panic: no database")
	out, _ := site.roost(command.ExitFine, "logs", "-n", "web", "shop")
	if out != "GET /\nGET /cart\n<b> \"quoted\"\n" {
		t.Errorf("%q", out)
	}
	site.addPod("shop-2")
	kubelet.write("shop-2", begin.Add(time.Second), "GET /two")
	kubelet.write("shop-2", time.Now(), "GET /now")
	site.logsOfTwoPods(begin)
	site.refuseLogs()
	site.followLogs(kubelet)
	site.completeNames()
}

func (site *site) logsOfTwoPods(begin time.Time) {
	t := site.t
	t.Helper()
	for _, row := range []struct{ arguments, out string }{
		{"", "shop-1 | GET /\nshop-2 | GET /two\nshop-1 | GET /cart\nshop-1 | <b> \"quoted\"\nshop-2 | GET /now\n"},
		{"--tail 1", "shop-1 | <b> \"quoted\"\nshop-2 | GET /now\n"},
		{"--since 10m", "shop-2 | GET /now\n"},
		{"--pod shop-2 --tail 1", "GET /now\n"},
		{"--pod shop-1 --previous", "panic: no database\n"},
		{"--pod shop-1 --timestamps --tail 1", begin.Add(4*time.Second).UTC().Format(time.RFC3339Nano) + " <b> \"quoted\"\n"},
	} {
		out, _ := site.roost(command.ExitFine, append([]string{"logs", "-n", "web", "shop"}, strings.Fields(row.arguments)...)...)
		if out != row.out {
			t.Errorf("logs %s: %q\nexpected %q", row.arguments, out, row.out)
		}
	}
	out, _ := site.roost(command.ExitFine, "logs", "-n", "web", "shop", "-o", "json")
	decoder, count := json.NewDecoder(strings.NewReader(out)), 0
	for decoder.More() {
		var line struct {
			Pod, Text string
			Time      time.Time
		}
		if err := decoder.Decode(&line); err != nil || line.Text == "" || line.Time.Before(begin.Add(-time.Second)) {
			t.Errorf("%v, %+v", err, line)
		}
		count++
	}
	if count != 5 || !strings.Contains(out, `"text":"<b> \"quoted\""`) {
		t.Errorf("%d lines: %s", count, out)
	}
}

func (site *site) refuseLogs() {
	site.refuses([]refusal{
		{command.ExitFailed, "logs -n web none", "there is no App and no Dunlin none in the namespace web"},
		{command.ExitFailed, "logs -n web shop --pod shop-3", "App web/shop has no pod shop-3; it has shop-1, shop-2"},
		{command.ExitUsage, "logs shop -f --previous", "--previous and --follow exclude each other"},
		{command.ExitUsage, "logs shop --since -1m", "--since is -1m0s; write a duration such as 10m"},
		{command.ExitUsage, "logs", "there are 0 arguments; name one App or Dunlin"},
	})
}

// refusal is a command line that fails, with what it prints.
type refusal struct {
	code                int
	arguments, sentence string
}

func (site *site) refuses(rows []refusal) {
	site.t.Helper()
	for _, row := range rows {
		_, stderr := site.roost(row.code, strings.Fields(row.arguments)...)
		contains(site.t, stderr, row.sentence)
	}
}

// followLogs interrupts the command when it has printed a line that was written later, and a line of a pod that started later.
func (site *site) followLogs(kubelet *kubelet) {
	t := site.t
	t.Helper()
	running := site.inBackgroundUntilInterrupted("logs", "-n", "web", "shop", "--follow", "--tail", "1")
	running.waitFor("shop-2 | GET /now\n")
	kubelet.write("shop-2", time.Now(), "GET /later")
	running.waitFor("shop-2 | GET /later\n")
	kubelet.write("shop-3", time.Now(), "a new pod")
	site.addPod("shop-3")
	running.waitFor("shop-3 | a new pod\n")
	if code := running.interrupt(); code != command.ExitFine {
		t.Errorf("exit code %d: %s", code, running.text())
	}
	contains(t, running.text(), "shop-1 | <b> \"quoted\"\n", "shop-3: new pod; its log follows\n")
	if strings.Contains(running.text(), "GET /cart") || strings.Contains(running.text(), "forged") {
		t.Errorf("--tail 1, or a pod of others, has shown more: %s", running.text())
	}
}

// completeNames requests completions as a shell does.
func (site *site) completeNames() {
	site.t.Helper()
	for _, row := range []struct{ arguments, completion string }{
		{"logs -n web sh", "shop\tApp\n:4\n"},
		{"run -n web s", "shop\tApp\n:4\n"},
		{"status -n web x", ":4\n"},
		{"rollback -n other s", ":4\n"},
		{"logs -o j", "text\njson\n:4\n"},
		{"identity create x --role r", "deployer\nreader\nrunner\ndebugger\noperator\n:4\n"},
	} {
		out, _ := site.roost(command.ExitFine, append([]string{"__complete"}, strings.Fields(row.arguments)...)...)
		if out != row.completion {
			site.t.Errorf("%s: %q, expected %q", row.arguments, out, row.completion)
		}
	}
}

// backgroundCommand is a command that the user interrupts.
type backgroundCommand struct {
	site      *site
	out       *sharedBuffer
	cancel    context.CancelFunc
	ended     chan int
	arguments []string
}

func (site *site) inBackgroundUntilInterrupted(arguments ...string) *backgroundCommand {
	site.t.Helper()
	ctx, cancel := context.WithCancel(site.t.Context())
	running := &backgroundCommand{site: site, out: &sharedBuffer{}, cancel: cancel, ended: make(chan int, 1), arguments: arguments}
	variables := site.variables
	go func() {
		running.ended <- command.Run(arguments, command.Surroundings{
			In: strings.NewReader(""), Out: running.out, Err: running.out,
			Variable:      func(name string) string { return variables[name] },
			Interruptible: func() (context.Context, context.CancelFunc) { return ctx, cancel },
		})
	}()
	site.t.Cleanup(cancel)
	return running
}

func (running *backgroundCommand) text() string { return running.out.text() }

func (running *backgroundCommand) waitFor(text string) {
	running.site.t.Helper()
	waitUntil(running.site.t, strings.Join(running.arguments, " ")+" prints "+text, func() bool {
		return strings.Contains(running.text(), text)
	})
}

// interrupt interrupts the command, and returns its exit code.
func (running *backgroundCommand) interrupt() int {
	running.cancel()
	return running.wait()
}

func (running *backgroundCommand) wait() int {
	running.site.t.Helper()
	select {
	case code := <-running.ended:
		running.site.all.WriteString(running.text())
		return code
	case <-time.After(noticedWithin):
		running.site.t.Fatalf("%v does not end: %s", running.arguments, running.text())
		return 0
	}
}
