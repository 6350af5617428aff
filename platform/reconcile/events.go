package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// Event is an event of an App or a Dunlin. Its message contains no more than the status does.
type Event struct {
	IsWarning       bool
	Reason, Message string
}

// Reasons of events, in addition to the reasons of Degraded and BackupFresh.
const (
	EventReleaseStarted  = "ReleaseStarted"
	EventRollbackStarted = "RollbackStarted"
	EventRolledOut       = "RolledOut"
	EventDriftUndone     = "DriftUndone"
	EventRecovered       = "Recovered"
	// EventRestoredFromBackup says that an app has moved to new volumes after the loss of a node.
	EventRestoredFromBackup = "RestoredFromBackup"
	// EventSessionsMissing says that a rollout has waited for sessions until its bound.
	EventSessionsMissing = "SessionsMissing"
	// EventNodesScaled says that the number of nodes of a Dunlin has changed.
	EventNodesScaled = "NodesScaled"
	// EventExpired says that a preview is deleted because its time is over.
	EventExpired = "Expired"
)

const (
	eventBytesMax = 1000
	// namesMax bounds the number of objects that an event names.
	namesMax = 5
)

// WriteEvents returns the events of writes that were performed. live are the objects before these writes.
func WriteEvents(before v1alpha1.Status, revision string, live []Manifest, writes []Write) []Event {
	isThere, paces := map[string]bool{}, map[string]string{}
	for _, object := range live {
		key := keyOf(object)
		isThere[key], paces[key] = true, annotation(object, AnnotationPace)
	}
	var written []string
	for _, write := range writes {
		if write.Kind != WriteApply {
			continue
		}
		key := keyOf(write.Object)
		if !isRevision(write.Object) {
			// A step of a rollout or of the autoscaling is not drift.
			if annotation(write.Object, AnnotationPace) == paces[key] {
				written = append(written, key)
			}
			continue
		}
		if isThere[key] {
			return []Event{{Reason: EventRollbackStarted, Message: fmt.Sprintf("rollback to revision %s", revision)}}
		}
		return []Event{{Reason: EventReleaseStarted, Message: fmt.Sprintf("revision %s", revision)}}
	}
	if len(written) == 0 || before.Revision != revision || hasCondition(before, ConditionProgressing) {
		return nil
	}
	return []Event{{Reason: EventDriftUndone, Message: "applied again, because they differed from the spec: " + listed(written)}}
}

func listed(names []string) string {
	if more := len(names) - namesMax; more > 0 {
		names = append(slices.Clone(names[:namesMax]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// StatusEvents returns the events of the differences between two statuses.
func StatusEvents(before, after v1alpha1.Status) []Event {
	var events []Event
	for _, condition := range after.Conditions {
		earlier := meta.FindStatusCondition(before.Conditions, condition.Type)
		if earlier == nil {
			earlier = &metav1.Condition{}
		}
		isBad := condition.Type == ConditionDegraded && condition.Status == metav1.ConditionTrue ||
			condition.Type == ConditionBackupFresh && condition.Status == metav1.ConditionFalse && earlier.Status == metav1.ConditionTrue
		isSame := earlier.Status == condition.Status && earlier.Reason == condition.Reason && earlier.Message == condition.Message
		switch {
		case isBad && !isSame:
			events = append(events, Event{true, condition.Reason, head(condition.Message, eventBytesMax)})
		case condition.Type == ConditionExpiring && condition.Status == metav1.ConditionTrue && !isSame:
			events = append(events, Event{true, condition.Reason, condition.Message})
		case condition.Type == ConditionDegraded && earlier.Status == metav1.ConditionTrue && !isBad:
			events = append(events, Event{Reason: EventRecovered, Message: "no longer " + earlier.Reason})
		}
	}
	if loss := restoredLoss(before.Backup, after.Backup); loss != nil {
		events = append(events, Event{true, EventRestoredFromBackup, head(SentenceOfLoss(loss), eventBytesMax)})
	}
	if after.Revision != before.Revision {
		ready := cmp.Or(meta.FindStatusCondition(after.Conditions, ConditionReady), &metav1.Condition{})
		events = append(events, Event{Reason: EventRolledOut, Message: head(fmt.Sprintf("revision %s: %s", after.Revision, ready.Message), eventBytesMax)})
	}
	return events
}

// restoredLoss returns the loss of a node after which the app has moved to new volumes between the two statuses, or nil.
func restoredLoss(before, after *v1alpha1.BackupStatus) *v1alpha1.NodeLoss {
	if after == nil || after.NodeLoss == nil || after.NodeLoss.Restored == nil || before != nil && before.VolumeGeneration == after.VolumeGeneration {
		return nil
	}
	return after.NodeLoss
}

func hasCondition(status v1alpha1.Status, kind string) bool {
	return meta.IsStatusConditionTrue(status.Conditions, kind)
}

// head returns the beginning of a text. It does not split characters.
func head(text string, bytesMax int) string {
	if len(text) > bytesMax {
		text = strings.ToValidUTF8(text[:bytesMax], "") + "…"
	}
	return text
}
