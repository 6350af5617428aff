package operator

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/roost-system/leases/roost-operator"

// answering counts calls. It responds with a status, or not at all.
type answering struct {
	status, calls int
	isSilent      bool
	// before is called before the answer.
	before func()
}

func (server *answering) RoundTrip(request *http.Request) (*http.Response, error) {
	server.calls++
	if server.isSilent {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	if server.before != nil {
		server.before()
	}
	return &http.Response{StatusCode: server.status, Body: io.NopCloser(strings.NewReader("{}")), Request: request}, nil
}

// TestADeposedOperatorWritesNothing checks writes at the expiry of the Lease and after it.
func TestADeposedOperatorWritesNothing(t *testing.T) {
	now := time.Unix(1_000_000_000, 0)
	server := &answering{status: http.StatusOK}
	lease := &heldLease{valid: 10 * time.Second, now: func() time.Time { return now }}
	fence := &fence{server, lease}
	call := func(method, path string) error {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://server.example.com"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := fence.RoundTrip(request)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	const object = "/api/v1/namespaces/web/services/shop"
	must := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	must("before the first election", call(http.MethodPatch, object), nil)
	// The answer takes three seconds: what counts is when the renewal was sent.
	server.before = func() { now = now.Add(3 * time.Second) }
	must("the election", call(http.MethodPut, leasePath), nil)
	server.before = nil
	now = now.Add(7*time.Second - 1)
	must("at the bound", call(http.MethodPatch, object), nil)
	server.status = http.StatusConflict
	must("a renewal that is refused", call(http.MethodPut, leasePath), nil)
	server.status = http.StatusOK
	now = now.Add(1)
	calls := server.calls
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		must(method+" after it", call(method, object), errDeposed)
		must(method+" of the Lease after it", call(method, leasePath), errDeposed)
	}
	if server.calls != calls {
		t.Errorf("the server has got %d writes", server.calls-calls)
	}
	must("a read after it", call(http.MethodGet, object), nil)
}

// TestAWriteThatIsUnderWayIsGivenUp checks that a write is canceled when the Lease expires, so that an interrupted network does not deliver it later.
func TestAWriteThatIsUnderWayIsGivenUp(t *testing.T) {
	lease := &heldLease{valid: 50 * time.Millisecond, now: time.Now}
	lease.renewedAt(time.Now())
	fence := &fence{&answering{isSilent: true}, lease}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://server.example.com/api/v1/namespaces/web/services/shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := fence.RoundTrip(request)
	if err == nil {
		response.Body.Close()
		t.Fatal("the write has an answer")
	}
	if left, wasHeld := lease.left(); left > 0 || !wasHeld {
		t.Errorf("it was given up %s before the Lease ended", left)
	}
}
