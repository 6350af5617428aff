package render

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// firstGeneration is the generation of the claims of the StatefulSet with the name of its app.
const firstGeneration = 1

func generationOf(status *v1alpha1.BackupStatus) int32 {
	if status == nil || status.VolumeGeneration == 0 {
		return firstGeneration
	}
	return status.VolumeGeneration
}

// NextVolumeGeneration returns the generation after that of the claims that an app uses.
func NextVolumeGeneration(status *v1alpha1.BackupStatus) int32 { return generationOf(status) + 1 }

// setName returns the name of the StatefulSet whose pods use the claims of a generation. Each generation has its own StatefulSet: the pod of a
// lost node keeps its name until the node is back or deleted, and Kubernetes starts no other pod under that name.
func setName(app string, generation int32) string {
	if generation <= firstGeneration {
		return app
	}
	return generationName(app, strconv.Itoa(int(generation)))
}

// WorkloadName returns the name of the StatefulSet of an app. For an app without volumes, it is the name of the app, and of its Deployment.
func WorkloadName(app string, status *v1alpha1.BackupStatus) string {
	return setName(app, generationOf(status))
}

// NodesName returns the name of the StatefulSet of a Dunlin's nodes. Only a Dunlin with storage has claims, and so generations of claims.
func NodesName(dunlin *v1alpha1.Dunlin) string {
	if dunlin.Spec.Storage == nil {
		return dunlin.Name
	}
	return WorkloadName(dunlin.Name, dunlin.Status.Backup)
}

// FirstPod returns the name of the pod whose volumes are saved.
func FirstPod(app string, status *v1alpha1.BackupStatus) string {
	return WorkloadName(app, status) + "-0"
}

// newClaims returns the claims that a restore after the loss of a node creates. They are never changed or deleted, and outlive the app.
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
