// Package render turns a spec and its decrypted settings into Kubernetes objects. It is pure: the same input gives the same objects. They are
// plain Kubernetes objects, and keep working without Roost.
package render

import (
	"sort"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/deploy"
)

// Cluster describes the cluster. The zero value has the names of k3s.
type Cluster struct {
	// IngressClass serves the hosts.
	IngressClass string
	// HTTPSEntryPoint is Traefik's entry point of hosts with a certificate. Empty: their Ingresses name none, and are served at all entry points.
	HTTPSEntryPoint string
	// IngressNamespace has the pods of the ingress controller.
	IngressNamespace string
	// MonitoringNamespace has the pods that read metrics.
	MonitoringNamespace string
	// OperatorNamespace has the pods of the operator, which read metrics of a Dunlin.
	OperatorNamespace string
	// BackupImage has the program roost-backup, and restic.
	BackupImage string
}

func (cluster Cluster) withDefaults() Cluster {
	if cluster.IngressClass == "" {
		cluster.IngressClass = "traefik"
	}
	if cluster.IngressNamespace == "" {
		cluster.IngressNamespace = "kube-system"
	}
	if cluster.MonitoringNamespace == "" {
		cluster.MonitoringNamespace = "monitoring"
	}
	if cluster.OperatorNamespace == "" {
		cluster.OperatorNamespace = "roost-system"
	}
	if image := cluster.DefaultBackupImage(); image != "" {
		cluster.BackupImage = image
	}
	return cluster
}

// DefaultBackupImage returns a placeholder if no image of backups is set, and "" otherwise. The placeholder is in no registry.
func (cluster Cluster) DefaultBackupImage() string {
	if cluster.BackupImage != "" {
		return ""
	}
	return deploy.Image("roost-backup")
}

// Labels and annotations. The operator selects objects by the labels, and decides by the annotations.
const (
	LabelApp  = v1alpha1.Group + "/app"
	LabelPart = v1alpha1.Group + "/part"
	// LabelKind is App or Dunlin. Objects of before this label are selected without it, as long as one of their workloads exists.
	LabelKind          = v1alpha1.Group + "/kind"
	LabelManagedBy     = "app.kubernetes.io/managed-by"
	AnnotationRevision = v1alpha1.Group + "/revision"
	// AnnotationKeys on a pod is the hash of the Secret with its keys, if that Secret is not made by Roost.
	AnnotationKeys     = v1alpha1.Group + "/keys"
	AnnotationSettings = v1alpha1.Group + "/settings-hash"
	// AnnotationPhase is PhaseBeforeRollout on a Job that must succeed before the workload changes.
	AnnotationPhase    = v1alpha1.Group + "/phase"
	PhaseBeforeRollout = "before-rollout"
	// LabelProcess is the name of a process of an App, on the workload and the pods of each process but MainProcess.
	LabelProcess = v1alpha1.Group + "/process"
	// LabelFilesOf names the app whose encrypted files a ConfigMap contains.
	LabelFilesOf = v1alpha1.Group + "/files-of"
	// LabelUsable allows a Dunlin to use the Secret as its keys. It is for Secrets that are not made by Roost.
	LabelUsable = v1alpha1.Group + "/usable"
	// AnnotationFiles on an App or a Dunlin names the ConfigMap with its encrypted files.
	AnnotationFiles = v1alpha1.Group + "/files"
	// LabelTask is on the pods of backups: save, verify or restore.
	LabelTask = v1alpha1.Group + "/task"
	// LabelRepository is on the pods of backups: the result of RepositoryOf.
	LabelRepository = v1alpha1.Group + "/repository"
	// AnnotationOperation on an App requests a backup, a drill or a restore. Its value is JSON.
	AnnotationOperation = v1alpha1.Group + "/operation"
	// AnnotationAppUID on a claim is the UID of the App that the claim was created for. The claim has no owner, so it is not deleted with the
	// App.
	AnnotationAppUID = v1alpha1.Group + "/app-uid"
	// AnnotationOnce marks an object that is created if it does not exist, and never changed.
	AnnotationOnce = v1alpha1.Group + "/once"
)

// WorkloadParts are the parts whose pods run all the time. The pods of the other parts belong to Jobs.
var WorkloadParts = []string{partMain, partProcess, partNATS}

// Values of LabelKind.
const (
	kindApp    = "App"
	kindDunlin = "Dunlin"
)

// ManagedBy is the value of LabelManagedBy.
const ManagedBy = "roost"

// PartMain is the part of an app's pods, and of a Dunlin's nodes.
const PartMain = partMain

// MainProcess is the name of the process whose pods are PartMain: that of spec.command.
const MainProcess = "web"

// PartBackup is the part of the objects that save and restore volumes.
const PartBackup = "backup"

// PartNATS is the part of a Dunlin's NATS servers.
const PartNATS = partNATS

// Parts of an app: values of LabelPart.
const (
	partMain    = "main"
	partProcess = "process"
	partMigrate = "migrate"
	partCron    = "cron"
	partRun     = "run"
	partBackup  = PartBackup
	partNATS    = "nats"
)

// owner holds the values that all objects of a spec share.
type owner struct {
	kind      string
	name      string
	namespace string
	cluster   Cluster
	// process is the name of a process beside MainProcess, or empty.
	process string
}

// part of the pods that run all the time.
func (owner owner) part() string {
	if owner.process != "" {
		return partProcess
	}
	return partMain
}

// workloadName returns the name of the Deployment of a process, or of the workload of an app's own one.
func (owner owner) workloadName() string {
	if owner.process != "" {
		return ProcessName(owner.name, owner.process)
	}
	return owner.name
}

func (owner owner) labels(part string) map[string]string {
	labels := owner.selector(part)
	labels["app.kubernetes.io/name"] = owner.name
	labels[LabelManagedBy] = ManagedBy
	return labels
}

// selector never changes for a part, because the selector of a workload is immutable.
func (owner owner) selector(part string) map[string]string {
	selector := map[string]string{LabelApp: owner.name, LabelKind: owner.kind, LabelPart: part}
	if part == partProcess {
		selector[LabelProcess] = owner.process
	}
	return selector
}

func (owner owner) meta(name, part string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: owner.namespace, Labels: owner.labels(part)}
}

func (owner owner) serviceAccount(name, part string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   owner.meta(name, part),
		AutomountServiceAccountToken: new(false),
	}
}

// sorted orders objects so that each comes after the objects that it refers to, and equal input gives equal output.
func sorted(objects []runtime.Object) []runtime.Object {
	order := map[string]int{
		"ServiceAccount": 0, "ConfigMap": 1, "Secret": 2, "NetworkPolicy": 3, "Service": 4, "PersistentVolumeClaim": 4, "Job": 5,
		"Deployment": 6, "StatefulSet": 6, "HorizontalPodAutoscaler": 7, "PodDisruptionBudget": 7, "CronJob": 8, "Ingress": 9,
	}
	sort.SliceStable(objects, func(i, j int) bool {
		return order[objects[i].GetObjectKind().GroupVersionKind().Kind] < order[objects[j].GetObjectKind().GroupVersionKind().Kind]
	})
	return objects
}
