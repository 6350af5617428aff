package command_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/command"
	"github.com/dunlin-project/dunlin/platform/render"
)

// sharedBuffer is written by one goroutine and read by another.
type sharedBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (shared *sharedBuffer) Write(text []byte) (int, error) {
	shared.mutex.Lock()
	defer shared.mutex.Unlock()
	return shared.buffer.Write(text)
}

func (shared *sharedBuffer) text() string {
	shared.mutex.Lock()
	defer shared.mutex.Unlock()
	return shared.buffer.String()
}

// runJobs acts as the controller of Jobs and the kubelet for the Jobs of `roost run`. The first argument of the program controls the pod.
func (site *site) runJobs(kubelet *kubelet) {
	seen := map[string]bool{}
	site.forEach(&batchv1.JobList{}, func(_ context.Context, job client.Object) error {
		if !seen[job.GetName()] {
			seen[job.GetName()] = true
			site.startJob(site.admin, kubelet, job.(*batchv1.Job))
		}
		return nil
	}, client.MatchingLabels{render.LabelManagedBy: render.ManagedByRun})
}

func (site *site) startJob(admin client.Client, kubelet *kubelet, job *batchv1.Job) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "web", Name: job.Name + "-x", Labels: map[string]string{batchv1.JobNameLabel: job.Name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: new(true)}},
	}, Spec: job.Spec.Template.Spec}
	pod.Spec.NodeName = nodeName
	if err := admin.Create(context.Background(), pod); err != nil {
		site.t.Error(err)
		return
	}
	site.forgePod(admin, pod)
	what := job.Spec.Template.Spec.Containers[0].Command[1]
	if what == "no-image" {
		site.setPod(pod, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}})
		return
	}
	site.setPod(pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	kubelet.write(pod.Name, time.Now(), "begins")
	if what == "forever" {
		return
	}
	kubelet.write(pod.Name, time.Now(), "ends")
	kubelet.end(pod.Name)
	if what == "too-long" {
		waitUntil(site.t, "the log is read", func() bool { return kubelet.isRead(pod.Name) })
		site.exceedDeadline(admin, job, pod)
		return
	}
	code := int32(0)
	if what == "seven" {
		code = 7
	}
	site.setPod(pod, corev1.PodSucceeded, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}})
}

// forgePod adds a pod of somebody else with the labels of a Job. It is the first by its name, and has ended well.
func (site *site) forgePod(admin client.Client, of *corev1.Pod) {
	forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: "a-" + of.Name, Labels: of.Labels}, Spec: *of.Spec.DeepCopy()}
	if err := admin.Create(context.Background(), forged); err != nil {
		site.t.Error(err)
		return
	}
	site.setPod(forged, corev1.PodSucceeded, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0}})
}

// exceedDeadline does what the controller does at activeDeadlineSeconds.
func (site *site) exceedDeadline(admin client.Client, job *batchv1.Job, pod *corev1.Pod) {
	now := metav1.Now()
	job.Status.StartTime = &now
	job.Status.Conditions = []batchv1.JobCondition{{
		Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded, LastTransitionTime: now,
	}}
	if err := admin.Status().Update(context.Background(), job); err != nil {
		site.t.Error(err)
	}
	if err := admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
		site.t.Error(err)
	}
}

