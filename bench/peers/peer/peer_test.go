package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOnlyARequestWithTheKeyPublishes(t *testing.T) {
	var published []string
	handler := PublishHandler("k", func(channel string, data json.RawMessage) error {
		if channel == "full" {
			return errors.New("full")
		}
		published = append(published, channel+" "+string(data))
		return nil
	})
	for _, one := range []struct {
		key, body string
		status    int
	}{
		{"k", `{"channel":"a","data":{"b":1}}`, http.StatusOK},
		{"", `{"channel":"a","data":2}`, http.StatusUnauthorized},
		{"k", `{"channel":`, http.StatusBadRequest},
		{"k", `{"channel":"full","data":3}`, http.StatusInternalServerError},
		{"k", `{"channel":"a","data":"` + strings.Repeat("x", requestBytesMax) + `"}`, http.StatusBadRequest},
	} {
		request := httptest.NewRequest(http.MethodPost, "/api/publish", strings.NewReader(one.body))
		request.Header.Set("X-API-Key", one.key)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != one.status {
			t.Errorf("key %q, %.40s: status %d, want %d", one.key, one.body, answer.Code, one.status)
		}
	}
	if got := fmt.Sprint(published); got != `[a {"b":1}]` {
		t.Errorf("published %s", got)
	}
}

func TestAConfigurationIsReadAsFarAsItIsNeeded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	text := `{"shards":1,"http_server":{"address":"127.0.0.1","port":5},"http_api":{"key":"k"},"client":{"queue_max_size":7}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := ReadConfig(path)
	if err != nil || config.HTTPServer.Port != 5 || config.HTTPAPI.Key != "k" || config.Client.QueueMaxSize != 7 {
		t.Errorf("%+v, %v", config, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfig(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("the error %v does not name the file", err)
	}
}

func TestFiguresAreLinesOfOneFile(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PEER_STATS", folder)
	for number := range 2 {
		if err := NoteFigures("one", map[string]int{"number": number}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(folder, fmt.Sprintf("one-%d.json", os.Getpid())))
	if err != nil || string(text) != "{\"number\":0}\n{\"number\":1}\n" {
		t.Errorf("%q, %v", text, err)
	}
	t.Setenv("PEER_STATS", "")
	if err := NoteFigures("one", nil); err != nil {
		t.Errorf("without a folder: %v", err)
	}
}

func TestAQuantileIsOneOfTheDurations(t *testing.T) {
	sorted := []time.Duration{1, 2, 3, 4, 5}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 4, 1: 5} {
		if got := Quantile(sorted, share); got != want {
			t.Errorf("%v: %d, want %d", share, got, want)
		}
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("of none: %d", got)
	}
}
