package v1alpha1

import "time"

// ExpiredAlready is the time of a preview that is to be deleted at once, however far clocks differ.
const ExpiredAlready = "1970-01-01T00:00:00Z"

// Bounds of the time that a preview lives. The shortest one leaves time for a rollout.
const (
	PreviewDefault = 72 * time.Hour
	PreviewMin     = 10 * time.Minute
	PreviewMax     = 30 * 24 * time.Hour
)

// Preview marks an App as a preview of another one.
type Preview struct {
	// Of is the name of the App whose manifest was deployed under another name. The name of the preview begins with it and `-`.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot change to another App; choose another --as"
	Of string `json:"of"`
	// Expires is the time in UTC at which the operator deletes the App and all that belongs to it. A change starts no pods.
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$')",messageExpression="'\"' + self + '\" is not a time; write one in UTC such as 2026-12-03T09:30:00Z'"
	Expires string `json:"expires"`
}

// ExpiresAt returns the time of Expires.
func (preview *Preview) ExpiresAt() (time.Time, error) {
	return time.Parse(time.RFC3339, preview.Expires)
}

// ExpiryText returns a time as the value of Expires.
func ExpiryText(when time.Time) string { return when.UTC().Format(time.RFC3339) }
