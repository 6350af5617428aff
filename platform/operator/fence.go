package operator

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
)

// errDeposed is returned for writes of an operator whose Lease may have another holder.
var errDeposed = errors.New("the Lease was not renewed in time, so another operator may be the leader; nothing is written")

// fence lets an operator write only while no other operator can hold its Lease. Without it, an operator that was paused or cut off would write at the
// same time as its successor, until it notices that it is not the leader any more.
//
// Another operator takes the Lease after it has seen no renewal for the duration of the Lease. It sees a renewal after that was sent.
type fence struct {
	next  http.RoundTripper
	lease *heldLease
}

// heldLease is the state of the Lease as known to its holder.
type heldLease struct {
	// valid is how long the holder may write after it has sent a renewal.
	valid time.Duration
	now   func() time.Time

	mutex sync.Mutex
	// renewed is when the last successful renewal was sent. Zero: the Lease was never held.
	renewed time.Time
}

func (lease *heldLease) renewedAt(sent time.Time) {
	lease.mutex.Lock()
	defer lease.mutex.Unlock()
	if sent.After(lease.renewed) {
		lease.renewed = sent
	}
}

// left returns how long the holder may still write. An operator that never held the Lease writes only the Lease and events.
func (lease *heldLease) left() (left time.Duration, wasHeld bool) {
	lease.mutex.Lock()
	defer lease.mutex.Unlock()
	if lease.renewed.IsZero() {
		return 0, false
	}
	now := lease.now()
	// The monotonic clock stops while the machine sleeps, and the wall clock may be set back.
	passed := max(now.Sub(lease.renewed), now.Round(0).Sub(lease.renewed.Round(0)))
	return lease.valid - passed, true
}

// isOfLease reports whether a request is about a Lease. The names of other objects may contain "leases".
func isOfLease(request *http.Request) bool {
	return strings.Contains(request.URL.Path, "/apis/coordination.k8s.io/")
}

func (fence *fence) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet {
		return fence.next.RoundTrip(request)
	}
	left, wasHeld := fence.lease.left()
	if wasHeld && left <= 0 {
		// This includes writes of the Lease: a release would take it from the successor.
		return nil, errDeposed
	}
	if isOfLease(request) {
		sent := fence.lease.now()
		response, err := fence.next.RoundTrip(request)
		if err == nil && response.StatusCode < http.StatusMultipleChoices {
			fence.lease.renewedAt(sent)
		}
		return response, err
	}
	if !wasHeld {
		return fence.next.RoundTrip(request)
	}
	// A write is canceled when the Lease expires.
	ctx, cancel := context.WithTimeout(request.Context(), left)
	response, err := fence.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &bodyWithDeadline{response.Body, cancel}
	return response, nil
}

// WrappedRoundTripper returns the wrapped transport, so that client-go can close idle connections.
func (fence *fence) WrappedRoundTripper() http.RoundTripper { return fence.next }
