package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Backup of the persistent volumes of an app's first pod.
//
// +kubebuilder:validation:XValidation:rule="has(self.repository) || (has(self.command) && self.command.size() > 0)",message="there is neither a repository nor a command; set repository",fieldPath=".command"
// +kubebuilder:validation:XValidation:rule="has(self.repository) || (!has(self.drillSchedule) && !has(self.verifiedSeconds) && !has(self.keep))",message="keep, drillSchedule and verifiedSeconds belong to a repository; set repository, or remove them",fieldPath=".repository"
// +kubebuilder:validation:XValidation:rule="!has(self.restoreCommand) || self.restoreCommand.size() == 0 || (has(self.repository) && has(self.command) && self.command.size() > 0)",message="restoreCommand loads the dump that command has written to a repository; set repository and command, or remove it",fieldPath=".restoreCommand"
// +kubebuilder:validation:XValidation:rule="!has(self.restoreCommand) || self.restoreCommand.size() == 0 || self.restoreCommand.exists(word, word.contains('ROOST_RESTORE_HOST'))",message="does not use ROOST_RESTORE_HOST, so a drill would load the dump into the app; add a word such as --host=$(ROOST_RESTORE_HOST)",fieldPath=".restoreCommand"
type Backup struct {
	// Schedule of backups, with the five fields of cron: minute, hour, day, month and weekday.
	Schedule Schedule `json:"schedule"`
	// Repository of restic in which snapshots are kept. Without it, the backup is what Command does, and no restore is verified.
	// +optional
	Repository *Repository `json:"repository,omitempty"`
	// Command of the app's image, with the app's settings and the volumes of its first pod, which it cannot write to. With a repository, it
	// writes a dump to /backup/dump, which is saved instead of the volumes.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self[0].size() > 0",message="the command is empty; write the program and its arguments"
	Command Command `json:"command,omitempty"`
	// RestoreCommand of the app's image, with the app's settings and no volumes, loads the dump, which is its standard input. Command then has to
	// write one file. The variable ROOST_RESTORE_HOST is the app's name in a restore. In a drill, it is a copy of the app with empty volumes,
	// which lives as long as the drill.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self[0].size() > 0",message="the command is empty; write the program and its arguments"
	RestoreCommand Command `json:"restoreCommand,omitempty"`
	// TimeoutSeconds after which the backup, or the drill, counts as failed. 3600 without it.
	// +optional
	TimeoutSeconds *Seconds `json:"timeoutSeconds,omitempty"`
	// FreshSeconds is the age at which the last backup is too old. Without it, 90000 (25 hours), or 97200 (27 hours) for a Dunlin, whose
	// node makes backups itself, every hour.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 60",message="is out of range; set at least 60"
	FreshSeconds *int64 `json:"freshSeconds,omitempty"`
	// Keep says which snapshots are kept.
	// +optional
	Keep *Keep `json:"keep,omitempty"`
	// DrillSchedule is when the newest snapshot is restored into an empty volume and compared. `45 4 * * 0` without it.
	// +optional
	DrillSchedule Schedule `json:"drillSchedule,omitempty"`
	// VerifiedSeconds is the age at which the last verified restore is too old. 691200 (8 days) without it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 60",message="is out of range; set at least 60"
	VerifiedSeconds *int64 `json:"verifiedSeconds,omitempty"`
}

// Repository of restic. Each app has one of its own, in a folder NAMESPACE/NAME of what is named here.
//
// +kubebuilder:validation:XValidation:rule="!has(self.url) || !has(self.claim)",message="the repository is either at a URL or on a volume; set one of url and claim"
type Repository struct {
	// URL such as rest:https://backup.example.com or s3:https://s3.example.com/bucket. Without it and without Claim, RESTIC_REPOSITORY of File
	// has it. SFTP does not work: the image with restic has no ssh.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(rest:https?://|s3:)[^ ]+$')",messageExpression="'\"' + self + '\" is not the URL of a repository; write one that begins with rest:https:// or s3:'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('://[^/@]*:[^/@]*@')",message="has a password in it; write the URL to the encrypted file, as RESTIC_REPOSITORY"
	URL string `json:"url,omitempty"`
	// Claim is a PersistentVolumeClaim of the same namespace. It should be on another machine than the app's volumes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="'\"' + self + '\" is not the name of a PersistentVolumeClaim; use a-z, 0-9, - and .'"
	Claim string `json:"claim,omitempty"`
	// File is an encrypted .env file beside the manifest, with RESTIC_PASSWORD and the credentials of the store, such as
	// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. The app does not get them.
	File FileName `json:"file"`
}

// Keep has numbers of snapshots. The newest one is always kept.
//
// +kubebuilder:validation:XValidation:rule="[has(self.daily) ? self.daily : 0, has(self.weekly) ? self.weekly : 0, has(self.monthly) ? self.monthly : 0].all(count, count >= 0 && count <= 1000)",message="a number is out of range; set 0 to 1000"
type Keep struct {
	// Daily is the number of days for which the newest snapshot is kept. 7 without it.
	// +optional
	Daily *int32 `json:"daily,omitempty"`
	// Weekly is the number of weeks for which the newest snapshot is kept. 4 without it.
	// +optional
	Weekly *int32 `json:"weekly,omitempty"`
	// Monthly is the number of months for which the newest snapshot is kept. 6 without it.
	// +optional
	Monthly *int32 `json:"monthly,omitempty"`
}

