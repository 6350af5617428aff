package reconcile

import "fmt"

const (
	// ExpiresSoonSeconds before its end, a preview has an event and the condition ConditionExpiring.
	ExpiresSoonSeconds = 3600
	// previewPauseSecondsMax bounds the time between two looks at the clock: a timer does not follow a clock that is set.
	previewPauseSecondsMax = 3600
	// clockPauseSeconds is the time between two questions to the API server for its time while the clocks differ.
	clockPauseSeconds = 60
)

// PreviewState is a preview and the time that it has left.
type PreviewState struct {
	Of, Expires string
	SecondsLeft int64
	// IsClockAhead is true if the preview is over by the operator's clock and not by the API server's.
	IsClockAhead bool
}

func (preview *PreviewState) expiring() Condition {
	condition := Condition{ConditionExpiring, false, ReasonExpiresLater,
		fmt.Sprintf("this preview of %s is deleted at %s; deploy it again to extend it", preview.Of, preview.Expires)}
	switch {
	case preview.IsClockAhead:
		condition.Holds, condition.Reason = true, ReasonClockWrong
		condition.Message = fmt.Sprintf("the end of this preview of %s, %s, is over by the clock of the operator and not by that of the API server; set the clocks of the nodes",
			preview.Of, preview.Expires)
	case preview.SecondsLeft <= ExpiresSoonSeconds:
		condition.Holds, condition.Reason = true, ReasonExpiresSoon
	}
	return condition
}

// NextSeconds returns the pause until the condition of the preview changes or its time is over.
func (preview *PreviewState) NextSeconds() int64 {
	if preview.IsClockAhead {
		return clockPauseSeconds
	}
	until := preview.SecondsLeft - ExpiresSoonSeconds
	if until <= 0 {
		until = preview.SecondsLeft
	}
	return min(max(until, 1), previewPauseSecondsMax)
}
