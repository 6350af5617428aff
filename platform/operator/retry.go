package operator

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// retryPauses are before the second and the third attempt of a call, and up to twice as long.
var retryPauses = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond}

// retriedBytesMax of an answer are read before the next attempt, so that the connection can be used again.
const retriedBytesMax = 64 << 10

// retry repeats a call that has failed on its way, or because the API server could not answer. A pass has many calls, and the first one that
// fails ends it: if some of all calls fail, few passes would come to their end. Each call of the operator can be repeated: it applies a whole
// object, deletes one by UID, or makes one whose name another attempt has taken.
//
// client-go repeats what is answered with 429 or with a Retry-After header. Watches and the Lease have a pace of their own.
type retry struct {
	next http.RoundTripper
}

func (retry *retry) RoundTrip(request *http.Request) (*http.Response, error) {
	if !isRepeatable(request) {
		return retry.next.RoundTrip(request)
	}
	for _, pause := range retryPauses {
		response, err := retry.next.RoundTrip(request)
		if !isTransient(response, err) || request.Context().Err() != nil {
			return response, err
		}
		if response != nil {
			_, _ = io.CopyN(io.Discard, response.Body, retriedBytesMax)
			_ = response.Body.Close()
		}
		if !sleep(request.Context(), pause+rand.N(pause)) {
			return nil, request.Context().Err()
		}
		if request, err = again(request); err != nil {
			return nil, err
		}
	}
	return retry.next.RoundTrip(request)
}

// WrappedRoundTripper has client-go find what is below, to close idle connections.
func (retry *retry) WrappedRoundTripper() http.RoundTripper { return retry.next }

func isRepeatable(request *http.Request) bool {
	isWatch := request.URL.Query().Get("watch") != ""
	hasBody := request.Body != nil && request.Body != http.NoBody
	return !isWatch && !strings.Contains(request.URL.Path, "/leases") && (!hasBody || request.GetBody != nil)
}

// isTransient is whether another attempt may succeed. An operator that was deposed stays so.
func isTransient(response *http.Response, err error) bool {
	if err != nil {
		return !errors.Is(err, errDeposed)
	}
	codes := []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	return slices.Contains(codes, response.StatusCode) && response.Header.Get("Retry-After") == ""
}

// sleep returns whether the pause has passed.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// again is a request with its body from the start.
func again(request *http.Request) (*http.Request, error) {
	fresh := request.Clone(request.Context())
	if request.GetBody == nil {
		return fresh, nil
	}
	var err error
	fresh.Body, err = request.GetBody()
	return fresh, err
}
