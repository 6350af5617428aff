package operator

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestAWatchThatIsNeverAnswered has a server accept calls without answering. A watch that has begun has no end.
func TestAWatchThatIsNeverAnswered(t *testing.T) {
	begun := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/begins" {
			answer.WriteHeader(http.StatusOK)
			answer.(http.Flusher).Flush()
			<-begun
			_, _ = answer.Write([]byte("an event"))
			return
		}
		<-request.Context().Done()
	}))
	defer server.Close()
	const limit = 100 * time.Millisecond
	ask := func(path string) (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path+"?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		return (&deadline{http.DefaultTransport, limit}).RoundTrip(request)
	}
	if answer, err := ask("/silent"); !errors.Is(err, errUnanswered) {
		t.Errorf("%v, %v", answer, err)
	}
	answer, err := ask("/begins")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	time.AfterFunc(2*limit, func() { close(begun) })
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "an event" {
		t.Errorf("%q, %v", text, err)
	}
}
