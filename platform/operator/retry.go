package operator

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// retryPauses are the minimum pauses before the second and the third attempt of a call. Jitter at most doubles them.
var retryPauses = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond}

// retriedBytesMax bounds the bytes of a response that are drained before the next attempt, so that the connection can be reused.
const retriedBytesMax = 64 << 10

// retry retries a call if the connection fails or the API server responds with 500, 502, 503 or 504. The first failed call ends a pass, and a
// pass makes many calls, so without retries few passes complete while a part of all calls fails. All calls of the operator can be repeated after
// the server has performed them: they apply a whole object, delete an object by UID, or create an object, where AlreadyExists is no error. Only
// the repeated write of a status is refused, with a conflict, because it names a resourceVersion; report reads whether the status is there.
//
// client-go itself retries responses with status 429 or with a Retry-After header. Watches and the Lease have their own retries.
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

// WrappedRoundTripper lets client-go find the wrapped transport, to close idle connections.
func (retry *retry) WrappedRoundTripper() http.RoundTripper { return retry.next }

func isRepeatable(request *http.Request) bool {
	isWatch := request.URL.Query().Get("watch") != ""
	hasBody := request.Body != nil && request.Body != http.NoBody
	return !isWatch && !isOfLease(request) && (!hasBody || request.GetBody != nil)
}

// isTransient reports whether another attempt may succeed. A deposed operator remains deposed.
func isTransient(response *http.Response, err error) bool {
	if err != nil {
		return !errors.Is(err, errDeposed)
	}
	codes := []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	return slices.Contains(codes, response.StatusCode) && response.Header.Get("Retry-After") == ""
}

// sleep reports whether the whole pause passed before the context ended.
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

// again returns a copy of the request with its body rewound.
func again(request *http.Request) (*http.Request, error) {
	fresh := request.Clone(request.Context())
	if request.GetBody == nil {
		return fresh, nil
	}
	var err error
	fresh.Body, err = request.GetBody()
	return fresh, err
}
