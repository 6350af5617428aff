package render

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/backup"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// Tasks of the program roost-backup: values of LabelTask, and kinds of operations.
const (
	TaskSave    = backup.KindSave
	TaskVerify  = backup.KindVerify
	TaskRestore = backup.KindRestore
)

// BackupFolder is where pods that save and restore have their own files.
const BackupFolder = "/backup"

const (
	backupContainer  = "backup"
	backupFolder     = BackupFolder
	dumpFolder       = backup.DumpFolder
	scratchFolder    = "/scratch"
	repositoryFolder = "/repository"
	repositoryKeys   = "/etc/roost/repository"
	drillSchedule    = "45 4 * * 0"
)

// workSize is the space for the manifest, and for packs that restic has not sent yet.
var workSize = resource.MustParse("1Gi")

// OperationName returns the name of the Job of an operation.
func OperationName(name string, operation *v1alpha1.Operation) string {
	return name + "-" + operation.Kind + "-" + operation.ID
}

// operation returns the operation in progress, or nil.
func (view *appView) operation() *v1alpha1.Operation {
	if view.backup == nil || view.backup.Operation.IsEnded() {
		return nil
	}
	return view.backup.Operation
}

// isStopped reports whether the pods have to be stopped, because their volumes are being restored, or hold parts of two states. A dump is loaded
// into a running app.
func (view *appView) isStopped() bool {
	operation := view.operation()
	return operation != nil && operation.Kind == TaskRestore && !view.loadsDump(TaskRestore) || view.isRestoreUnfinished()
}

func (view *appView) isRestoreUnfinished() bool {
	return view.backup != nil && view.backup.RestoreUnfinished
}

// backups returns the objects of a backup with a repository. It suspends scheduled backups while an operation is in progress: two pods with one
// host name must not use the repository at once, because each would treat the other's lock as stale.
func (view *appView) backups() []runtime.Object {
	save := cronOf(view.meta(BackupName(view.name), partBackup), view.spec.Backup.Schedule, "", view.taskJob(TaskSave, nil))
	schedule := view.spec.Backup.DrillSchedule
	if schedule == "" {
		schedule = drillSchedule
	}
	drill := cronOf(view.meta(DrillName(view.name), partBackup), schedule, "", view.taskJob(TaskVerify, nil))
	objects := []runtime.Object{view.repositorySecret(), view.backupPolicy(), save, drill}
	operation := view.operation()
	if operation != nil || view.isRestoreUnfinished() || view.isLoadUnfinished() {
		save.Spec.Suspend, drill.Spec.Suspend = new(true), new(true)
	}
	if operation != nil && operation.Phase == v1alpha1.OperationRuns {
		meta := view.meta(OperationName(view.name, operation), partBackup)
		meta.Annotations = map[string]string{AnnotationOnce: "true"}
		if operation.Generation > 0 {
			objects = append(objects, view.newClaims()...)
		}
		objects = append(objects, jobOf(meta, view.taskJob(operation.Kind, operation)))
	}
	return objects
}

var urlUserPattern = regexp.MustCompile(`://[^/@]*@`)

// RepositoryOf identifies the repository of backups by a hash of its address in the spec or in the encrypted file. The hash covers neither user
// nor password, so it does not change with them. The result is empty while the file with the address is not decrypted.
func RepositoryOf(spec *v1alpha1.Backup, keys map[string]string) string {
	if spec == nil || spec.Repository == nil {
		return ""
	}
	address := cmp.Or(spec.Repository.URL, keys[backup.KeyRepository])
	if claim := spec.Repository.Claim; claim != "" {
		address = "claim:" + claim
	}
	if address == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(urlUserPattern.ReplaceAllString(address, "://")))
	return fmt.Sprintf("%x", sum[:5])
}

func (view *appView) repositoryName() string {
	hash := settings.Settings{Secret: view.values.Repository}.Hash(view.namespace + "/" + view.name)
	return view.name + "-repository-" + hash[:10]
}

func (view *appView) repositorySecret() runtime.Object {
	return view.secretOf(view.repositoryName(), view.values.Repository)
}

// backupPolicy lets the pods of backups reach the port of the store. A policy cannot contain a host name, so the pods can reach that port at any
// address. If only the encrypted file contains the address, they can reach every port. The policy of the app applies to them as well.
func (view *appView) backupPolicy() runtime.Object {
	egress := egressDNS()
	if view.spec.Backup.Repository.Claim == "" {
		rule := networkingv1.NetworkPolicyEgressRule{}
		endpoint := backup.Endpoint(view.spec.Backup.Repository.URL)
		if port, err := strconv.Atoi(endpoint[strings.LastIndex(endpoint, ":")+1:]); err == nil {
			rule.Ports = policyPorts([]int32{int32(port)})
		}
		egress = append(egress, rule)
	}
	if view.streams != nil {
		egress = append(egress, view.streams.egress)
	}
	return view.policy(BackupName(view.name), partBackup, view.selector(partBackup), nil, egress)
}

// jobMarginSeconds is the time between the deadline of a pod and the deadline of its Job. At the pod's deadline, its node ends the pod, which
// stays with the end of its log. At the deadline of the Job, the pod is deleted.
const jobMarginSeconds = 60

