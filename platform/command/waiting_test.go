package command_test

import (
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/command"
)

// deployWithoutPods waits until the timeout, because no controller creates the new pods.
func (site *site) deployWithoutPods(stopControllers func()) {
	site.t.Helper()
	stopControllers()
	site.change("4.0.0", "info", canary+"-four")
	out, stderr := site.roost(command.ExitFound, "deploy", "--wait", "3s", "@apps/shop.yaml")
	contains(site.t, out, "App web/shop: ")
	contains(site.t, stderr, "does not serve")
	site.roost(command.ExitFine, "deploy", "--wait", "0", "@apps/shop.yaml")
	site.deployWithAFailingPod()
	site.roost(command.ExitFine, "deploy", "@apps/shop.yaml")
}

// deployWithAFailingPod ends only because `roost deploy` prints the last log lines of the pod while it waits: the test then fixes the pod.
func (site *site) deployWithAFailingPod() {
	site.t.Helper()
	running := site.inBackgroundUntilInterrupted("deploy", "--wait", "10m", filepath.Join(site.folder, "apps/shop.yaml"))
	running.waitFor("App web/shop: RollingOut: ")
	site.withASlowPod(func() { running.waitFor("App web/shop: PodNotReady: shop-slow runs and has not been ready since ") })
	pod := site.addPod("shop-crash")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "panic: no database\n"}},
	}}
	if err := site.admin.Status().Update(site.t.Context(), pod); err != nil {
		site.t.Fatal(err)
	}
	running.waitFor("App web/shop: PodFailing: shop-crash: CrashLoopBackOff: exit code 1: panic: no database")
	if err := site.admin.Delete(site.t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		site.t.Fatal(err)
	}
	site.runControllers()
	if code := running.wait(); code != command.ExitFine {
		site.t.Errorf("exit code %d: %s", code, running.text())
	}
}

// withASlowPod has a pod that runs and is not ready. `roost deploy` reports the pod, and continues to wait.
func (site *site) withASlowPod(then func()) {
	site.t.Helper()
	pod := site.addPod("shop-slow")
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodRunning, nil
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
	}}
	if err := site.admin.Status().Update(site.t.Context(), pod); err != nil {
		site.t.Fatal(err)
	}
	then()
	if err := site.admin.Delete(site.t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		site.t.Fatal(err)
	}
}
