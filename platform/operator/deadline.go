package operator

import (
	"context"
	"io"
	"net/http"
	"time"
)

// CallSecondsDefault is the timeout of an API call. Without it, a server that accepts a call and never responds would block a worker forever.
const CallSecondsDefault = 30

// deadline sets a timeout for each call except a watch, which has no end.
type deadline struct {
	next  http.RoundTripper
	limit time.Duration
}

func (deadline *deadline) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") != "" {
		return deadline.next.RoundTrip(request)
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
