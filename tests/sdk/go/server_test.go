package sdk

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"
)

type object = map[string]any

// required returns an address or key of the server under test.
func required(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set (run through tests/sdk/with-server)", name)
	}
	return value
}

func wsURL(t *testing.T) string { return required(t, "DUNLIN_WS_URL") }

// position is the HTTP API's result of a publish.
type position struct {
	Offset uint64 `json:"offset"`
	Epoch  string `json:"epoch"`
}

// hooksURL belongs to a second server, which asks a backend (see answers) about clients without a token.
func hooksURL(t *testing.T) string { return required(t, "HOOKS_WS_URL") }

// answers defines the backend's responses of this kind about a channel, user or method; the last one is repeated.
func answers(t *testing.T, kind, about string, all ...object) {
	t.Helper()
	backend(t, "answers", object{"kind": kind, "about": about, "answers": all}, nil)
}

// asked returns the requests to the backend so far, once there are count of them.
func asked(t *testing.T, kind, about string, count int) []object {
	t.Helper()
	for end := time.Now().Add(deadline); ; {
		var all []struct{ Question object }
		backend(t, "asked", object{"kind": kind, "about": about}, &all)
		if len(all) >= count {
			questions := make([]object, len(all))
			for i, one := range all {
				questions[i] = one.Question
			}
			return questions
		}
		if time.Now().After(end) {
			t.Fatalf("asked %d times of %d: %s %s", len(all), count, kind, about)
		}
		time.Sleep(20 * time.Millisecond) // between two looks; the verdict is the backend's
	}
}

func backend(t *testing.T, what string, body object, into any) {
	t.Helper()
	encoded, err := json.Marshal(body)
	check(t, err)
	answer, err := http.Post(required(t, "HOOKS_BACKEND_URL")+"/"+what, "application/json", bytes.NewReader(encoded))
	check(t, err)
	defer func() { _ = answer.Body.Close() }()
	equal(t, "the backend's status", answer.StatusCode, http.StatusOK)
	if into != nil {
		check(t, json.NewDecoder(answer.Body).Decode(into))
	}
}

// api calls the HTTP API; an error of the server ends the test.
func api(t *testing.T, method string, body object) json.RawMessage {
	t.Helper()
	return call(t, "DUNLIN_API_URL", method, body)
}

// hooksAPI calls the HTTP API of the server that asks a backend.
func hooksAPI(t *testing.T, method string, body object) json.RawMessage {
	t.Helper()
	return call(t, "HOOKS_API_URL", method, body)
}

func call(t *testing.T, server, method string, body object) json.RawMessage {
	t.Helper()
	encoded, err := json.Marshal(body)
	check(t, err)
	request, err := http.NewRequest(http.MethodPost, required(t, server)+"/"+method, bytes.NewReader(encoded))
	check(t, err)
	request.Header.Set("X-API-Key", required(t, "DUNLIN_API_KEY"))
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	check(t, err)
	defer func() { _ = answer.Body.Close() }()
	var reply struct {
		Result json.RawMessage `json:"result"`
		Error  *struct {
			Code    uint32 `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: HTTP %d", method, answer.StatusCode)
	}
	check(t, json.NewDecoder(answer.Body).Decode(&reply))
	if reply.Error != nil {
		t.Fatalf("%s: %d %s", method, reply.Error.Code, reply.Error.Message)
	}
	return reply.Result
}

// publish publishes {"n": n} for each n by the HTTP API and gives the last position.
func publish(t *testing.T, channel string, from, to int) position {
	t.Helper()
	var last position
	for n := from; n <= to; n++ {
		check(t, json.Unmarshal(api(t, "publish", object{"channel": channel, "data": object{"n": n}}), &last))
		recordOffset(t, channel, last.Offset)
	}
	return last
}

// token is a JWT (HS256) with these claims, signed with the server's secret.
func token(t *testing.T, claims object) string {
	t.Helper()
	return signed(t, claims, required(t, "DUNLIN_HMAC_SECRET"))
}

func signed(t *testing.T, claims object, secret string) string {
	t.Helper()
	part := func(value any) string {
		encoded, err := json.Marshal(value)
		check(t, err)
		return base64.RawURLEncoding.EncodeToString(encoded)
	}
	text := part(object{"alg": "HS256", "typ": "JWT"}) + "." + part(claims)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// inSeconds is in Unix seconds, with milliseconds, so that a token lives as long as the test says.
func inSeconds(seconds int64) float64 { return float64(time.Now().UnixMilli())/1000 + float64(seconds) }

// channelIn returns the name of a channel that no other test uses.
func channelIn(namespace string) string { return namespace + ":" + rand.Text() }

// newUser returns the name of a user that no other test uses.
func newUser() string { return "user-" + rand.Text() }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func equalJSON(t *testing.T, what string, got []byte, want any) {
	t.Helper()
	var decoded any
	if err := json.Unmarshal(got, &decoded); err != nil {
		t.Fatalf("%s: %q is not JSON: %v", what, got, err)
	}
	encoded, err := json.Marshal(want)
	check(t, err)
	var wanted any
	check(t, json.Unmarshal(encoded, &wanted))
	if fmt.Sprint(decoded) != fmt.Sprint(wanted) {
		t.Fatalf("%s: got %s, want %s", what, got, encoded)
	}
}
