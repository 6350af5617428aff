package operator

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
)

// errDeposed is the answer to writes of an operator whose Lease may have another holder by now.
var errDeposed = errors.New("the Lease was not renewed in time, so another operator may be the leader; nothing is written")

// fence lets an operator write for as long as nobody else can have its Lease. Without it, an operator that was stopped for a while, or
// cut off, would write beside its successor until it has found out.
//
// Another operator takes the Lease when it has seen no renewal for its whole duration. It has seen the last one after that was sent.
type fence struct {
	next  http.RoundTripper
	lease *heldLease
}

// heldLease is the Lease as its holder knows it.
type heldLease struct {
	// valid is how long after a renewal is sent the holder writes.
	valid time.Duration
	now   func() time.Time

	mutex sync.Mutex
	// renewed is when the last renewal that has succeeded was sent. Zero: the Lease was never held.
	renewed time.Time
}

func (lease *heldLease) renewedAt(sent time.Time) {
	lease.mutex.Lock()
	defer lease.mutex.Unlock()
	if sent.After(lease.renewed) {
		lease.renewed = sent
	}
}

// left is how long the holder may write. An operator that never held the Lease writes nothing but the Lease and events.
func (lease *heldLease) left() (left time.Duration, wasHeld bool) {
	lease.mutex.Lock()
	defer lease.mutex.Unlock()
	if lease.renewed.IsZero() {
		return 0, false
	}
	now := lease.now()
	// The monotonic clock stands still while the machine sleeps, and the other one may be set back.
	passed := max(now.Sub(lease.renewed), now.Round(0).Sub(lease.renewed.Round(0)))
	return lease.valid - passed, true
}

func (fence *fence) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet {
		return fence.next.RoundTrip(request)
	}
	left, wasHeld := fence.lease.left()
	if wasHeld && left <= 0 {
		// That holds for the Lease as well: to release it would take it from the successor.
		return nil, errDeposed
	}
	if strings.Contains(request.URL.Path, "/leases") {
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
	// A write that is under way for longer than the Lease is valid is given up.
	ctx, cancel := context.WithTimeout(request.Context(), left)
	response, err := fence.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &bodyWithDeadline{response.Body, cancel}
	return response, nil
}

// WrappedRoundTripper has client-go find what is below, to close idle connections.
func (fence *fence) WrappedRoundTripper() http.RoundTripper { return fence.next }