func (site *site) runOnce(kubelet *kubelet) {
	t := site.t
	t.Helper()
	_, stderr := site.roost(command.ExitFailed, "run", "-n", "web", "shop", "--", "shop-admin", "fine")
	contains(t, stderr, "forbidden", "ask an administrator for the ClusterRole roost-runner in that namespace")
	site.asIdentity("runner")
	site.runJobs(kubelet)
	for _, row := range []struct {
		what      string
		arguments []string
		code      int
		out, err  string
	}{
		{"fine", nil, command.ExitFine, "begins\nends\n", ": created from revision "},
		{"seven", nil, 7, "begins\nends\n", ""},
		{"no-image", []string{"--start-timeout", "1s"}, command.ExitNotRun, "", "timed out after 1s waiting for the pod to start: ErrImagePull: no such image; fix the cause, or set a longer --start-timeout"},
		{"too-long", nil, command.ExitNotRun, "begins\nends\n", "the program was terminated: the Job exceeded --timeout; set a longer one"},
	} {
		arguments := slices.Concat([]string{"run", "-n", "web", "shop"}, row.arguments, []string{"--", "shop-admin", row.what})
		out, stderr := site.roost(row.code, arguments...)
		if out != row.out {
			t.Errorf("%s: %q", row.what, out)
		}
		contains(t, stderr, row.err)
		site.noJobIsLeft()
	}
	if out, _ := site.roost(command.ExitFine, "logs", "-n", "web", "shop", "--jobs", "--tail", "1"); !strings.Contains(out, "shop-1 | ") {
		t.Errorf("a runner sees the logs %q", out)
	}
	out, _ := site.roost(7, "run", "-n", "web", "shop", "-o", "json", "--", "shop-admin", "seven")
	contains(t, out, `"text":"begins"`, `{"exitCode":7,"job":"shop-run-`)

	running := site.inBackgroundUntilInterrupted("run", "-n", "web", "shop", "--", "shop-admin", "forever")
	running.waitFor("begins\n")
	site.checkJob()
	if code := running.interrupt(); code != command.ExitInterrupted {
		t.Errorf("exit code %d: %s", code, running.text())
	}
	contains(t, running.text(), "interrupted; the Job is deleted")
	site.noJobIsLeft()
	site.refuseRuns()
	if state := site.states(command.ExitFine, "shop")[0]; state.Revision == "" {
		t.Errorf("%+v", state)
	}
	if strings.Contains(site.all.String(), canary) {
		t.Error("a secret was printed")
	}
}

func (site *site) oneOffJobs() []batchv1.Job {
	site.t.Helper()
	var jobs batchv1.JobList
	if err := site.admin.List(site.t.Context(), &jobs, client.InNamespace("web"), client.MatchingLabels{render.LabelManagedBy: render.ManagedByRun}); err != nil {
		site.t.Fatal(err)
	}
	return jobs.Items
}

func (site *site) noJobIsLeft() {
	site.t.Helper()
	if jobs := site.oneOffJobs(); len(jobs) > 0 {
		site.t.Errorf("%d Jobs are left", len(jobs))
	}
}

// checkJob compares the running Job with the app.
func (site *site) checkJob() {
	t := site.t
	t.Helper()
	jobs := site.oneOffJobs()
	if len(jobs) != 1 {
		t.Fatalf("%d Jobs", len(jobs))
	}
	job, container := jobs[0], jobs[0].Spec.Template.Spec.Containers[0]
	serving := site.serving()
	if container.Image != serving.Image || len(container.EnvFrom) == 0 || container.Ports != nil || container.ReadinessProbe != nil {
		t.Errorf("%+v", container)
	}
	if *job.Spec.ActiveDeadlineSeconds != 3600 || *job.Spec.BackoffLimit != 0 || *job.Spec.TTLSecondsAfterFinished != 600 {
		t.Errorf("%+v", job.Spec)
	}
	labels := job.Spec.Template.Labels
	if labels[render.LabelApp] != "shop" || labels[render.LabelPart] == "main" {
		t.Errorf("the NetworkPolicy is not for its pods, or the Service is: %v", labels)
	}
	var owner v1alpha1.App
	site.get("shop", &owner)
	if len(job.OwnerReferences) != 1 || job.OwnerReferences[0].UID != owner.UID {
		t.Errorf("%+v", job.OwnerReferences)
	}
}

func (site *site) refuseRuns() {
	site.t.Helper()
	dunlin := &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "realtime"}}
	dunlin.Spec.Image, dunlin.Spec.Keys.Secret = "dunlin:1", "keys"
	if err := site.admin.Create(site.t.Context(), dunlin); err != nil && !apierrors.IsAlreadyExists(err) {
		site.t.Fatal(err)
	}
	site.refuses([]refusal{
		{command.ExitUsage, "run shop", "write the name of one App, then --, then the program with its arguments"},
		{command.ExitUsage, "run shop ls", "write the name of one App, then --"},
		{command.ExitUsage, "run shop --timeout 25h -- ls", "--timeout is 25h0m0s; write 1s to 24h0m0s"},
		{command.ExitFailed, "run -n web none -- ls", "there is no App and no Dunlin none in the namespace web"},
		{command.ExitFailed, "run -n web realtime -- ls", "realtime is a Dunlin; `roost run` is for an App"},
	})
}
