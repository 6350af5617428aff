package operator_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// faults makes a part of all calls of an operator fail, in six ways.
type faults struct {
	mutex  sync.Mutex
	random *rand.Rand
	// share of the calls that fail: 0 to 1.
	share         float64
	calls, failed int
	kinds         map[string]int
	// late counts the writes of statuses that the server has still to perform. No WaitGroup: while a test waits for its end, further ones begin.
	late int
}

// lateAfter is the time between the end of the operator's wait for an answer and the write.
const lateAfter = time.Second

var faultKinds = []string{"not sent", "answer lost", "too many", "never answered", "conflict", "performed late"}

func newFaults(seed uint64) *faults {
	return &faults{random: rand.New(rand.NewPCG(seed, 0)), kinds: map[string]int{}}
}

// begin resets the counts.
func (faults *faults) begin(share float64) {
	faults.mutex.Lock()
	defer faults.mutex.Unlock()
	faults.share, faults.calls, faults.failed = share, 0, 0
}

func (faults *faults) counts() (calls, failed int) {
	faults.mutex.Lock()
	defer faults.mutex.Unlock()
	return faults.calls, faults.failed
}

// next returns how a call fails, or an empty string.
func (faults *faults) next(request *http.Request) string {
	faults.mutex.Lock()
	defer faults.mutex.Unlock()
	faults.calls++
	if faults.random.Float64() >= faults.share {
		return ""
	}
	faults.failed++
	kind := faultKinds[faults.failed%len(faultKinds)]
	switch {
	case kind == "conflict" && request.Method == http.MethodGet:
		// A conflict is of a write.
		kind = "not sent"
	case kind == "performed late" && !strings.HasSuffix(request.URL.Path, "/status"):
		// Another late write is drift, and the test does not see when that is undone.
		kind = "never answered"
	}
	if kind == "performed late" {
		faults.late++
	}
	faults.kinds[kind]++
	return kind
}

// hasNoLateWrites reports whether the server has performed all writes that it performs late.
func (faults *faults) hasNoLateWrites() bool {
	faults.mutex.Lock()
	defer faults.mutex.Unlock()
	return faults.late == 0
}

func (faults *faults) endLateWrite() {
	faults.mutex.Lock()
	defer faults.mutex.Unlock()
	faults.late--
}

type faultyTransport struct {
	faults *faults
	next   http.RoundTripper
}

func (faults *faults) wrap(next http.RoundTripper) http.RoundTripper {
	return &faultyTransport{faults, next}
}

func (transport *faultyTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	switch transport.faults.next(request) {
	case "not sent":
		return nil, errInjected
	case "answer lost":
		response, err := transport.next.RoundTrip(request)
		if err == nil {
			response.Body.Close()
			err = errInjected
		}
		return nil, err
	case "too many":
		return answer(request, http.StatusTooManyRequests, "TooManyRequests"), nil
	case "never answered":
		<-request.Context().Done()
		return nil, request.Context().Err()
	case "conflict":
		return answer(request, http.StatusConflict, "Conflict"), nil
	case "performed late":
		late := request.Clone(context.Background())
		<-request.Context().Done()
		go func() {
			defer transport.faults.endLateWrite()
			time.Sleep(lateAfter) // the time in which other passes end
			if response, err := transport.next.RoundTrip(late); err == nil {
				response.Body.Close()
			}
		}()
		return nil, request.Context().Err()
	}
	return transport.next.RoundTrip(request)
}

// answer returns an error in the format of the API server.
func answer(request *http.Request, code int, reason string) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"injected","code":%d}`, reason, code)
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}, "Retry-After": {"1"}},
		Body:   io.NopCloser(bytes.NewReader([]byte(body))),
	}
}
