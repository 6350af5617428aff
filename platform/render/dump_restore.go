package render

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/backup"
)

const (
	// scratchContainer is the copy of the app into which a drill loads a dump.
	scratchContainer = "scratch"
	scratchHost      = "127.0.0.1"
)

// loadsDump reports whether a task ends with spec.backup.restoreCommand.
func (view *appView) loadsDump(task string) bool {
	return task != TaskSave && view.spec.Backup != nil && len(view.spec.Backup.RestoreCommand) > 0
}

// isLoadUnfinished reports whether the app may have only a part of a dump.
func (view *appView) isLoadUnfinished() bool {
	return view.loadsDump(TaskRestore) && view.backup != nil && view.backup.LoadUnfinished
}

// loadDump makes the image of the app finish a restore or a drill of a dump, because only a program of the app reads the dump. The program of
// the image with restic runs first, and copies itself to the volume that both containers share.
func (view *appView) loadDump(pod *corev1.PodSpec, task string) {
	stage := pod.Containers[0]
	stage.Name = "stage"
	scope := view.namespace + "/" + view.name
	load := podOf(view.user(), view.container(), nil).Containers[0]
	load.Name = backupContainer
	load.Command = append([]string{
		backupFolder + "/" + backup.ProgramFile, "load-dump", "--host=" + scope, "--report=/dev/termination-log", "--",
	}, words(view.spec.Backup.RestoreCommand)...)
	load.Env = append(load.Env, corev1.EnvVar{Name: backup.HostVariable, Value: view.name})
	// The container needs neither the repository nor its keys.
	load.VolumeMounts = []corev1.VolumeMount{
		{Name: "work", MountPath: backupFolder}, {Name: "dump", MountPath: backupFolder + "/" + dumpFolder}, {Name: tmpVolume, MountPath: "/tmp"},
	}
	load.VolumeMounts = append(load.VolumeMounts, view.fileMounts()...)
	pod.Volumes = append(pod.Volumes, view.fileVolumes()...)
	pod.InitContainers = []corev1.Container{stage}
	if task == TaskVerify {
		load.Env[len(load.Env)-1].Value = scratchHost
		view.addScratch(pod)
	}
	pod.Containers = []corev1.Container{load}
}

// addScratch starts the app with empty volumes in the pod of a drill, and waits until its health check succeeds. The copy ends with the pod.
func (view *appView) addScratch(pod *corev1.PodSpec) {
	container := view.container()
	container.Name = scratchContainer
	container.Command, container.Args = words(view.spec.Command), words(view.spec.Args)
	view.setHealth(&container)
	container.ReadinessProbe, container.LivenessProbe = nil, nil
	container = podOf(view.user(), container, nil).Containers[0]
	always := corev1.ContainerRestartPolicyAlways
	container.RestartPolicy = &always
	pod.InitContainers = append(pod.InitContainers, container)
	// A volume of the app may have the same name as a volume of the backup.
	const prefix = scratchContainer + "-"
	for index := range view.spec.Volumes {
		pod.InitContainers[len(pod.InitContainers)-1].VolumeMounts[index].Name = prefix + string(view.spec.Volumes[index].Name)
	}
	for _, volume := range view.spec.Volumes {
		if volume.Size != nil {
			pod.Volumes = append(pod.Volumes, view.scratchOf(prefix+string(volume.Name), *volume.Size, volume.StorageClass))
		}
	}
	for _, volume := range view.temporaryVolumes() {
		volume.Name = prefix + volume.Name
		pod.Volumes = append(pod.Volumes, volume)
	}
}

// appPods selects the pods to which the network policy of the app applies. The pod of a drill that loads a dump is excluded. It can reach only
// the store, so it cannot load the dump into the app, whatever its command does.
func (view *appView) appPods() metav1.LabelSelector {
	selector := metav1.LabelSelector{MatchLabels: map[string]string{LabelApp: view.name}}
	if view.loadsDump(TaskVerify) {
		selector.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: LabelTask, Operator: metav1.LabelSelectorOpNotIn, Values: []string{TaskVerify}},
		}
	}
	return selector
}

// appPolicy returns the network policy of all pods of the app.
func (view *appView) appPolicy(ingress []networkingv1.NetworkPolicyIngressRule, egress []networkingv1.NetworkPolicyEgressRule) *networkingv1.NetworkPolicy {
	policy := view.policy(view.name, partMain, nil, ingress, egress)
	policy.Spec.PodSelector = view.appPods()
	return policy
}
