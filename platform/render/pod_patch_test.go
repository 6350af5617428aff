package render_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// patchedPod returns the pod of an App with a patch.
func patchedPod(t *testing.T, patch *v1alpha1.PodPatch) corev1.PodSpec {
	t.Helper()
	if problems := render.PodPatchProblems(patch); len(problems) > 0 {
		t.Fatalf("%v", problems)
	}
	app := &v1alpha1.App{Spec: v1alpha1.AppSpec{Image: "shop:1", Health: v1alpha1.Health{ProcessHealth: v1alpha1.ProcessHealth{None: "test"}}, PodPatch: patch}}
	app.Namespace, app.Name = "web", "shop"
	objects, err := render.App(app, settings.Settings{}, render.Cluster{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if deployment, isDeployment := object.(*appsv1.Deployment); isDeployment {
			return deployment.Spec.Template.Spec
		}
	}
	t.Fatal("there is no Deployment")
	return corev1.PodSpec{}
}

func TestARelaxedPatchLowersTheSecurityOfPods(t *testing.T) {
	pod := patchedPod(t, &v1alpha1.PodPatch{Relaxed: true, Template: &runtime.RawExtension{Raw: []byte(`{
		"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/app": "unconfined"}},
		"spec": {"hostNetwork": true, "securityContext": {"runAsUser": 7},
		"containers": [{"name": "app", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}],
		"volumes": [{"name": "dev", "hostPath": {"path": "/dev/net"}}]}}`)}})
	capabilities := pod.Containers[0].SecurityContext.Capabilities
	if !pod.HostNetwork || *pod.SecurityContext.RunAsUser != 7 || len(capabilities.Add) != 1 || len(capabilities.Drop) != 1 || pod.Containers[0].Image != "shop:1" {
		t.Errorf("%+v", pod)
	}
	// What the patch does not name stays.
	if !*pod.SecurityContext.RunAsNonRoot || *pod.AutomountServiceAccountToken || pod.ServiceAccountName != "shop" || len(pod.Volumes) != 2 {
		t.Errorf("%+v", pod)
	}
}

func TestAddedContainersHaveLimits(t *testing.T) {
	pod := patchedPod(t, &v1alpha1.PodPatch{Template: &runtime.RawExtension{Raw: []byte(`{"spec": {"initContainers": [
		{"name": "a", "image": "a:1"},
		{"name": "b", "image": "b:1", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}},
		{"name": "c", "image": "c:1", "resources": {"limits": {"cpu": "50m", "memory": "32Mi"}}}]}}`)}})
	for index, wanted := range []string{"100m 256Mi 1 256Mi", "2 1Gi 2 1Gi", "50m 32Mi 50m 32Mi"} {
		resources := pod.InitContainers[index].Resources
		found := strings.Join([]string{
			resources.Requests.Cpu().String(), resources.Requests.Memory().String(), resources.Limits.Cpu().String(), resources.Limits.Memory().String(),
		}, " ")
		if found != wanted || pod.InitContainers[index].SecurityContext == nil {
			t.Errorf("%s, expected %s", found, wanted)
		}
	}
}

func TestAddedVolumesHaveABound(t *testing.T) {
	pod := patchedPod(t, &v1alpha1.PodPatch{Template: &runtime.RawExtension{Raw: []byte(`{"spec": {"volumes": [
		{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "c"}, {"name": "tmp", "emptyDir": null},
		{"name": "d", "emptyDir": {"sizeLimit": 0}}, {"name": "e", "emptyDir": {"sizeLimit": "0Gi"}}]}}`)}})
	wanted := map[string]string{"a": "64Mi", "b": "1Gi", "c": "64Mi", "tmp": "64Mi", "d": "64Mi", "e": "64Mi"}
	if len(pod.Volumes) != len(wanted) {
		t.Errorf("%+v", pod.Volumes)
	}
	for _, volume := range pod.Volumes {
		if volume.EmptyDir == nil || volume.EmptyDir.SizeLimit.String() != wanted[volume.Name] {
			t.Errorf("%+v", volume)
		}
	}
}

// TestKeysThatReachTheNetwork has keys that network plugins read, and others that only look like them.
func TestKeysThatReachTheNetwork(t *testing.T) {
	for row, sentence := range map[string]string{
		"annotations k8s.v1.cni.cncf.io/networks":            "changes the network of the pod",
		"annotations v1.multus-cni.io/default-network":       "changes the network of the pod",
		"annotations cni.projectcalico.org/ipAddrs":          "changes the network of the pod",
		"annotations kubernetes.io/egress-bandwidth":         "changes the network of the pod",
		"annotations policy.cilium.io/no-track-port":         "changes the network of the pod",
		"annotations ovn.kubernetes.io/ip_address":           "changes the network of the pod",
		"labels projectcalico.org/orchestrator":              "changes the network of the pod",
		"labels roost.dev/app":                               "belongs to Roost or Kubernetes",
		"labels apps.roost.dev/app":                          "belongs to Roost or Kubernetes",
		"labels lab.roost.dev/app":                           "belongs to Roost or Kubernetes",
		"annotations apps.roost.dev/app":                     "belongs to Roost or Kubernetes",
		"labels example.com/cilium.io":                       "",
		"labels not-cilium.io/app":                           "",
		"annotations example.com/networks":                   "",
		"annotations cluster-autoscaler.kubernetes.io/evict": "",
	} {
		field, key, _ := strings.Cut(row, " ")
		raw := []byte(`{"metadata": {"` + field + `": {"` + key + `": "a"}}}`)
		problems := render.PodPatchProblems(&v1alpha1.PodPatch{Template: &runtime.RawExtension{Raw: raw}})
		if sentence == "" && len(problems) > 0 || sentence != "" && (len(problems) != 1 || !strings.HasPrefix(problems[0].Message, sentence)) {
			t.Errorf("%s: %v", row, problems)
		}
		relaxed := render.PodPatchProblems(&v1alpha1.PodPatch{Relaxed: true, Template: &runtime.RawExtension{Raw: raw}})
		if (len(relaxed) > 0) != strings.HasPrefix(sentence, "belongs") {
			t.Errorf("%s, relaxed: %v", row, relaxed)
		}
	}
}

// TestTheSizeOfVolumesOfAPatch has a volume of the maximum, and one past it.
func TestTheSizeOfVolumesOfAPatch(t *testing.T) {
	for size, isRefused := range map[string]bool{"10Gi": false, "10737418241": true, "500Gi": true} {
		for _, isRelaxed := range []bool{false, true} {
			raw := []byte(`{"spec": {"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "` + size + `"}}]}}`)
			problems := render.PodPatchProblems(&v1alpha1.PodPatch{Relaxed: isRelaxed, Template: &runtime.RawExtension{Raw: raw}})
			if (len(problems) > 0) != (isRefused && !isRelaxed) {
				t.Errorf("%s, relaxed: %v: %v", size, isRelaxed, problems)
			}
		}
	}
}

func TestAPatchMayReplaceAProbe(t *testing.T) {
	problems := render.PodPatchProblems(&v1alpha1.PodPatch{Template: &runtime.RawExtension{Raw: []byte(
		`{"spec": {"containers": [{"name": "app", "livenessProbe": null, "readinessProbe": {"httpGet": null, "tcpSocket": {"port": 8080}}}]}}`)}})
	if len(problems) > 0 {
		t.Errorf("%v", problems)
	}
}

func TestTheSizeOfAPatch(t *testing.T) {
	text := `{"metadata": {"annotations": {"a": ""}}}`
	for size, isRefused := range map[int]bool{render.PatchBytesMax: false, render.PatchBytesMax + 1: true} {
		raw := strings.Replace(text, `""`, `"`+strings.Repeat("x", size-len(text))+`"`, 1)
		problems := render.PodPatchProblems(&v1alpha1.PodPatch{Template: &runtime.RawExtension{Raw: []byte(raw)}})
		if (len(problems) > 0) != isRefused || isRefused && problems[0].Message != "there are 65537 bytes, more than 65536; shorten it" {
			t.Errorf("%d bytes: %v", size, problems)
		}
	}
}

// FuzzPodPatch checks that no patch panics, and that none that is admitted changes what belongs to Roost.
func FuzzPodPatch(f *testing.F) {
	f.Add([]byte(`{"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "b", "image": "b:1"}]}}`))
	f.Add([]byte(`{"spec": {"containers": [{"name": "app", "$patch": "replace"}], "volumes": [{"name": "tmp", "emptyDir": null}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		patch := &v1alpha1.PodPatch{Template: &runtime.RawExtension{Raw: raw}}
		if len(render.PodPatchProblems(patch)) > 0 {
			return
		}
		app := &v1alpha1.App{Spec: v1alpha1.AppSpec{Image: "shop:1", PodPatch: patch}}
		app.Name = "shop"
		objects, err := render.App(app, settings.Settings{}, render.Cluster{})
		if err != nil {
			return
		}
		for _, template := range templates(objects) {
			pod := template.Spec
			if pod.ServiceAccountName != "shop" || *pod.AutomountServiceAccountToken || pod.HostNetwork || !*pod.SecurityContext.RunAsNonRoot {
				t.Fatalf("%+v", pod)
			}
			isApp := func(container corev1.Container) bool { return container.Name == "app" && container.Image == "shop:1" }
			if !slices.ContainsFunc(pod.Containers, isApp) {
				t.Fatalf("%+v", pod.Containers)
			}
			for _, container := range pod.Containers {
				if *container.SecurityContext.AllowPrivilegeEscalation || len(container.EnvFrom) > 0 {
					t.Fatalf("%+v", container)
				}
			}
		}
	})
}
