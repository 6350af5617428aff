package operator_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
)

// faults makes a part of all calls of an operator fail, in five ways.
type faults struct {
	mutex  sync.Mutex
	random *rand.Rand
	// share of the calls that fail: 0 to 1.
	share         float64
	calls, failed int
	kinds         map[string]int
}

var faultKinds = []string{"not sent", "answer lost", "too many", "never answered", "conflict"}

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
	if kind == "conflict" && request.Method == http.MethodGet {
		// A conflict is of a write.
		kind = "not sent"
	}
	faults.kinds[kind]++
	return kind
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
