package registry

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/image"
)

var digest = "sha256:" + strings.Repeat("ab", 32)

// attachment has one document with the content.
func attachment(t *testing.T, content string) *image.Layout {
	t.Helper()
	blobs, entry, err := image.Attachment("text/plain", []byte(content), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	layout, err := image.NewLayout(blobs[entry.Digest], 1, func(blob image.Descriptor) ([]byte, error) { return blobs[blob.Digest], nil })
	if err != nil {
		t.Fatal(err)
	}
	return layout
}

// tokens stands before a registry: it wants a token, which it gives for a password.
type tokens struct {
	registry *Memory
	realm    string
}

func (tokens *tokens) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	if request.URL.Path == "/token" {
		user, password, _ := request.BasicAuth()
		if user+password != "userword" || request.FormValue("scope") != "repository:team/shop:pull" || request.FormValue("service") != "the registry" {
			response.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(response, `{"access_token":"good"}`)
		return
	}
	if request.Header.Get("Authorization") != "Bearer good" {
		response.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s",service="the registry",scope="ignored"`, tokens.realm))
		response.WriteHeader(http.StatusUnauthorized)
		return
	}
	tokens.registry.ServeHTTP(response, request)
}

func serve(t *testing.T, handler http.Handler) (*Client, image.Pinned, string) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "https://")
	return &Client{server.Client()}, image.Pinned{Repository: host + "/team/shop", Digest: digest}, server.URL
}

func TestAttachments(t *testing.T) {
	memory, open := NewMemory("word"), NewMemory("")
	behind := &tokens{registry: open}
	for _, stored := range []*Memory{memory, open} {
		if err := stored.Put("team/shop:"+image.Pinned{Digest: digest}.TagFor("sig"), attachment(t, "signed")); err != nil {
			t.Fatal(err)
		}
	}
	good, bad := Credentials{"user", "word"}, Credentials{"user", "other"}
	for name, row := range map[string]struct {
		handler     http.Handler
		credentials Credentials
		kind        string
		sentence    string
	}{
		"open":           {open, Credentials{}, "sig", ""},
		"password":       {memory, good, "sig", ""},
		"other password": {memory, bad, "sig", "denies access: status 401; name a Secret with its credentials"},
		"no password":    {memory, Credentials{}, "sig", "denies access"},
		"token":          {behind, good, "sig", ""},
		"token refused":  {behind, bad, "sig", "denies access: status 403"},
		"nothing there":  {open, Credentials{}, "sbom", ErrMissing.Error()},
		"not well":       {http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) { response.WriteHeader(500) }), good, "sig", "answers with status 500"},
		"no manifest":    {http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) { fmt.Fprint(response, "<html>") }), good, "sig", "the manifest is not JSON"},
		"too large":      {http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) { response.Write(make([]byte, documentBytesMax+1)) }), good, "sig", "returned more than 1048576 bytes"},
		"too many layers": {http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(response, `{"layers":[`+strings.Repeat("{},", layersMax)+`{}]}`)
		}), good, "sig", "33 layers; at most 32 are read"},
		"not what it names": {http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(response, `{"layers":[{"digest":%q}]}`, digest)
		}), good, "sig", "the content of " + digest + " has the digest"},
	} {
		client, subject, address := serve(t, row.handler)
		behind.realm = address + "/token"
		layout, err := client.Attachment(t.Context(), subject, row.kind, row.credentials)
		if row.sentence != "" {
			if err == nil || !strings.Contains(err.Error(), row.sentence) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if content, err := layout.Blob(layout.Manifest.Layers[0].Digest); err != nil || string(content) != "signed" {
			t.Errorf("%s: %q, %v", name, content, err)
		}
	}
	client, subject, _ := serve(t, behind)
	behind.realm = "http://registry.example.com/token"
	if _, err := client.Attachment(t.Context(), subject, "sig", good); err == nil || !strings.Contains(err.Error(), "it must be an https address") {
		t.Errorf("a token over plain HTTP: %v", err)
	}
	subject.Repository = "team/shop"
	if _, err := client.Attachment(t.Context(), subject, "sig", good); err == nil || !strings.Contains(err.Error(), "does not begin with the name of a registry") {
		t.Errorf("no registry: %v", err)
	}
}

func TestCredentials(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte("user:pass:word"))
	config := fmt.Sprintf(`{"auths":{"https://index.docker.io/v1/":{"auth":%q},"registry.example.com":{"username":"ci","password":"one"},"broken.example.com":{"auth":"?"}}}`, encoded)
	for repository, expected := range map[string]Credentials{
		"docker.io/library/nats":    {"user", "pass:word"},
		"registry.example.com/shop": {"ci", "one"},
		"other.example.com/shop":    {},
	} {
		if found, err := CredentialsFor([]byte(config), repository); err != nil || found != expected {
			t.Errorf("%s: %+v, %v", repository, found, err)
		}
	}
	if _, err := CredentialsFor([]byte(config), "broken.example.com/shop"); err == nil || !strings.Contains(err.Error(), "is not base64") {
		t.Errorf("%v", err)
	}
	if _, err := CredentialsFor([]byte(`{"auths":"c4n4ry`), "a.example.com/shop"); err == nil || strings.Contains(err.Error(), "c4n4ry") {
		t.Errorf("%v", err)
	}
}
