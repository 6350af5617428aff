package render

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/backup"
)

// streamsView describes the NATS servers for backups of streams.
type streamsView struct {
	urls, prefix, image, class string
	replicas                   int32
	size                       resource.Quantity
	password                   corev1.EnvVar
	resources                  corev1.ResourceRequirements
	egress                     networkingv1.NetworkPolicyEgressRule
}

func (view *dunlinView) streams() *streamsView {
	var addresses []string
	for _, server := range view.natsNames() {
		addresses = append(addresses, fmt.Sprintf("nats://%s:%d", server, natsPort))
	}
	peer := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: view.selector(partNATS)}}
	return &streamsView{
		urls: strings.Join(addresses, ","), prefix: view.natsPrefix(), image: view.spec.NATS.Image, class: view.spec.NATS.StorageClass,
		replicas: min(view.natsServers(), 3), size: view.natsSize(), password: view.natsPassword(), resources: view.natsResources(),
		egress: networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{peer}, Ports: policyPorts([]int32{natsPort})},
	}
}

// flags returns the flags of a task. A drill has a server in its own pod.
func (streams *streamsView) flags(task string) []string {
	flags := []string{"--prefix=" + streams.prefix}
	switch task {
	case TaskVerify:
		return append(flags, fmt.Sprintf("--nats=nats://%s:%d", scratchHost, natsPort))
	case TaskRestore:
		flags = append(flags, fmt.Sprintf("--replicas=%d", streams.replicas))
	}
	return append(flags, "--nats="+streams.urls)
}

// streamsPod returns a pod with a volume for the streams and, in a drill, a NATS server without streams.
func (view *appView) streamsPod(task string, container corev1.Container) corev1.PodSpec {
	volumes := []corev1.Volume{
		{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &workSize}}},
		view.scratchOf("dump", view.streams.size, view.streams.class),
	}
	volumes = append(volumes, view.repositoryVolumes(&container)...)
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "dump", MountPath: backupFolder + "/" + dumpFolder})
	if task != TaskVerify {
		password := view.streams.password
		password.Name = backup.KeyNATSPassword
		container.Env = append(container.Env, password)
	}
	pod := podOf(view.user(), container, volumes)
	if task == TaskVerify {
		pod.InitContainers = []corev1.Container{view.scratchNATS()}
		pod.Volumes = append(pod.Volumes, view.scratchOf(scratchContainer, view.streams.size, view.streams.class))
	}
	view.finishTask(&pod, task)
	return pod
}

// scratchNATS is a server that ends with its pod, and that only this pod can reach.
func (view *appView) scratchNATS() corev1.Container {
	container := corev1.Container{
		Name: scratchContainer, Image: view.streams.image, Resources: view.streams.resources,
		Command:      []string{"nats-server", "--jetstream", "--store_dir=" + natsFolder, fmt.Sprintf("--port=%d", natsPort), fmt.Sprintf("--http_port=%d", natsMonitorPort)},
		VolumeMounts: []corev1.VolumeMount{{Name: scratchContainer, MountPath: natsFolder}},
	}
	setProbes(&container, httpProbe("/healthz?js-server-only=true", natsMonitorPort), 120, false)
	container.ReadinessProbe = nil
	container = podOf(view.user(), container, nil).Containers[0]
	always := corev1.ContainerRestartPolicyAlways
	container.RestartPolicy = &always
	return container
}
