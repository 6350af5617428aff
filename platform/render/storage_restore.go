package render

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dunlin-project/dunlin/platform/backup"
)

// finishStorage has the image of the Dunlin end a restore: only its program makes a storage of a backup. The program of the image with restic
// runs before, and leaves itself in the volume that both share.
func (view *appView) finishStorage(pod *corev1.PodSpec) {
	stage := pod.Containers[0]
	stage.Name = "stage"
	scope := view.namespace + "/" + view.name
	finish := stage
	finish.Name, finish.Image, finish.Resources = backupContainer, view.spec.Image, resourcesOf(view.spec.Resources)
	finish.Command = []string{
		backupFolder + "/" + backup.ProgramFile, "finish-storage", "--host=" + scope, "--report=/dev/termination-log", "--folder=volumes/" + storageVolume,
	}
	finish.VolumeMounts = nil
	for _, mount := range stage.VolumeMounts {
		// It needs neither the repository nor its keys.
		if mount.Name != "keys" && mount.Name != "repository" {
			finish.VolumeMounts = append(finish.VolumeMounts, mount)
		}
	}
	pod.InitContainers, pod.Containers = []corev1.Container{stage}, []corev1.Container{finish}
}
