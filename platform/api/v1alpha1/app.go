package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// App is a web application or a worker.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 30",messageExpression="'\"' + self.metadata.name + '\" has more than 30 characters; use at most 30, because names of jobs are made from it'"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",messageExpression="'\"' + self.metadata.name + '\" is not the name of a Service; use a-z, 0-9 and -, and begin with a letter'"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.preview) || self.metadata.name.startsWith(self.spec.preview.of + '-')",messageExpression="'\"' + self.spec.preview.of + '\" and - do not begin metadata.name, so this is no preview of it; use `roost deploy --as`'",fieldPath=".spec.preview.of"
// +kubebuilder:validation:XValidation:rule="has(self.spec.preview) == has(oldSelf.spec.preview)",message="an App cannot become a preview or stop being one; deploy it under another name",fieldPath=".spec.preview"
type App struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec AppSpec `json:"spec"`
	// +optional
	Status Status `json:"status,omitzero"`
}

// AppList is a list of App.
//
// +kubebuilder:object:root=true
type AppList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []App `json:"items"`
}

// AppSpec is what a team writes. Everything but the image and the health check has a default.
//
// +kubebuilder:validation:XValidation:rule="!has(self.host) || (has(self.ports) && self.ports.size() > 0)",message="a host needs a port; add to spec.ports the port that serves it",fieldPath=".host"
// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || !has(self.autoscaling)",message="replicas and autoscaling are mutually exclusive; remove one of them",fieldPath=".replicas"
// +kubebuilder:validation:XValidation:rule="!has(self.autoscaling) || !has(self.volumes) || self.volumes.all(volume, !has(volume.size))",message="the app has a persistent volume, whose data does not follow new pods; set spec.replicas instead",fieldPath=".autoscaling"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || (has(self.volumes) && self.volumes.exists(volume, has(volume.size)))",message="no volume has a size, so there is nothing to back up; add a volume, or remove the backup",fieldPath=".backup"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || !has(self.backup.repository) || !has(self.envFiles) || !(self.backup.repository.file in self.envFiles)",message="is in spec.envFiles as well, so the app would get the keys of its backups; write another file",fieldPath=".backup.repository.file"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || !has(self.backup.repository) || !has(self.backup.command) || self.backup.command.size() == 0 || !has(self.volumes) || !self.volumes.exists(volume, volume.path == '/backup' || volume.path.startsWith('/backup/'))",message="a volume is at /backup, where spec.backup.command writes its dump; move the volume to another path",fieldPath=".volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.files) || !has(self.volumes) || !self.files.exists(file, self.volumes.exists(volume, file.path == volume.path || file.path.startsWith(volume.path + '/') || volume.path.startsWith(file.path + '/')))",message="the path of a file overlaps the path of a volume; write a path outside of spec.volumes",fieldPath=".files"
// +kubebuilder:validation:XValidation:rule="!has(self.update) || !has(self.update.recreate) || !self.update.recreate || !has(self.replicas) || self.replicas <= 1 || !has(self.volumes) || !self.volumes.exists(volume, has(volume.size))",message="pods with a persistent volume are replaced one at a time, so two versions would run at once; spec.replicas must be at most 1, or remove recreate",fieldPath=".update.recreate"
// +kubebuilder:validation:XValidation:rule="!has(self.health.none) || !has(self.ports) || self.ports.size() == 0",message="an app with ports needs a health check, so that no request reaches a pod that is not ready; set spec.health.path",fieldPath=".health.none"
// +kubebuilder:validation:XValidation:rule="!(has(self.health.path) || (has(self.health.tcp) && self.health.tcp)) || (has(self.ports) && self.ports.size() > 0)",message="the check needs a port, and the app has none; add one to spec.ports, or set spec.health.command",fieldPath=".health"
// +kubebuilder:validation:XValidation:rule="!has(self.health.port) || (has(self.ports) && self.ports.exists(port, port.port == self.health.port))",message="is not in spec.ports; add it there, or name a port that is there",fieldPath=".health.port"
// +kubebuilder:validation:XValidation:rule="!has(self.onNodeLoss) || self.onNodeLoss != 'RestoreFromBackup' || (has(self.backup) && has(self.backup.repository) && !(has(self.backup.command) && self.backup.command.size() > 0))",message="a restore needs a backup of the volumes; set spec.backup.repository and no spec.backup.command, or set Wait",fieldPath=".onNodeLoss"
// +kubebuilder:validation:XValidation:rule="!has(self.onNodeLoss) || self.onNodeLoss != 'RestoreFromBackup' || !has(self.replicas) || self.replicas <= 1",message="only the volumes of the first pod are saved; spec.replicas must be at most 1, or set Wait",fieldPath=".onNodeLoss"
// +kubebuilder:validation:XValidation:rule="!has(self.preview) || !has(self.volumes) || self.volumes.all(volume, !has(volume.size))",message="a preview has no persistent volumes, because they are never deleted; set temporary instead of size",fieldPath=".volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.preview) || !has(self.deletionPolicy) || self.deletionPolicy == 'Delete'",message="the objects of a preview are deleted with it; remove the policy",fieldPath=".deletionPolicy"
type AppSpec struct {
	// Image with a tag other than latest, or with a digest.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?/)?[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$')",messageExpression="'\"' + self + '\" is not the name of an image; write registry/name:tag or registry/name@sha256:digest'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([a-z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?/)?[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*$')",messageExpression="'\"' + self + '\" has no tag and no digest, which means the tag latest; name a version or a digest'"
	// +kubebuilder:validation:XValidation:rule="!self.endsWith(':latest')",messageExpression="'\"' + self + '\" has the tag latest, which changes without a release; name a version or a digest'"
	Image string `json:"image"`
	// PullSecret names a Secret with the credentials of the registry.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="'\"' + self + '\" is not the name of a Secret; use a-z, 0-9, - and .'"
	PullSecret string `json:"pullSecret,omitempty"`
	// Command replaces the image's entry point.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self[0].size() > 0",message="the command is empty; write the program and its arguments"
	Command Command `json:"command,omitempty"`
	// Args are the arguments of Command or of the image's entry point.
	// +optional
	Args Command `json:"args,omitempty"`
	// User is the number of the user that the processes run as. 65532 without it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > 0",message="is not the number of a user without privileges; set one such as 65532"
	// +kubebuilder:validation:XValidation:rule="self <= 2147483647",message="is out of range; set 1 to 2147483647"
	User *int64 `json:"user,omitempty"`
	// Ports that the app listens on. The first one serves Host.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(port, self.exists_one(other, other.port == port.port))",message="duplicate port; remove one of them"
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || self.all(port, has(port.name))",message="each of several ports needs a name; name each of them"
	// +kubebuilder:validation:XValidation:rule="self.all(port, !has(port.name) || self.exists_one(other, has(other.name) && other.name == port.name))",message="duplicate name; rename one of them"
	Ports []Port `json:"ports,omitempty"`

	Hosting `json:",inline"`

	// EnvFiles are .env files beside the manifest. What is encrypted in them becomes a Secret, the rest a ConfigMap.
	// +optional
	EnvFiles EnvFiles `json:"envFiles,omitempty"`
	// Files that pods and Jobs of the app mount read-only.
	// +optional
	Files Files `json:"files,omitempty"`
	// Env are values that are no secrets. A key must not be in EnvFiles as well.
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^[A-Za-z_][A-Za-z0-9_]*$'))",message="a key is not the name of an environment variable; use A-Z, a-z, 0-9 and _, and begin with no digit"
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('sops_'))",message="a key begins with sops_, which is part of an encrypted file; name the file in spec.envFiles"
	// +kubebuilder:validation:XValidation:rule="self.all(key, !self[key].startsWith('ENC['))",message="a value is encrypted, and the app could not read it; name the encrypted file in spec.envFiles"
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() <= 253)",message="a key has more than 253 characters; shorten it"
	Env map[string]EnvValue `json:"env,omitempty"`
	// Resources of each pod.
	// +optional
	Resources Resources `json:"resources,omitzero"`
	// Replicas is the number of pods. 1 without it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 100",message="is out of range; set 0 to 100"
	Replicas *int32 `json:"replicas,omitempty"`
	// Autoscaling sets the number of pods by their load.
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`
	// Health says how Kubernetes finds out whether a pod can serve.
	Health Health `json:"health"`
	// Processes beside the one of Command, such as workers. A release updates all of them, after Migrate.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(process, self.exists_one(other, other.name == process.name))",message="duplicate name; rename one of them"
	Processes []Process `json:"processes,omitempty"`
	// Migrate runs once for each new revision, before any of its pods starts.
	// +optional
	Migrate *Migration `json:"migrate,omitempty"`
	// Cron are commands that run by the clock.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(task, self.exists_one(other, other.name == task.name))",message="duplicate name; rename one of them"
	Cron []CronTask `json:"cron,omitempty"`
	// Runs are commands that run once. To run one again, give it another name.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(run, self.exists_one(other, other.name == run.name))",message="duplicate name; rename one of them"
	Runs []Run `json:"runs,omitempty"`
	// Volumes that the app can write to. All else but /tmp is read-only.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(volume, self.exists_one(other, other.name == volume.name))",message="duplicate name; rename one of them"
	// +kubebuilder:validation:XValidation:rule="self.all(volume, self.exists_one(other, other.path == volume.path))",message="duplicate path; change one of them"
	Volumes []Volume `json:"volumes,omitempty"`
	// Backup saves the persistent volumes of the first pod, and verifies that they can be restored.
	// +optional
	Backup *Backup `json:"backup,omitempty"`
	// OnNodeLoss says what happens when the node with the volumes is lost. Wait: the app waits for the node. RestoreFromBackup: the last verified
	// snapshot is restored into new volumes on another node, where the app starts; what was written after it is lost. Wait without it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self in ['Wait', 'RestoreFromBackup']",messageExpression="'\"' + self + '\" is not a policy; set Wait or RestoreFromBackup'"
	OnNodeLoss string `json:"onNodeLoss,omitempty"`
	// DeletionPolicy says what becomes of the objects that the spec renders to when the App is deleted. Delete: Kubernetes deletes them.
	// Orphan: they stay and serve on, also when Roost itself is removed. Persistent volume claims stay in either case. Delete without it.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self in ['Delete', 'Orphan']",messageExpression="'\"' + self + '\" is not a policy; set Delete or Orphan'"
	DeletionPolicy string `json:"deletionPolicy,omitempty"`
	// Update says how pods are replaced.
	// +optional
	Update Update `json:"update,omitzero"`
	// Network lists who may reach the app, and whom it may reach, beside DNS and the ingress controller.
	// +optional
	Network Network `json:"network,omitzero"`
	// PodPatch changes the pods of the App beyond the other fields.
	// +optional
	PodPatch *PodPatch `json:"podPatch,omitempty"`
	// Preview is set by `roost deploy --as`. The operator deletes the App when the time of the preview is over.
	// +optional
	Preview *Preview `json:"preview,omitempty"`
}

// Port that an app listens on.
type Port struct {
	// Name is needed if there are several ports. `http` without it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]{0,13}[a-z0-9])?$') && !self.contains('--')",messageExpression="'\"' + self + '\" is not the name of a port; use at most 15 of a-z, 0-9 and single -, and begin with a letter'"
	Name string `json:"name,omitempty"`
	// Port is the number of the TCP port.
	// +kubebuilder:validation:XValidation:rule="self >= 1024 && self <= 65535",message="is out of range; set 1024 to 65535, because the app does not run as root. Clients still use port 443 of the host"
	Port int32 `json:"port"`
}

// Resources of a pod. Memory is reserved in full, so that a node never promises more than it has.
type Resources struct {
	// CPU that is reserved. 100m without it.
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// CPULimit is the most CPU that a pod gets. 1 without it, or CPU if that is more.
	// +optional
	CPULimit *resource.Quantity `json:"cpuLimit,omitempty"`
	// Memory that is reserved, and above which the pod is ended. 256Mi without it.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// Autoscaling of an app between two numbers of pods.
//
// +kubebuilder:validation:XValidation:rule="self.min >= 1 && self.max <= 100 && self.min <= self.max",message="is not valid; set min and max, with 1 <= min <= max <= 100"
// +kubebuilder:validation:XValidation:rule="has(self.cpuPercent) || has(self.memoryPercent)",message="no target for the load is set; set cpuPercent, such as 70, or memoryPercent"
type Autoscaling struct {
	// Min is the smallest number of pods.
	Min int32 `json:"min"`
	// Max is the largest number of pods.
	Max int32 `json:"max"`
	// CPUPercent of the reserved CPU that pods are to use.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 1000",message="is out of range; set 1 to 1000"
	CPUPercent *int32 `json:"cpuPercent,omitempty"`
	// MemoryPercent of the reserved memory that pods are to use.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 100",message="is out of range; set 1 to 100"
	MemoryPercent *int32 `json:"memoryPercent,omitempty"`
}

// Health is one check, by which a pod gets requests or not. Pods are restarted by it only where Restart asks for that.
//
// +kubebuilder:validation:XValidation:rule="[has(self.path), has(self.tcp) && self.tcp, has(self.command), has(self.none)].filter(given, given).size() == 1",message="exactly one check is needed; set one of path, tcp, command and none"
// +kubebuilder:validation:XValidation:rule="!has(self.port) || has(self.path) || (has(self.tcp) && self.tcp)",message="only path and tcp use a port; remove it",fieldPath=".port"
type Health struct {
	// Path that answers 200 to 399 when the pod can serve.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",messageExpression="'\"' + self + '\" does not begin with /; write /' + self"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:cntrl:] ]')",messageExpression="'\"' + self + '\" has a space or a control character; write %20 for a space'"
	Path string `json:"path,omitempty"`
	// TCP is for servers without HTTP: the pod can serve when the port takes connections.
	// +optional
	TCP bool `json:"tcp,omitempty"`
	// Port for Path and TCP. The first port without it.
	// +optional
	Port int32 `json:"port,omitempty"`

	ProcessHealth `json:",inline"`
}

// ProcessHealth is the check of a process, whether it listens on a port or not.
type ProcessHealth struct {
	// Command that exits with 0 when the pod works.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self[0].size() > 0",message="the command is empty; write the program and its arguments"
	Command Command `json:"command,omitempty"`
	// None is the reason why a worker has no check.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	None string `json:"none,omitempty"`
	// StartSeconds that a pod may take to become ready. 60 without it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 3600",message="is out of range; set 1 to 3600"
	StartSeconds *int32 `json:"startSeconds,omitempty"`
	// Restart ends a pod whose check fails for a minute.
	// +optional
	Restart bool `json:"restart,omitempty"`
}

// Process of an app beside its own, such as a worker. It has the image, the settings, the files, the temporary volumes and the release of the app, and no
// port.
//
// +kubebuilder:validation:XValidation:rule="self.command.size() > 0 && self.command[0].size() > 0",message="the command is empty; write the program and its arguments",fieldPath=".command"
// +kubebuilder:validation:XValidation:rule="(has(self.health.command) && self.health.command.size() > 0) != has(self.health.none)",message="exactly one check is needed; set command or none",fieldPath=".health"
type Process struct {
	// Name of the process, as `--process` of `roost logs`, `exec`, `run` and `top` takes it. `web` is the process of spec.command.
	// +kubebuilder:validation:XValidation:rule="self != 'web'",message="is the name of the process of spec.command; choose another name"
	Name PartName `json:"name"`
	// Command of the app's image. No shell reads it.
	Command Command `json:"command"`
	// Replicas is the number of its pods. 1 without it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 100",message="is out of range; set 0 to 100"
	Replicas *int32 `json:"replicas,omitempty"`
	// Resources of each pod.
	// +optional
	Resources Resources `json:"resources,omitzero"`
	// Health says how Kubernetes finds out whether a pod works.
	Health ProcessHealth `json:"health"`
}

// Update of an app's pods.
type Update struct {
	// Recreate ends all old pods before new ones start, for apps that must not run in two versions at once.
	// +optional
	Recreate bool `json:"recreate,omitempty"`
	// DrainSeconds that a pod has to finish its requests. 30 without it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 3600",message="is out of range; set 1 to 3600"
	DrainSeconds *int32 `json:"drainSeconds,omitempty"`
}
