package render

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dunlin-project/dunlin/platform/backup"
)

// finishStorage makes the image of the Dunlin finish a restore, because only its program creates a storage from a backup. The program of the
// image with restic runs first, and copies itself to the volume that both containers share.
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
		// The container needs neither the repository nor its keys.
		if mount.Name != "keys" && mount.Name != "repository" {
			finish.VolumeMounts = append(finish.VolumeMounts, mount)
		}
	}
	pod.InitContainers, pod.Containers = []corev1.Container{stage}, []corev1.Container{finish}
}
