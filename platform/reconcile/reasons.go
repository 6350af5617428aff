package reconcile

import "slices"

// Types of conditions.
const (
	ConditionReady             = "Ready"
	ConditionProgressing       = "Progressing"
	ConditionDegraded          = "Degraded"
	ConditionSettingsDecrypted = "SettingsDecrypted"
	ConditionBackupFresh       = "BackupFresh"
	ConditionExpiring          = "Expiring"
)

// Reasons of conditions.
const (
	ReasonAsDesired          = "AsDesired"
	ReasonApplying           = "Applying"
	ReasonRollingOut         = "RollingOut"
	ReasonMigrating          = "Migrating"
	ReasonMigrationFailed    = "MigrationFailed"
	ReasonNameTaken          = "NameTaken"
	ReasonWaitingForDeletion = "WaitingForDeletion"
	ReasonPodFailing         = "PodFailing"
	ReasonNoPodReady         = "NoPodReady"
	ReasonSettingsUnreadable = "SettingsUnreadable"
	ReasonBackupRecent       = "BackupRecent"
	ReasonBackupOld          = "BackupOld"
	ReasonBackupNever        = "BackupNever"
	ReasonBackupFailed       = "BackupFailed"
	ReasonBackupNotStarting  = "BackupNotStarting"
	ReasonRestoreNever       = "RestoreNever"
	ReasonRestoreOld         = "RestoreOld"
	ReasonRestoreFailed      = "RestoreFailed"
	ReasonSpecInvalid        = "SpecInvalid"
	ReasonHostTaken          = "HostTaken"
	ReasonWriteRefused       = "WriteRefused"
	ReasonRolloutStalled     = "RolloutStalled"
	ReasonSecretRefused      = "SecretRefused"
	ReasonImageRefused       = "ImageRefused"
	ReasonNodeLost           = "NodeLost"
	ReasonRestoreUnfinished  = "RestoreUnfinished"
	ReasonPodNotReady        = "PodNotReady"
	ReasonNodeOutOfCluster   = "NodeOutOfCluster"
	ReasonExpiresLater       = "ExpiresLater"
	ReasonExpiresSoon        = "ExpiresSoon"
	ReasonClockWrong         = "ClockWrong"
	ReasonExpiresTooFar      = "ExpiresTooFar"
	ReasonExpiresUnreadable  = "ExpiresUnreadable"
)

// ConditionMeaning describes a condition for the reference.
type ConditionMeaning struct{ Type, Meaning string }

// Conditions lists all types of conditions, in the order of the status.
var Conditions = []ConditionMeaning{
	{ConditionSettingsDecrypted, "The encrypted files are there, and the operator can decrypt them."},
	{ConditionReady, "At least one pod of each workload serves."},
	{ConditionProgressing, "The live objects are not yet as the spec has them, and the operator or Kubernetes works on it."},
	{ConditionDegraded, "Something fails and needs you. Pods of the previous revision may serve nevertheless: look at `Ready`."},
	{ConditionBackupFresh, "The last backup and the last verified restore are recent enough. Only with `spec.backup`."},
	{ConditionExpiring, "The operator deletes the App within the next hour, because it is a preview. Only with `spec.preview`."},
}

// ReasonMeaning describes a reason for the reference: the conditions that have it, what it means, and what you do.
type ReasonMeaning struct{ Reason, Conditions, Meaning, Remedy string }