// BackupStatus is what pods have reported that saved and restored.
type BackupStatus struct {
	// LastBackup is when the newest snapshot was taken. Of a Dunlin, it is when the node made the newest backup in it.
	// +optional
	LastBackup *metav1.Time `json:"lastBackup,omitempty"`
	// LastSnapshot is its identifier.
	// +optional
	LastSnapshot string `json:"lastSnapshot,omitempty"`
	// Bytes of the files in it.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`
	// LastVerifiedRestore is when a snapshot was last restored, and found to have the bytes that were saved. A dump was also loaded, if there is
	// a RestoreCommand.
	// +optional
	LastVerifiedRestore *metav1.Time `json:"lastVerifiedRestore,omitempty"`
	// VerifiedSnapshot is that snapshot.
	// +optional
	VerifiedSnapshot string `json:"verifiedSnapshot,omitempty"`
	// VerifiedTaken is when it was taken. Of a Dunlin, it is when the node made the newest backup in it.
	// +optional
	VerifiedTaken *metav1.Time `json:"verifiedTaken,omitempty"`
	// Repository identifies the repository that this is about. It is a hash of its address, without the user and the password.
	// +optional
	Repository string `json:"repository,omitempty"`
	// SaveFailure is why the last backup has failed, if it has.
	// +optional
	SaveFailure *BackupFailure `json:"saveFailure,omitempty"`
	// VerifyFailure is why the last drill has failed, if it has.
	// +optional
	VerifyFailure *BackupFailure `json:"verifyFailure,omitempty"`
	// Operation is the one that was asked for last.
	// +optional
	Operation *Operation `json:"operation,omitempty"`
	// RestoreUnfinished is whether a restore may have replaced only a part of the volumes. The pods stay stopped, and nothing is saved, until
	// a restore has succeeded, or has found the volumes in one state.
	// +optional
	RestoreUnfinished bool `json:"restoreUnfinished,omitempty"`
	// LoadUnfinished is whether the app may have only a part of a dump, because a restore of it has failed. The pods run, and nothing is saved
	// until a restore has succeeded.
	// +optional
	LoadUnfinished bool `json:"loadUnfinished,omitempty"`
	// VolumeGeneration is that of the claims which the app uses. 0 stands for the first one. After the loss of a node, those of the next one
	// are used, and the earlier ones are kept.
	// +optional
	VolumeGeneration int32 `json:"volumeGeneration,omitempty"`
	// NodeLoss is the last loss of a node for which the operator restores, or has restored.
	// +optional
	NodeLoss *NodeLoss `json:"nodeLoss,omitempty"`
}

// Policies of DeletionPolicy.
const (
	DeletionPolicyDelete = "Delete"
	DeletionPolicyOrphan = "Orphan"
)

// Policies of OnNodeLoss.
const (
	OnNodeLossWait    = "Wait"
	OnNodeLossRestore = "RestoreFromBackup"
)

// NodeLoss is what is known of a node that was lost with the volume of an app's first pod.
type NodeLoss struct {
	// Node that was lost.
	Node string `json:"node"`
	// Claim of the first pod with the lost volume.
	Claim string `json:"claim"`
	// Volume that only the lost node has.
	Volume string `json:"volume"`
	// Lost is when the node was last ready, or when the operator found that it does not exist.
	Lost metav1.Time `json:"lost"`
	// Snapshot that is restored.
	Snapshot string `json:"snapshot"`
	// Taken is the VerifiedTaken of that snapshot. What was written from then to Lost is lost.
	// +optional
	Taken *metav1.Time `json:"taken,omitempty"`
	// Generation of the claims that it is restored into.
	Generation int32 `json:"generation"`
	// Failures is the number of attempts that have failed.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// Failed is when the last attempt failed.
	// +optional
	Failed *metav1.Time `json:"failed,omitempty"`
	// Failure is why it has failed.
	// +optional
	Failure string `json:"failure,omitempty"`
	// LostTargets is the number of attempts that were ended because the node with the new claims was lost as well.
	// +optional
	LostTargets int32 `json:"lostTargets,omitempty"`
	// Back is when the app served from its volumes again, before a restore has succeeded. A loss after it is another one.
	// +optional
	Back *metav1.Time `json:"back,omitempty"`
	// Restored is when the app moved to the new claims.
	// +optional
	Restored *metav1.Time `json:"restored,omitempty"`
	// Requested is the operation that a person had asked for before.
	// +optional
	Requested string `json:"requested,omitempty"`
}

// BackupFailure has the last words of a pod.
type BackupFailure struct {
	// Time of the failure.
	Time metav1.Time `json:"time"`
	// Message is the end of the pod's log.
	Message string `json:"message"`
}

// Phases of an operation.
const (
	// OperationWaits until no scheduled backup runs and, for a restore, until the app's pods are gone.
	OperationWaits     = "Waiting"
	OperationRuns      = "Running"
	OperationSucceeded = "Succeeded"
	OperationFailed    = "Failed"
)

// Operation is a backup, a drill or a restore that a person has asked for.
type Operation struct {
	// ID by which the request is known.
	ID string `json:"id"`
	// Kind is save, verify or restore.
	Kind string `json:"kind"`
	// Snapshot to restore. The newest one without it.
	Snapshot string `json:"snapshot,omitempty"`
	// Replace allows a restore into volumes that hold files.
	Replace bool `json:"replace,omitempty"`
	// Phase is Waiting, Running, Succeeded or Failed.
	Phase string `json:"phase"`
	// Generation of the claims that a restore after the loss of a node makes. 0: those that the app uses.
	// +optional
	Generation int32 `json:"generation,omitempty"`
	// Message says what it has done, or why it has failed.
	// +optional
	Message string `json:"message,omitempty"`
	// Taken is the time of the snapshot.
	// +optional
	Taken *metav1.Time `json:"taken,omitempty"`
}

// IsEnded is whether nothing more happens.
func (operation *Operation) IsEnded() bool {
	return operation == nil || operation.Phase == OperationSucceeded || operation.Phase == OperationFailed
}
