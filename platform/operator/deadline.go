package operator

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// CallSecondsDefault is the timeout of an API call. Without it, a server that accepts a call and never responds would block a worker forever.
const CallSecondsDefault = 30

// errUnanswered is the error of a watch that the server does not begin to answer.
var errUnanswered = errors.New("the API server does not answer the watch")

// deadline sets a timeout for each call. A watch has no end, so its timeout is that of the beginning of the response: a cache whose watch is accepted
// and never answered would stay empty.
type deadline struct {
	next  http.RoundTripper
	limit time.Duration
}

func (deadline *deadline) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") != "" {
		return deadline.watch(request)
	}
	ctx, cancel := context.WithTimeout(request.Context(), deadline.limit)
	response, err := deadline.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &bodyWithDeadline{response.Body, cancel}
	return response, nil
}

func (deadline *deadline) watch(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(request.Context())
	expiry := time.AfterFunc(deadline.limit, func() { cancel(errUnanswered) })
	response, err := deadline.next.RoundTrip(request.WithContext(ctx))
	isLate := !expiry.Stop()
	if err == nil && !isLate {
		response.Body = &bodyWithDeadline{response.Body, func() { cancel(nil) }}
		return response, nil
	}
	if err == nil {
		_ = response.Body.Close()
	}
	if isLate {
		err = errUnanswered
	}
	cancel(nil)
	return nil, err
}

// WrappedRoundTripper returns the wrapped transport, so that client-go can close idle connections.
func (deadline *deadline) WrappedRoundTripper() http.RoundTripper { return deadline.next }

type bodyWithDeadline struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (body *bodyWithDeadline) Close() error {
	defer body.cancel()
	return body.ReadCloser.Close()
}