// Reasons lists all reasons of conditions. There are no others.
var Reasons = []ReasonMeaning{
	{ReasonAsDesired, "Ready=True, Progressing=False, Degraded=False, SettingsDecrypted=True", "The condition is as it should be.", "Nothing."},
	{ReasonApplying, "Progressing=True", "Objects are being written.", "Nothing. If it stays, look at the log of the operator."},
	{ReasonMigrating, "Progressing=True", "The Job of `spec.migrate` runs. Pods of the previous revision serve until it succeeds.", "Nothing. `roost logs --jobs` shows its output."},
	{ReasonRollingOut, "Progressing=True", "Pods are being replaced, or a Dunlin waits before it replaces the next node. The message says for what.", "Nothing, unless `Degraded` has a reason."},
	{ReasonWaitingForDeletion, "Progressing=True", "Objects of an earlier App or Dunlin of this name are still being deleted.", "Nothing. If it stays, look for finalizers on the objects that the message names."},
	{ReasonNoPodReady, "Ready=False", "No pod of a workload is ready, and nothing has failed yet.", "Wait for `spec.health.startSeconds`; then `Degraded` says what fails."},
	{ReasonSpecInvalid, "Degraded=True", "The spec breaks a rule that the API server does not check. Nothing is written.", "Correct the field that the message names; `roost validate` finds it as well."},
	{ReasonExpiresTooFar, "Degraded=True", "The time of a preview is more than 30 days and an hour away. Nothing is written, and the preview is deleted 30 days after the operator has found that.", "Deploy the preview again, with `--expires` of at most 720h."},
	{ReasonExpiresUnreadable, "Degraded=True", "The time of a preview is none, such as that of a day that the month does not have. Nothing is written, and the preview is deleted 30 days after the operator has found that.", "Deploy the preview again, or set `spec.preview.expires` to a time."},
	{ReasonHostTaken, "Degraded=True", "Another App or Dunlin has the same host and path, and had it first; an App that is no preview comes before previews. Nothing is written.", "Change `spec.host`, `spec.hosts` or `spec.path`, or delete the other one."},
	{ReasonSecretRefused, "Degraded=True", "The Secret of `spec.keys.secret` is missing, has no label, or lacks a key. Nothing is written.", "Follow the command in the message."},
	{ReasonImageRefused, "Degraded=True", "An image has no digest or no valid signature, or its registry does not answer. Nothing is written.", "Sign the image, or see docs/images.md."},
	{ReasonSettingsUnreadable, "SettingsDecrypted=False, Degraded=True", "A file is missing, or the age identity of the namespace does not decrypt it. Nothing is written, and the pods keep running.", "Deploy the files again, or see docs/identities.md."},
	{ReasonWriteRefused, "Degraded=True", "The API server refuses an object, and would refuse it again.", "The message has its answer: often a quota, an admission policy, or a volume whose size cannot be changed."},
	{ReasonNameTaken, "Degraded=True", "Others have created an object with a name that the spec needs. Nothing is written.", "Rename or delete the objects that the message names. If one belongs to a preview, delete the preview, or wait until it ends."},
	{ReasonMigrationFailed, "Degraded=True", "The Job of `spec.migrate` failed. Pods of the previous revision serve.", "The message ends with its last output. Deploy a fix, or `roost rollback`."},
	{ReasonRestoreUnfinished, "Degraded=True", "A restore was interrupted or failed, so volumes may hold parts of two states. The pods stay stopped, unless a dump was loaded.", "Run `roost restore` again."},
	{ReasonNodeLost, "Degraded=True", "A pod waits for a volume that only a lost node has.", "Start the node, or see \"A node that is lost\" in docs/backups.md."},
	{ReasonPodFailing, "Degraded=True", "A pod does not start, or ends again and again.", "The message has the end of its log; `roost logs --previous` shows more. Deploy a fix, or `roost rollback`."},
	{ReasonRolloutStalled, "Degraded=True", "The new pods did not become ready in time. Pods of the previous revision serve.", "Look at `roost logs` and the health check. Deploy a fix, or `roost rollback`."},
	{ReasonPodNotReady, "Degraded=True", "A pod has run for more than 20 seconds and its health check does not pass.", "Look at `roost logs`. A slow start needs a larger `spec.health.startSeconds`."},
	{ReasonNodeOutOfCluster, "Degraded=True", "A node of a Dunlin serves without a connection to NATS.", "Check the NATS servers and `nats_password`."},
	{ReasonBackupRecent, "BackupFresh=True", "The last backup and the last verified restore are recent enough.", "Nothing."},
	{ReasonBackupNever, "BackupFresh=False", "There was no backup yet.", "Wait for the schedule, or run `roost backup`."},
	{ReasonBackupOld, "BackupFresh=False", "The last backup is older than `spec.backup.freshSeconds`.", "Look at `roost logs --jobs`; `roost backup` makes one now."},
	{ReasonBackupFailed, "BackupFresh=False", "The last backup failed.", "The message has its last output."},
	{ReasonBackupNotStarting, "BackupFresh=False", "The pod of a backup or of a drill does not start.", "The message has the reason of Kubernetes."},
	{ReasonRestoreNever, "BackupFresh=False", "No restore was verified yet, or there is no repository to restore from.", "Set `spec.backup.repository`, or run `roost drill`."},
	{ReasonRestoreOld, "BackupFresh=False", "The last verified restore is older than `spec.backup.verifiedSeconds`.", "Run `roost drill`."},
	{ReasonRestoreFailed, "BackupFresh=False", "The last drill failed, so the backups may not be restorable.", "The message has its last output; see docs/backups.md."},
	{ReasonExpiresLater, "Expiring=False", "The preview is deleted at the time in the message, which is more than an hour away.", "Nothing. `roost deploy --as` again extends it."},
	{ReasonExpiresSoon, "Expiring=True", "The preview is deleted at the time in the message, within an hour.", "To keep it, run `roost deploy --as` again."},
	{ReasonClockWrong, "Expiring=True", "The preview is over by the clock of the operator, and not by that of the API server. Nothing is deleted.", "Set the clocks of the nodes: they should follow NTP. The preview is deleted when its time is over by both."},
}

// CountsFromReason reports whether a time is counted from the moment at which a condition got this reason, and not only from its last change between true
// and false.
func CountsFromReason(reason string) bool {
	return reason == ReasonExpiresTooFar || reason == ReasonExpiresUnreadable
}

// IsReason reports whether a reason is in the list.
func IsReason(name string) bool {
	return slices.ContainsFunc(Reasons, func(known ReasonMeaning) bool { return known.Reason == name })
}
