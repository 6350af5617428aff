package command

import (
	"net/http"
	"net/url"
	"testing"
)

// TestNoDownloadLeavesHTTPS has redirects of a mirror, and their number.
func TestNoDownloadLeavesHTTPS(t *testing.T) {
	to := func(address string) *http.Request {
		parsed, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return &http.Request{URL: parsed}
	}
	for _, row := range []struct {
		first, next string
		redirects   int
		isTaken     bool
	}{
		{"https://github.com/a", "https://objects.example.com/a", 1, true},
		{"https://github.com/a", "http://objects.example.com/a", 1, false},
		{"http://127.0.0.1:8080/a", "http://127.0.0.1:8080/b", 1, true},
		{"https://github.com/a", "https://github.com/a", 9, true},
		{"https://github.com/a", "https://github.com/a", 10, false},
	} {
		var before []*http.Request
		for range row.redirects {
			before = append(before, to(row.first))
		}
		if err := keepsHTTPS(to(row.next), before); (err == nil) != row.isTaken {
			t.Errorf("%+v: %v", row, err)
		}
	}
}
