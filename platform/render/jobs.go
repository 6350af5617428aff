package render

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

const (
	migrationSeconds = 600
	taskSeconds      = 3600
)

func (view *appView) jobs() []runtime.Object {
	var objects []runtime.Object
	if migrate := view.spec.Migrate; migrate != nil {
		// The name contains the revision, so a revision migrates once, and a retry uses the same Job.
		meta := view.meta(view.name+"-migrate-"+view.revision, partMigrate)
		meta.Annotations = map[string]string{AnnotationPhase: PhaseBeforeRollout, AnnotationOnce: "true"}
		spec := view.jobSpec(partMigrate, migrate.Command, migrate.TimeoutSeconds, migrationSeconds)
		objects = append(objects, jobOf(meta, spec))
	}
	for _, run := range view.spec.Runs {
		meta := view.meta(view.name+"-run-"+string(run.Name), partRun)
		meta.Annotations = map[string]string{AnnotationOnce: "true"}
		objects = append(objects, jobOf(meta, view.jobSpec(partRun, run.Command, run.TimeoutSeconds, taskSeconds)))
	}
	for _, task := range view.spec.Cron {
		meta := view.meta(view.name+"-cron-"+string(task.Name), partCron)
		spec := view.jobSpec(partCron, task.Command, task.TimeoutSeconds, taskSeconds)
		objects = append(objects, cronOf(meta, task.Schedule, task.TimeZone, spec))
	}
	if backup := view.spec.Backup; backup != nil && backup.Repository != nil {
		objects = append(objects, view.backups()...)
	} else if backup != nil {
		spec := view.jobSpec(partBackup, backup.Command, backup.TimeoutSeconds, taskSeconds)
		view.mountClaims(&spec.Template.Spec)
		objects = append(objects, cronOf(view.meta(BackupName(view.name), partBackup), backup.Schedule, "", spec))
	}
	return objects
}

// jobSpec runs a command with the app's image, settings, files and temporary volumes.
func (view *appView) jobSpec(part string, command v1alpha1.Command, timeout *v1alpha1.Seconds, defaultSeconds int64) batchv1.JobSpec {
	deadline := defaultSeconds
	if timeout != nil {
		deadline = int64(*timeout)
	}
	container := view.container()
	container.Command = words(command)
	container.VolumeMounts = nil
	for _, volume := range view.spec.Volumes {
		if volume.Temporary != nil {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: string(volume.Name), MountPath: volume.Path})
		}
	}
	container.VolumeMounts = append(container.VolumeMounts, view.fileMounts()...)
	pod := podOf(view.user(), container, append(view.temporaryVolumes(), view.fileVolumes()...))
	pod.ServiceAccountName = view.name
	pod.ImagePullSecrets = pullSecrets(view.spec.PullSecret)
	pod.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{
		// There is no TTL: a deleted Job would be created, and run, again.
		BackoffLimit:          new(int32(2)),
		ActiveDeadlineSeconds: &deadline,
		Template:              corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: view.labels(part)}, Spec: pod},
	}
}

// mountClaims gives a backup the volumes of the first pod, read-only.
func (view *appView) mountClaims(pod *corev1.PodSpec) {
	for _, volume := range view.spec.Volumes {
		if volume.Size == nil {
			continue
		}
		name := string(volume.Name)
		claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: view.claimName(name), ReadOnly: true}
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}})
		mount := corev1.VolumeMount{Name: name, MountPath: volume.Path, ReadOnly: true}
		pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, mount)
	}
}

func jobOf(meta metav1.ObjectMeta, spec batchv1.JobSpec) *batchv1.Job {
	return &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: meta, Spec: spec}
}

func cronOf(meta metav1.ObjectMeta, schedule v1alpha1.Schedule, zone string, spec batchv1.JobSpec) *batchv1.CronJob {
	if zone == "" {
		zone = "UTC"
	}
	return &batchv1.CronJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"},
		ObjectMeta: meta,
		Spec: batchv1.CronJobSpec{
			Schedule:                   string(schedule),
			TimeZone:                   &zone,
			ConcurrencyPolicy:          batchv1.ForbidConcurrent,
			StartingDeadlineSeconds:    new(int64(300)),
			SuccessfulJobsHistoryLimit: new(int32(1)),
			FailedJobsHistoryLimit:     new(int32(3)),
			JobTemplate:                batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: spec},
		},
	}
}
