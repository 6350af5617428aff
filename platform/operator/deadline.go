package operator

import (
	"context"
	"io"
	"net/http"
	"time"
)

// CallSecondsDefault bounds a call of the API. A server that takes a call and never answers would hold a worker for ever.
const CallSecondsDefault = 30

// deadline ends each call after a time. A watch is a call without an end.
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

// WrappedRoundTripper has client-go find what is below, to close idle connections.
func (deadline *deadline) WrappedRoundTripper() http.RoundTripper { return deadline.next }

type bodyWithDeadline struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (body *bodyWithDeadline) Close() error {
	defer body.cancel()
	return body.ReadCloser.Close()
}
