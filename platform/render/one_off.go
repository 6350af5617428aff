package render

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ManagedByRun is the value of LabelManagedBy on what `roost run` makes. The operator does not look at it.
const ManagedByRun = "roost-run"

const (
	// oneOffKeptSeconds is how long a Job stays that nobody has deleted after its end.
	oneOffKeptSeconds = 600
	// oneOffGraceSeconds is the time between SIGTERM and SIGKILL.
	oneOffGraceSeconds = 30
)

// OneOff is a command that runs once with the image and the settings of an app.
type OneOff struct {
	Namespace, App string
	Owner          metav1.OwnerReference
	// Template of the app's pods, as its workload has it now.
	Template       corev1.PodTemplateSpec
	Revision       string
	Command        []string
	TimeoutSeconds int64
}

// Job takes what a pod of the app has but for its ports, its checks and its persistent volumes.
func (run OneOff) Job() *batchv1.Job {
	owner := owner{name: run.App, namespace: run.Namespace}
	meta := owner.meta("", partRun)
	meta.Labels[LabelManagedBy] = ManagedByRun
	meta.GenerateName = run.App + "-run-"
	meta.Annotations = map[string]string{AnnotationRevision: run.Revision}
	meta.OwnerReferences = []metav1.OwnerReference{run.Owner}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			// A command that has failed has perhaps done half of its work, so it is not run again.
			BackoffLimit:            new(int32(0)),
			ActiveDeadlineSeconds:   &run.TimeoutSeconds,
			TTLSecondsAfterFinished: new(int32(oneOffKeptSeconds)),
			Template:                corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: run.pod()},
		},
	}
}

func (run OneOff) pod() corev1.PodSpec {
	pod := *run.Template.Spec.DeepCopy()
	container := pod.Containers[0]
	container.Command, container.Args = run.Command, nil
	container.Ports, container.Lifecycle = nil, nil
	container.StartupProbe, container.ReadinessProbe, container.LivenessProbe = nil, nil, nil
	isVolume := map[string]bool{}
	for _, volume := range pod.Volumes {
		isVolume[volume.Name] = true
	}
	mounts := container.VolumeMounts
	container.VolumeMounts = nil
	for _, mount := range mounts {
		// A persistent volume is a claim of each pod of the workload, and no volume of the template.
		if isVolume[mount.Name] {
			container.VolumeMounts = append(container.VolumeMounts, mount)
		}
	}
	pod.Containers = []corev1.Container{container}
	pod.TopologySpreadConstraints = nil
	pod.TerminationGracePeriodSeconds = new(int64(oneOffGraceSeconds))
	pod.RestartPolicy = corev1.RestartPolicyNever
	return pod
}
