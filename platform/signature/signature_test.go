package signature

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/image"
)

var subject = image.Pinned{Repository: "registry.example.com/team/shop", Digest: "sha256:" + strings.Repeat("ab", 32)}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sign(t *testing.T, key *ecdsa.PrivateKey, subject image.Pinned, optional map[string]string) *image.Layout {
	t.Helper()
	file := filepath.Join(t.TempDir(), "signature.tar")
	var out bytes.Buffer
	must(t, Sign(&out, key, subject, optional))
	must(t, os.WriteFile(file, out.Bytes(), 0o644))
	layout, err := image.ReadLayout(file)
	must(t, err)
	return layout
}

func TestASignatureVerifies(t *testing.T) {
	key := newKey(t)
	layout := sign(t, key, subject, map[string]string{"sbom": "sha256:1"})
	optional, err := Verify(layout, &key.PublicKey, subject)
	if err != nil || optional["sbom"] != "sha256:1" {
		t.Errorf("%v, %v", optional, err)
	}
	if want := "sha256-" + strings.Repeat("ab", 32) + ".sig"; layout.Entry.Annotations["org.opencontainers.image.ref.name"] != want {
		t.Errorf("%v, want %s", layout.Entry.Annotations, want)
	}
}

// OpenSSL makes the keys and verifies the signature; the payload has the fields that cosign reads.
func TestOpenSSLVerifiesASignature(t *testing.T) {
	folder := t.TempDir()
	openssl := func(arguments ...string) string {
		command := exec.Command("openssl", arguments...)
		command.Dir = folder
		output, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("openssl %v: %v: %s", arguments, err, output)
		}
		return string(output)
	}
	openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "image.key")
	openssl("pkey", "-in", "image.key", "-pubout", "-out", "image.pub")
	private, err := os.ReadFile(filepath.Join(folder, "image.key"))
	must(t, err)
	key, err := ParsePrivateKey(private)
	must(t, err)
	public, err := os.ReadFile(filepath.Join(folder, "image.pub"))
	must(t, err)
	parsed, err := ParsePublicKey(public)
	must(t, err)
	if !parsed.Equal(&key.PublicKey) {
		t.Error("the public key is another one")
	}
	layout := sign(t, key, subject, nil)
	layer := layout.Manifest.Layers[0]
	text, err := layout.Blob(layer.Digest)
	must(t, err)
	signed, err := base64.StdEncoding.DecodeString(layer.Annotations["dev.cosignproject.cosign/signature"])
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, "payload"), text, 0o644))
	must(t, os.WriteFile(filepath.Join(folder, "signed"), signed, 0o644))
	if output := openssl("dgst", "-sha256", "-verify", "image.pub", "-signature", "signed", "payload"); !strings.Contains(output, "Verified OK") {
		t.Error(output)
	}
	want := `{"critical":{"identity":{"docker-reference":"` + subject.Repository + `"},"image":{"docker-manifest-digest":"` + subject.Digest +
		`"},"type":"cosign container image signature"},"optional":null}`
	if string(text) != want {
		t.Errorf("%s\nwant %s", text, want)
	}
}

func TestWhatDoesNotVerify(t *testing.T) {
	key, other := newKey(t), newKey(t)
	otherDigest := image.Pinned{Repository: subject.Repository, Digest: "sha256:" + strings.Repeat("cd", 32)}
	otherName := image.Pinned{Repository: "registry.example.com/other/shop", Digest: subject.Digest}
	for name, wrong := range map[string]struct {
		layout  func() *image.Layout
		message string
	}{
		"another key":        {func() *image.Layout { return sign(t, other, subject, nil) }, "not made with this key"},
		"another image":      {func() *image.Layout { return sign(t, key, otherDigest, nil) }, "the signature is for " + otherDigest.Digest},
		"another repository": {func() *image.Layout { return sign(t, key, otherName, nil) }, "is for the repository registry.example.com/other/shop"},
		"no signature": {func() *image.Layout {
			layout := sign(t, key, subject, nil)
			layout.Manifest.Layers = nil
			return layout
		}, "has no signature"},
		"an image": {func() *image.Layout {
			layout := sign(t, key, subject, nil)
			layout.Manifest.Layers[0].MediaType = image.MediaTypeLayer
			return layout
		}, "instead of a signature"},
		"an empty signature": {func() *image.Layout {
			layout := sign(t, key, subject, nil)
			layout.Manifest.Layers[0].Annotations = nil
			return layout
		}, "not made with this key"},
		"a broken signature": {func() *image.Layout {
			layout := sign(t, key, subject, nil)
			layout.Manifest.Layers[0].Annotations[annotation] = "%"
			return layout
		}, "is not base64"},
		"a signature of another payload": {func() *image.Layout {
			layout := sign(t, key, subject, nil)
			layout.Manifest.Layers[0].Annotations = sign(t, key, otherDigest, nil).Manifest.Layers[0].Annotations
			return layout
		}, "not made with this key"},
	} {
		optional, err := Verify(wrong.layout(), &key.PublicKey, subject)
		if err == nil || optional != nil || !strings.Contains(err.Error(), wrong.message) {
			t.Errorf("%s: %v, want %q", name, err, wrong.message)
		}
	}
	// cosign adds a signature beside those that are there.
	two := sign(t, key, subject, nil)
	two.Manifest.Layers = append([]image.Descriptor{{MediaType: mediaTypePayload, Digest: two.Manifest.Layers[0].Digest}}, two.Manifest.Layers...)
	if _, err := Verify(two, &key.PublicKey, subject); err != nil {
		t.Error(err)
	}
}

func TestKeysAndNamesThatAreRefused(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	wide, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(t, err)
	encode := func(kind string, key any) []byte {
		text, err := x509.MarshalPKCS8PrivateKey(key)
		must(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: text})
	}
	for name, wrong := range map[string]struct {
		text    []byte
		message string
	}{
		"no PEM":    {[]byte("key"), "is not PEM"},
		"encrypted": {encode("ENCRYPTED SIGSTORE PRIVATE KEY", edwards), "use a decrypted key"},
		"Ed25519":   {encode("PRIVATE KEY", edwards), "must be ECDSA on P-256"},
		"P-384":     {encode("PRIVATE KEY", wide), "must be ECDSA on P-256"},
		"damaged":   {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}), "cannot be read"},
	} {
		_, err := ParsePrivateKey(wrong.text)
		if err == nil || !strings.Contains(err.Error(), wrong.message) {
			t.Errorf("%s: %v, want %q", name, err, wrong.message)
		}
		if err != nil && strings.Contains(err.Error(), base64.StdEncoding.EncodeToString(wrong.text)) {
			t.Errorf("%s: the message shows the key", name)
		}
	}
	if _, err := ParsePublicKey(encode("PRIVATE KEY", newKey(t))); err == nil || !strings.Contains(err.Error(), "-pubout") {
		t.Error(err)
	}
}
