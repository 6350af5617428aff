package reconcile

import "fmt"

const (
	// ExpiresSoonSeconds before its end, a preview has an event and the condition ConditionExpiring.
	ExpiresSoonSeconds = 3600
	// previewPauseSecondsMax bounds the time between two looks at the clock: a timer does not follow a clock that is set.
	previewPauseSecondsMax = 3600
)

// PreviewState is a preview and the time that it has left.
type PreviewState struct {
	Of, Expires string
	SecondsLeft int64
}

func (preview *PreviewState) expiring() Condition {
	condition := Condition{ConditionExpiring, false, ReasonExpiresLater,
		fmt.Sprintf("this preview of %s is deleted at %s; deploy it again to extend it", preview.Of, preview.Expires)}
	if preview.SecondsLeft <= ExpiresSoonSeconds {
		condition.Holds, condition.Reason = true, ReasonExpiresSoon
	}
	return condition
}

// NextSeconds returns the pause until the condition of the preview changes or its time is over.
func (preview *PreviewState) NextSeconds() int64 {
	until := preview.SecondsLeft - ExpiresSoonSeconds
	if until <= 0 {
		until = preview.SecondsLeft
	}
	return min(max(until, 1), previewPauseSecondsMax)
}
