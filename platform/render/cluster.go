// Package render turns a spec and its decrypted settings into Kubernetes objects. It is pure: the same input gives the same
// objects. They are plain: without Roost they go on to work.
package render

import (
	"sort"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// Cluster is what rendering needs to know about a cluster. The zero value has the names of k3s.
type Cluster struct {
	// IngressClass serves the hosts.
	IngressClass string
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

// DefaultBackupImage is what stands for an image of backups that is not named, or nothing if one is. It is in no registry.
func (cluster Cluster) DefaultBackupImage() string {
	if cluster.BackupImage != "" {
		return ""
	}
	return "registry.example.com/roost-backup:0.1.0"
}

// Labels and annotations. An operator selects by the first, and decides by the second.
const (
	LabelApp           = v1alpha1.Group + "/app"
	LabelPart          = v1alpha1.Group + "/part"
	LabelManagedBy     = "app.kubernetes.io/managed-by"
	AnnotationRevision = v1alpha1.Group + "/revision"
	// AnnotationKeys of a pod is the hash of the Secret with its keys, if others have made it.
	AnnotationKeys     = v1alpha1.Group + "/keys"
	AnnotationSettings = v1alpha1.Group + "/settings-hash"
	// AnnotationPhase is PhaseBeforeRollout on what must have succeeded before the workload changes.
	AnnotationPhase    = v1alpha1.Group + "/phase"
	PhaseBeforeRollout = "before-rollout"
	// LabelFilesOf names the app whose encrypted files a ConfigMap has.
	LabelFilesOf = v1alpha1.Group + "/files-of"
	// LabelUsable on a Secret that others have made says that a Dunlin may have it as its keys.
	LabelUsable = v1alpha1.Group + "/usable"
	// AnnotationFiles on an App or a Dunlin names the ConfigMap with its encrypted files.
	AnnotationFiles = v1alpha1.Group + "/files"
	// LabelTask is on the pods of backups: save, verify or restore.
	LabelTask = v1alpha1.Group + "/task"
	// LabelRepository is on the pods of backups: what RepositoryOf has returned.
	LabelRepository = v1alpha1.Group + "/repository"
	// AnnotationOperation on an App asks for a backup, a drill or a restore. Its value is JSON.
	AnnotationOperation = v1alpha1.Group + "/operation"
	// AnnotationAppUID on a claim is the UID of the App that it was made for. It has no owner, so that it is not deleted with the App.
	AnnotationAppUID = v1alpha1.Group + "/app-uid"
	// AnnotationOnce marks what is written if it is not there, and never changed.
	AnnotationOnce = v1alpha1.Group + "/once"
)

// WorkloadParts are the parts whose pods run all the time. The pods of the others belong to Jobs.
var WorkloadParts = []string{partMain, partNATS}

// ManagedBy is the value of LabelManagedBy.
const ManagedBy = "roost"

// PartMain is the part of an app's pods, and of a Dunlin's nodes.
const PartMain = partMain

// PartBackup is the part of what saves and restores volumes.
const PartBackup = "backup"

// PartNATS is the part of a Dunlin's NATS servers.
const PartNATS = partNATS

// Parts of an app: values of LabelPart.
const (
	partMain    = "main"
	partMigrate = "migrate"
	partCron    = "cron"
	partRun     = "run"
	partBackup  = PartBackup
	partNATS    = "nats"
)

// owner has what all objects of a spec share.
type owner struct {
	name      string
	namespace string
	cluster   Cluster
}

func (owner owner) labels(part string) map[string]string {
	labels := owner.selector(part)
	labels["app.kubernetes.io/name"] = owner.name
	labels[LabelManagedBy] = ManagedBy
	return labels
}

// selector never changes for a part, because workloads cannot change theirs.
func (owner owner) selector(part string) map[string]string {
	return map[string]string{LabelApp: owner.name, LabelPart: part}
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

// sorted orders objects so that each stands after what it refers to, and equal input gives equal output.
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