// taskJob runs a task once. The node ends its pod at the deadline, even on a machine that is cut off. Another pod starts only when that pod is
// gone. So a lock in the repository with the pod's host name is always stale.
func (view *appView) taskJob(task string, operation *v1alpha1.Operation) batchv1.JobSpec {
	deadline := int64(taskSeconds)
	if timeout := view.spec.Backup.TimeoutSeconds; timeout != nil {
		deadline = int64(*timeout)
	}
	pod := view.taskPod(task, operation)
	pod.ActiveDeadlineSeconds = &deadline
	labels := view.labels(partBackup)
	labels[LabelTask], labels[LabelRepository] = task, RepositoryOf(view.spec.Backup, view.values.Repository)
	job := batchv1.JobSpec{
		BackoffLimit: new(int32(2)), ActiveDeadlineSeconds: new(deadline + jobMarginSeconds), PodReplacementPolicy: new(batchv1.Failed),
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
	}
	if task == TaskRestore {
		// The pods of the app are stopped during retries.
		job.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:      batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{backup.ExitRefused}},
		}}}
	}
	return job
}

func (view *appView) taskPod(task string, operation *v1alpha1.Operation) corev1.PodSpec {
	container := view.taskContainer(task, operation)
	if view.streams != nil {
		return view.streamsPod(task, container)
	}
	volumes := []corev1.Volume{{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &workSize}}}}
	volumes = append(volumes, view.repositoryVolumes(&container)...)
	isDump := len(view.spec.Backup.Command) > 0
	switch {
	case task == TaskVerify && !view.loadsDump(task):
		volumes = append(volumes, view.scratch("scratch"))
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "scratch", MountPath: scratchFolder})
	case isDump:
		volumes = append(volumes, view.scratch("dump"))
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "dump", MountPath: backupFolder + "/" + dumpFolder})
	}
	pod := podOf(view.user(), container, volumes)
	if task != TaskVerify && !isDump {
		view.mountForBackup(&pod, task == TaskSave)
	}
	if task == TaskRestore && view.savedFolder != "" {
		view.finishStorage(&pod)
	}
	if task == TaskSave && isDump {
		view.addDump(&pod)
	}
	if view.loadsDump(task) {
		view.loadDump(&pod, task)
	}
	view.finishTask(&pod, task)
	return pod
}

func (view *appView) finishTask(pod *corev1.PodSpec, task string) {
	pod.ServiceAccountName = view.name
	pod.ImagePullSecrets = pullSecrets(view.spec.PullSecret)
	pod.RestartPolicy = corev1.RestartPolicyNever
	pod.Hostname = view.backupHost(task)
}

// backupHost returns the host name of the pods that save and restore, or of those that verify. Locks in the repository contain it. The UID
// distinguishes it from that of an app of the same name in another cluster, whose locks must not be removed.
func (view *appView) backupHost(task string) string {
	name := BackupName(view.name)
	if task == TaskVerify {
		name = DrillName(view.name)
	}
	if view.uid == "" {
		return name
	}
	sum := sha256.Sum256([]byte(view.namespace + "/" + view.uid))
	return fmt.Sprintf("%s-%x", name, sum[:5])
}

// taskContainer returns the container of the program with its arguments. No argument is a secret.
func (view *appView) taskContainer(task string, operation *v1alpha1.Operation) corev1.Container {
	repository := view.spec.Backup.Repository
	scope := view.namespace + "/" + view.name
	subcommand := task
	switch {
	case task == TaskRestore && view.savedFolder != "":
		subcommand = "stage-storage"
	case task == TaskRestore && view.loadsDump(task):
		subcommand = "stage-dump"
	case view.streams != nil:
		subcommand = task + "-streams"
	}
	command := []string{"/usr/bin/roost-backup", subcommand, "--path=" + scope, "--host=" + scope, "--report=/dev/termination-log"}
	if view.uid != "" {
		command = append(command, "--owner="+view.uid)
	}
	switch {
	case repository.Claim != "":
		command = append(command, "--repository="+repositoryFolder)
	case repository.URL != "":
		command = append(command, "--repository="+literal(repository.URL))
	}
	if task == TaskVerify && view.loadsDump(task) {
		command = append(command, "--dump")
	}
	if view.streams != nil {
		command = append(command, view.streams.flags(task)...)
	} else if task == TaskSave || task == TaskRestore && !view.loadsDump(task) {
		for _, folder := range view.taskFolders(task) {
			command = append(command, "--folder="+folder)
		}
	}
	if task == TaskVerify && view.savedFolder != "" {
		command = append(command, "--storage-backups")
		for _, folder := range view.taskFolders(task) {
			command = append(command, "--folder="+folder)
		}
	}
	if task == TaskSave {
		if view.savedFolder != "" {
			command = append(command, "--storage-backups")
		}
		if len(view.spec.Backup.RestoreCommand) > 0 {
			command = append(command, "--dump")
		}
		command = append(command, view.keepFlags()...)
	}
	if task == TaskRestore && operation != nil {
		command = append(command, "--snapshot="+literal(operation.Snapshot))
		if operation.Replace && !view.loadsDump(task) {
			command = append(command, "--replace")
		}
	}
	resources := resourcesOf(v1alpha1.Resources{Memory: new(resource.MustParse("512Mi"))})
	return corev1.Container{
		Name: backupContainer, Image: view.cluster.BackupImage, Command: command, Resources: resources,
		Env:          []corev1.EnvVar{{Name: "TMPDIR", Value: backupFolder}},
		VolumeMounts: []corev1.VolumeMount{{Name: "work", MountPath: backupFolder}},
	}
}

