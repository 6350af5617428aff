package proof

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/dunlin-project/dunlin/platform/backup"
)

const (
	s3Key    = "AKIAROOSTPROOF"
	s3Secret = "c4n4ry-secret-access-key"
)

// store speaks the protocol of S3, and serves only requests that are signed with its key.
type store struct {
	mutex           sync.Mutex
	served, refused int
	// onRefusal is called after each refusal.
	onRefusal func()
	backend   *s3mem.Backend
	server    *httptest.Server
}

func newStore(t *testing.T) *store {
	t.Helper()
	found := &store{backend: s3mem.New(), onRefusal: func() {}}
	if err := found.backend.CreateBucket("backups"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(found.backend).Server()
	found.server = httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		isSigned := hmac.Equal([]byte(signatureOf(request)), []byte(authorizationPart(request, "Signature")))
		found.mutex.Lock()
		if isSigned {
			found.served++
		} else {
			found.refused++
		}
		found.mutex.Unlock()
		if isSigned {
			s3.ServeHTTP(answer, request)
			return
		}
		answer.WriteHeader(http.StatusForbidden)
		xml.NewEncoder(answer).Encode(struct { //nolint:errcheck // the client is gone then
			XMLName xml.Name `xml:"Error"`
			Code    string
		}{Code: "SignatureDoesNotMatch"})
		found.onRefusal()
	}))
	t.Cleanup(found.server.Close)
	return found
}

func authorizationPart(request *http.Request, name string) string {
	_, part, _ := strings.Cut(request.Header.Get("Authorization"), name+"=")
	part, _, _ = strings.Cut(part, ",")
	return part
}

// signatureOf is what AWS Signature Version 4 makes of the request and the secret key.
func signatureOf(request *http.Request) string {
	scope := strings.Split(authorizationPart(request, "Credential"), "/")
	if len(scope) != 5 || scope[0] != s3Key {
		return "no key"
	}
	signed := authorizationPart(request, "SignedHeaders")
	canonical := []string{request.Method, request.URL.EscapedPath(), strings.ReplaceAll(request.URL.Query().Encode(), "+", "%20")}
	for _, name := range strings.Split(signed, ";") {
		value := strings.Join(request.Header.Values(name), ",")
		switch name {
		case "host":
			value = request.Host
		case "content-length":
			value = fmt.Sprint(request.ContentLength)
		}
		canonical = append(canonical, name+":"+strings.TrimSpace(value))
	}
	canonical = append(canonical, "", signed, request.Header.Get("X-Amz-Content-Sha256"))
	digest := sha256.Sum256([]byte(strings.Join(canonical, "\n")))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", request.Header.Get("X-Amz-Date"), strings.Join(scope[1:], "/"), hex.EncodeToString(digest[:])}, "\n")
	key := []byte("AWS4" + s3Secret)
	for _, part := range append(slices.Clone(scope[1:]), text) {
		mac := hmac.New(sha256.New, key)
		io.WriteString(mac, part) //nolint:errcheck // a hash never fails
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}

// repository has its credentials in a folder, as the Secret of an App is mounted.
func (store *store) repository(t *testing.T, secret string) *backup.Repository {
	t.Helper()
	folder := t.TempDir()
	for name, value := range map[string]string{"RESTIC_PASSWORD": "c4n4ry-restic", "AWS_ACCESS_KEY_ID": s3Key, "AWS_SECRET_ACCESS_KEY": secret} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &backup.Repository{URL: "s3:" + store.server.URL + "/backups", Path: "web/shop", Host: "web/shop", Secrets: folder}
}

// cut shortens the largest object of the bucket.
func (store *store) cut(t *testing.T) {
	t.Helper()
	prefix := gofakes3.NewPrefix(new("web/shop/data/"), nil)
	list, err := store.backend.ListBucket("backups", &prefix, gofakes3.ListBucketPage{})
	if err != nil || len(list.Contents) == 0 {
		t.Fatal(err, list)
	}
	largest := slices.MaxFunc(list.Contents, func(a, b *gofakes3.Content) int { return int(a.Size - b.Size) })
	object, err := store.backend.GetObject("backups", largest.Key, nil)
	if err != nil {
		t.Fatal(err)
	}
	half, err := io.ReadAll(io.LimitReader(object.Contents, largest.Size/2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.backend.PutObject("backups", largest.Key, map[string]string{}, strings.NewReader(string(half)), int64(len(half)), nil); err != nil {
		t.Fatal(err)
	}
}

// TestAnS3Store saves to a store that speaks S3, verifies, restores the same bytes, and finds damage. The environment of the program has other
// credentials, which must not be used.
func TestAnS3Store(t *testing.T) {
	if _, err := exec.LookPath("restic"); err != nil {
		t.Skip("restic is not installed; `scripts/need restic` installs it")
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "other")
	ctx, store := t.Context(), newStore(t)
	root, folders := t.TempDir(), []string{"volumes/data"}
	data := filepath.Join(root, folders[0], "rows")
	if err := os.MkdirAll(filepath.Dir(data), 0o755); err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 3<<20)
	for index := range content {
		content[index] = byte(index * index >> 7)
	}
	if err := os.WriteFile(data, content, 0o600); err != nil {
		t.Fatal(err)
	}
	repository := store.repository(t, s3Secret)
	saved, err := backup.Save(ctx, repository, root, folders, backup.Keep{Daily: 7})
	if err != nil || !saved.IsNew || saved.Bytes != 3<<20 {
		t.Fatal(saved, err)
	}
	verified, err := backup.Verify(ctx, repository, t.TempDir(), 100)
	if err != nil || verified.Snapshot != saved.Snapshot || verified.Bytes != saved.Bytes {
		t.Fatal(verified, err)
	}
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(ctx, repository, root, folders, backup.RestoreOptions{Snapshot: "latest"}); err != nil {
		t.Fatal(err)
	}
	if restored, err := os.ReadFile(data); err != nil || string(restored) != string(content) {
		t.Errorf("%d of %d bytes, or others: %v", len(restored), len(content), err)
	}
	if store.served == 0 || store.refused > 0 {
		t.Errorf("%d requests with the key of the Secret, %d with another one", store.served, store.refused)
	}
	store.cut(t)
	if _, err := backup.Verify(ctx, repository, t.TempDir(), 100); err == nil || !strings.Contains(err.Error(), "the repository is damaged") {
		t.Errorf("a pack that is cut: %v", err)
	}
	// Restic takes a refusal for something that may pass, and tries again for minutes.
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	store.onRefusal = cancel
	_, err = backup.Verify(limited, store.repository(t, "another"), t.TempDir(), 100)
	if err == nil || strings.Contains(err.Error(), s3Secret) || store.refused == 0 {
		t.Errorf("another key: %v, %d refused", err, store.refused)
	}
}
