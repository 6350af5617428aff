package render

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// firstGeneration is that of the claims of the StatefulSet with the name of its app.
const firstGeneration = 1

func generationOf(status *v1alpha1.BackupStatus) int32 {
	if status == nil || status.VolumeGeneration == 0 {
		return firstGeneration
	}
	return status.VolumeGeneration
}

// NextVolumeGeneration is that of the claims after those that an app uses.
func NextVolumeGeneration(status *v1alpha1.BackupStatus) int32 { return generationOf(status) + 1 }

// setName is the StatefulSet whose pods use the claims of a generation. Each has one of its own: the pod of a node that is lost keeps its
// name until the node is back or deleted, and Kubernetes starts no other one under that name.
func setName(app string, generation int32) string {
	if generation <= firstGeneration {
		return app
	}
	return fmt.Sprintf("%s-gen%d", app, generation)
}

// WorkloadName is the StatefulSet of an app. A Deployment has the name of its app, which has no volumes then.
func WorkloadName(app string, status *v1alpha1.BackupStatus) string {
	return setName(app, generationOf(status))
}

// NodesName is the StatefulSet of a Dunlin's nodes. Only one with a storage has claims, and so generations of them.
func NodesName(dunlin *v1alpha1.Dunlin) string {
	if dunlin.Spec.Storage == nil {
		return dunlin.Name
	}
	return WorkloadName(dunlin.Name, dunlin.Status.Backup)
}

// FirstPod is the pod whose volumes are saved.
func FirstPod(app string, status *v1alpha1.BackupStatus) string {
	return WorkloadName(app, status) + "-0"
}

// newClaims are those that a restore after the loss of a node makes. They are never changed or deleted, and outlive the app.
func (view *appView) newClaims() []runtime.Object {
	var objects []runtime.Object
	for _, volume := range view.spec.Volumes {
		if volume.Size == nil {
			continue
		}
		claim := view.claim(view.claimName(string(volume.Name)), partMain, *volume.Size, volume.StorageClass)
		claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
		claim.Namespace, claim.Labels = view.namespace, view.labels(partMain)
		claim.Annotations = map[string]string{AnnotationOnce: "true"}
		objects = append(objects, &claim)
	}
	return objects
}
