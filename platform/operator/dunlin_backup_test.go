package operator_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// The backups of a Dunlin are saved, with the keys of a repository that the node does not get.
func TestABackupOfADunlin(t *testing.T) {
	world := newWorld(t, "dunlin-backups")
	dunlin := &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Name: "realtime", Namespace: world.namespace}}
	dunlin.Spec = v1alpha1.DunlinSpec{
		Image: "dunlin:1", Keys: v1alpha1.Keys{File: "keys.env"}, Storage: &v1alpha1.Storage{Size: resource.MustParse("1Gi")},
		Backup: &v1alpha1.Backup{Schedule: "15 3 * * *", Repository: &v1alpha1.Repository{Claim: "backups", File: "backup.env"}},
	}
	files, err := render.Files(world.namespace, "realtime", map[string]string{
		"keys.env":   world.sealed("api_key=0123456789abcdef0123456789abcdef\ntoken_hmac_secret_key=0123456789abcdef0123456789abcdef\n", world.identity),
		"backup.env": world.sealed("RESTIC_PASSWORD=s3cret-of-the-repository\n", world.identity),
	})
	if err != nil {
		t.Fatal(err)
	}
	world.create(files)
	dunlin.Annotations = map[string]string{render.AnnotationFiles: files.GetName()}
	world.create(dunlin)
	world.converge(operator.KindDunlin, "realtime")
	if text, message := world.status(dunlin); !strings.Contains(text, "BackupFresh=False BackupNever") || !strings.Contains(text, "Degraded=False") {
		t.Errorf("%s: %s", text, message)
	}
	world.aBackupWithoutAnImage(dunlin)
	var save, drill batchv1.CronJob
	if err := world.get("realtime-backup", &save); err != nil {
		t.Fatal(err)
	}
	if err := world.get("realtime-drill", &drill); err != nil {
		t.Fatal(err)
	}
	pod := save.Spec.JobTemplate.Spec.Template.Spec
	if !slices.Contains(pod.Containers[0].Command, "--folder=volumes/storage/backups") || !slices.Contains(pod.Containers[0].Command, "--storage-backups") || !slices.Contains(pod.Containers[0].Command, "--owner="+string(dunlin.UID)) {
		t.Errorf("%q", pod.Containers[0].Command)
	}
	claims := map[string]bool{}
	for _, volume := range pod.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil {
			claims[claim.ClaimName] = claim.ReadOnly
		}
	}
	if isReadOnly, isThere := claims["storage-realtime-0"]; !isReadOnly || !isThere || len(claims) != 2 {
		t.Errorf("%v", claims)
	}
	for _, secret := range world.list("Secret", "realtime") {
		_, hasPassword := secret.Object["data"].(map[string]any)["RESTIC_PASSWORD"]
		if hasPassword != strings.HasPrefix(secret.GetName(), "realtime-repository-") {
			t.Errorf("%s: %t", secret.GetName(), hasPassword)
		}
	}
	// `roost drill` asks for this.
	if err := world.get("realtime", dunlin); err != nil {
		t.Fatal(err)
	}
	dunlin.Annotations[render.AnnotationOperation] = `{"id":"a","kind":"verify"}`
	world.update(dunlin)
	world.converge(operator.KindDunlin, "realtime")
	if err := world.get("realtime", dunlin); err != nil {
		t.Fatal(err)
	}
	if ended := dunlin.Status.Backup.Operation; ended == nil || ended.ID != "a" || ended.Phase != v1alpha1.OperationSucceeded {
		t.Errorf("%+v", ended)
	}
	// `roost restore` asks for this. The node is there again after it.
	dunlin.Annotations[render.AnnotationOperation] = `{"id":"b","kind":"restore","snapshot":"latest","replace":true}`
	world.update(dunlin)
	world.converge(operator.KindDunlin, "realtime")
	if err := world.get("realtime", dunlin); err != nil {
		t.Fatal(err)
	}
	if ended := dunlin.Status.Backup.Operation; ended == nil || ended.ID != "b" || ended.Phase != v1alpha1.OperationSucceeded || dunlin.Status.Backup.RestoreUnfinished {
		t.Errorf("%+v", ended)
	}
	var set appsv1.StatefulSet
	if err := world.get("realtime", &set); err != nil || *set.Spec.Replicas != 1 {
		t.Errorf("%v, %+v", err, set.Spec.Replicas)
	}
}

// aBackupWithoutAnImage creates a backup pod with the status that the kubelet writes if it cannot pull the image.
func (world *world) aBackupWithoutAnImage(dunlin *v1alpha1.Dunlin) {
	world.t.Helper()
	if message := backupMessage(dunlin); !strings.Contains(message, "The operator has no --backup-image") {
		world.t.Errorf("%s", message)
	}
	var save batchv1.CronJob
	if err := world.get("realtime-backup", &save); err != nil {
		world.t.Fatal(err)
	}
	template := save.Spec.JobTemplate.Spec.Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "realtime-backup-1", Namespace: world.namespace, Labels: template.Labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "realtime-backup-1", UID: "uid-of-job", Controller: new(true)}},
	}, Spec: template.Spec}
	world.create(pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: template.Spec.Containers[0].Name, Image: "example.com/none:1",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "back-off"}},
	}}
	if err := world.admin.Status().Update(world.t.Context(), pod); err != nil {
		world.t.Fatal(err)
	}
	world.converge(operator.KindDunlin, "realtime")
	text, _ := world.status(dunlin)
	const want = "the pod realtime-backup-1 cannot pull the image example.com/none:1 (ImagePullBackOff); set --backup-image of the operator to an image that the nodes can pull"
	if message := backupMessage(dunlin); !strings.Contains(text, "BackupFresh=False BackupNotStarting") || message != want {
		world.t.Errorf("%s: %s", text, message)
	}
	if err := world.admin.Delete(world.t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		world.t.Fatal(err)
	}
	world.converge(operator.KindDunlin, "realtime")
}

func backupMessage(dunlin *v1alpha1.Dunlin) string {
	condition := meta.FindStatusCondition(dunlin.Status.Conditions, reconcile.ConditionBackupFresh)
	if condition == nil {
		return ""
	}
	return condition.Message
}
