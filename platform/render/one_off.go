package render

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ManagedByRun is the value of LabelManagedBy on objects that `roost run` creates. The operator ignores them.
const ManagedByRun = "roost-run"

const (
	// oneOffKeptSeconds is how long a finished Job is kept if it was not deleted.
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

// Job returns a Job whose pod is like a pod of the app, except for its ports, its probes and its persistent volumes.
func (run OneOff) Job() *batchv1.Job {
	owner := owner{kind: run.Owner.Kind, name: run.App, namespace: run.Namespace}
	meta := owner.meta("", partRun)
	meta.Labels[LabelManagedBy] = ManagedByRun
	meta.GenerateName = run.App + "-run-"
	meta.Annotations = map[string]string{AnnotationRevision: run.Revision}
	meta.OwnerReferences = []metav1.OwnerReference{run.Owner}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			// A failed command may have done a part of its work, so it is not retried.
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
	container.Command, container.Args = nil, nil
	for _, word := range run.Command {
		container.Command = append(container.Command, literal(word))
	}
	container.Ports, container.Lifecycle = nil, nil
	container.StartupProbe, container.ReadinessProbe, container.LivenessProbe = nil, nil, nil
	isVolume := map[string]bool{}
	for _, volume := range pod.Volumes {
		isVolume[volume.Name] = true
	}
	mounts := container.VolumeMounts
	container.VolumeMounts = nil
	for _, mount := range mounts {
		// A persistent volume is a claim of each pod of the workload, and not a volume of the template.
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
