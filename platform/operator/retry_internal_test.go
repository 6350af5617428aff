package operator

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// attempts answers each attempt of a call in turn, with a status or, for 0, with an error. What comes after the last one is 200.
type attempts struct {
	statuses []int
	failure  error
	header   http.Header
	// bodies are those of the requests.
	bodies []string
	// after is called after an attempt.
	after func()
}

func (attempts *attempts) RoundTrip(request *http.Request) (*http.Response, error) {
	body := ""
	if request.Body != nil {
		text, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		body = string(text)
	}
	attempts.bodies = append(attempts.bodies, body)
	if attempts.after != nil {
		attempts.after()
	}
	status := http.StatusOK
	if count := len(attempts.bodies); count <= len(attempts.statuses) {
		status = attempts.statuses[count-1]
	}
	if status == 0 {
		return nil, attempts.failure
	}
	return &http.Response{StatusCode: status, Header: attempts.header, Body: io.NopCloser(strings.NewReader("{}")), Request: request}, nil
}

var errConnection = errors.New("the connection is gone")

// TestACallThatFailsOnItsWayIsRepeated has the attempts of one call, and its end.
func TestACallThatFailsOnItsWayIsRepeated(t *testing.T) {
	t.Parallel()
	const object, lease = "/api/v1/namespaces/web/services/shop", leasePath
	for _, row := range []struct {
		name, method, path string
		server             attempts
		// calls that are made, and the status at the end. 0: an error.
		calls, status int
	}{
		{"succeeds", http.MethodPatch, object, attempts{}, 1, 200},
		{"fails once", http.MethodPatch, object, attempts{statuses: []int{0}}, 2, 200},
		{"fails twice", http.MethodGet, object, attempts{statuses: []int{503, 0}}, 3, 200},
		{"fails three times", http.MethodDelete, object, attempts{statuses: []int{0, 0, 0}}, 3, 0},
		{"cannot be answered three times", http.MethodPost, object, attempts{statuses: []int{500, 502, 504}}, 3, 504},
		{"is refused", http.MethodPatch, object, attempts{statuses: []int{409}}, 1, 409},
		{"is too much", http.MethodPatch, object, attempts{statuses: []int{429}}, 1, 429},
		{"names a pause", http.MethodPatch, object, attempts{statuses: []int{503}, header: http.Header{"Retry-After": {"1"}}}, 1, 503},
		{"is a watch", http.MethodGet, object + "?watch=true", attempts{statuses: []int{0}}, 1, 0},
		{"renews the Lease", http.MethodPatch, lease, attempts{statuses: []int{0}}, 1, 0},
		{"has the name of Leases", http.MethodPatch, "/api/v1/namespaces/web/configmaps/leases", attempts{statuses: []int{0}}, 2, 200},
		{"is in a namespace of that name", http.MethodPatch, "/api/v1/namespaces/leases-of-cars/services/shop", attempts{statuses: []int{0}}, 2, 200},
		{"is of a deposed operator", http.MethodPatch, object, attempts{statuses: []int{0}, failure: errDeposed}, 1, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if row.server.failure == nil {
				row.server.failure = errConnection
			}
			request := requestOf(t, t.Context(), row.method, row.path)
			response, err := (&retry{&row.server}).RoundTrip(request)
			status := 0
			if err == nil {
				status = response.StatusCode
				response.Body.Close()
			} else if !errors.Is(err, row.server.failure) {
				t.Errorf("%v", err)
			}
			if status != row.status || len(row.server.bodies) != row.calls {
				t.Errorf("status %d after %d calls, want %d after %d", status, len(row.server.bodies), row.status, row.calls)
			}
			if slices.ContainsFunc(row.server.bodies, func(body string) bool { return body != "the body" }) {
				t.Errorf("the bodies of the calls: %q", row.server.bodies)
			}
		})
	}
}

// TestARepeatedCallEndsWithItsContext while it pauses, and after an attempt.
func TestARepeatedCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := &attempts{statuses: []int{0, 0, 0}, failure: errConnection, after: cancel}
	_, err := (&retry{server}).RoundTrip(requestOf(t, ctx, http.MethodGet, "/api/v1/namespaces/web/services/shop"))
	if !errors.Is(err, errConnection) || len(server.bodies) != 1 {
		t.Errorf("%v after %d calls", err, len(server.bodies))
	}
	if sleep(ctx, retryPauses[0]) {
		t.Error("the pause goes on after the end of the call")
	}
}

func requestOf(t *testing.T, ctx context.Context, method, path string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, "http://server.example.com"+path, strings.NewReader("the body"))
	if err != nil {
		t.Fatal(err)
	}
	return request
}
