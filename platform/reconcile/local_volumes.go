package reconcile

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeLostSeconds is how long a node is not ready before it counts as lost. A machine that restarts is back by then.
const nodeLostSeconds = 300

// LocalVolume is a volume that exists on one node only, and that a pod needs which does not run.
type LocalVolume struct {
	Pod, Claim, Volume, Node string
	// Job that the pod belongs to, if any.
	Job string
	// IsNodeThere is true if Kubernetes has the node.
	IsNodeThere bool
	// NotReadySeconds is how long the node has not been ready. Nil while the node is ready.
	NotReadySeconds *int64
	// NotReadyFrom is when the node stopped being ready. NotReadySince is the same as text, for the message.
	NotReadyFrom  *metav1.Time
	NotReadySince string
}

// isLost reports whether the node is gone, or has not been ready for longer than nodeLostSeconds.
func (volume LocalVolume) isLost() bool {
	if !volume.IsNodeThere {
		return true
	}
	return volume.NotReadySeconds != nil && *volume.NotReadySeconds > nodeLostSeconds
}

// lostVolume returns the first volume whose node is lost, or nil. Pods of Jobs come last, because a message about the app's own pod is clearer.
func lostVolume(volumes []LocalVolume) *LocalVolume {
	var found *LocalVolume
	for index := range volumes {
		if volume := &volumes[index]; volume.isLost() && (found == nil || found.Job != "" && volume.Job == "") {
			found = volume
		}
	}
	return found
}

// whyNodeLost returns the message of NodeLost. It contains times instead of ages: a message that changes with the clock would be written again
// and again.
func whyNodeLost(volume LocalVolume, backup *BackupState) string {
	state := "which does not exist any more"
	if volume.IsNodeThere {
		state = "which has not been ready since " + volume.NotReadySince
	}
	loss := "There is no backup of it that roost can restore"
	if backup != nil && volume.Pod != backup.FirstPod {
		loss += ": only the volumes of " + backup.FirstPod + " are saved"
	} else if backup != nil && backup.HasRepository && backup.LastBackup != "" {
		loss = "The last backup is of " + backup.LastBackup + "; a restore loses data that was written after it"
		if backup.VerifiedAgeSeconds == nil {
			loss += ", and no restore was verified yet"
		}
	}
	if backup != nil && backup.Policy != "" && volume.Pod == backup.FirstPod {
		loss = backup.Policy
	}
	return fmt.Sprintf("%s waits for node %s, %s: only that node has volume %s of claim %s. Nothing is deleted. Start the node again, "+
		"or replace the volume as docs/backups.md describes under \"A node that is lost\". %s",
		volume.Pod, volume.Node, state, volume.Volume, volume.Claim, loss)
}