func (view *appView) keepFlags() []string {
	var flags []string
	if view.backup != nil && view.backup.VerifiedSnapshot != "" {
		flags = append(flags, "--keep-snapshot="+literal(view.backup.VerifiedSnapshot))
	}
	keep := view.spec.Backup.Keep
	if keep == nil {
		return flags
	}
	for _, part := range []struct {
		name   string
		number *int32
	}{{"daily", keep.Daily}, {"weekly", keep.Weekly}, {"monthly", keep.Monthly}} {
		if part.number != nil {
			flags = append(flags, fmt.Sprintf("--keep-%s=%d", part.name, *part.number))
		}
	}
	return flags
}

// taskFolders returns the folders of a snapshot: a dump, or the volumes. A snapshot of a Dunlin contains one folder of its volume, but a restore
// replaces content of the whole volume.
func (view *appView) taskFolders(task string) []string {
	saved := view.savedFolder
	if task == TaskRestore {
		saved = ""
	}
	if len(view.spec.Backup.Command) > 0 {
		return []string{dumpFolder}
	}
	var folders []string
	for _, volume := range view.spec.Volumes {
		if volume.Size != nil {
			folders = append(folders, path.Join("volumes", string(volume.Name), saved))
		}
	}
	return folders
}

// repositoryVolumes returns the volume of the Secret with the keys, and the volume of the repository.
func (view *appView) repositoryVolumes(container *corev1.Container) []corev1.Volume {
	volumes := []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: view.repositoryName(), DefaultMode: new(int32(0o440)),
	}}}}
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "keys", MountPath: repositoryKeys, ReadOnly: true})
	if claim := view.spec.Backup.Repository.Claim; claim != "" {
		source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
		volumes = append(volumes, corev1.Volume{Name: "repository", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "repository", MountPath: repositoryFolder})
	}
	return volumes
}

// mountForBackup mounts the volumes of the app's first pod.
func (view *appView) mountForBackup(pod *corev1.PodSpec, isReadOnly bool) {
	for _, volume := range view.spec.Volumes {
		if volume.Size == nil {
			continue
		}
		name := "volume-" + string(volume.Name)
		claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: view.claimName(string(volume.Name)), ReadOnly: isReadOnly}
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}})
		mount := corev1.VolumeMount{Name: name, MountPath: backupFolder + "/volumes/" + string(volume.Name), ReadOnly: isReadOnly}
		pod.Containers[0].VolumeMounts = append(pod.Containers[0].VolumeMounts, mount)
	}
}

// scratch returns a volume as large as all volumes of the app together. Like the volume of scratchOf, it is deleted with its pod.
func (view *appView) scratch(name string) corev1.Volume {
	total, class := resource.Quantity{}, ""
	for _, volume := range view.spec.Volumes {
		if volume.Size != nil {
			total.Add(*volume.Size)
			class = volume.StorageClass
		}
	}
	return view.scratchOf(name, total, class)
}

func (view *appView) scratchOf(name string, size resource.Quantity, class string) corev1.Volume {
	claim := view.claim(name, partBackup, size, class)
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Labels: claim.Labels}, Spec: claim.Spec},
	}}}
}

// addDump runs the app's command before the program saves the files that the command has written.
func (view *appView) addDump(pod *corev1.PodSpec) {
	dump := podOf(view.user(), view.container(), nil).Containers[0]
	dump.Name, dump.Command = "dump", words(view.spec.Backup.Command)
	dump.VolumeMounts = []corev1.VolumeMount{
		{Name: tmpVolume, MountPath: "/tmp"}, {Name: "dump", MountPath: backupFolder + "/" + dumpFolder},
	}
	// A volume of the app may have the same name as a volume of the backup.
	const prefix = "volume-"
	for _, volume := range view.spec.Volumes {
		name := prefix + string(volume.Name)
		mount := corev1.VolumeMount{Name: name, MountPath: volume.Path, ReadOnly: volume.Size != nil}
		dump.VolumeMounts = append(dump.VolumeMounts, mount)
		if volume.Size != nil {
			claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: view.claimName(string(volume.Name)), ReadOnly: true}
			pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}})
		}
	}
	for _, volume := range view.temporaryVolumes() {
		volume.Name = prefix + volume.Name
		pod.Volumes = append(pod.Volumes, volume)
	}
	dump.VolumeMounts = append(dump.VolumeMounts, view.fileMounts()...)
	pod.Volumes = append(pod.Volumes, view.fileVolumes()...)
	pod.InitContainers = []corev1.Container{dump}
}
