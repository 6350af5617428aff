// Package signature signs the digest of an image with ECDSA on P-256, in the format of cosign: a payload in "simple signing" JSON, and its signature
// as a separate image, which a registry stores under the tag sha256-DIGEST.sig.
package signature

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dunlin-project/dunlin/platform/image"
)

const (
	mediaTypePayload = "application/vnd.dev.cosign.simplesigning.v1+json"
	annotation       = "dev.cosignproject.cosign/signature"
	payloadType      = "cosign container image signature"
)

type payload struct {
	Critical struct {
		Identity struct {
			DockerReference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			DockerManifestDigest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]string `json:"optional"`
}

// Sign writes the image of the signature. The optional values, such as the checksum of a bill of materials, are signed too.
func Sign(out io.Writer, key *ecdsa.PrivateKey, subject image.Pinned, optional map[string]string) error {
	var content payload
	content.Critical.Identity.DockerReference = subject.Repository
	content.Critical.Image.DockerManifestDigest = subject.Digest
	content.Critical.Type = payloadType
	content.Optional = optional
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	signed, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	if err != nil {
		return err
	}
	annotations := map[string]string{annotation: base64.StdEncoding.EncodeToString(signed)}
	blobs, entry, err := image.Attachment(mediaTypePayload, text, annotations, subject.TagFor("sig"))
	if err != nil {
		return err
	}
	return image.WriteLayout(out, blobs, entry, nil)
}

// Verify checks that one of the signatures in a layout was made with the key for the subject, and returns its optional values. The layout is
// untrusted input.
func Verify(layout *image.Layout, key *ecdsa.PublicKey, subject image.Pinned) (map[string]string, error) {
	var problems []error
	for _, layer := range layout.Manifest.Layers {
		optional, err := verifyLayer(layout, layer, key, subject)
		if err == nil {
			return optional, nil
		}
		problems = append(problems, err)
	}
	if len(problems) == 0 {
		return nil, errors.New("the file has no signature; use one that `roost-image sign` or cosign has written")
	}
	return nil, errors.Join(problems...)
}

func verifyLayer(layout *image.Layout, layer image.Descriptor, key *ecdsa.PublicKey, subject image.Pinned) (map[string]string, error) {
	if layer.MediaType != mediaTypePayload {
		return nil, fmt.Errorf("the file has a layer of the type %s instead of a signature; use one that `roost-image sign` or cosign has written", layer.MediaType)
	}
	text, err := layout.Blob(layer.Digest)
	if err != nil {
		return nil, err
	}
	signed, err := base64.StdEncoding.DecodeString(layer.Annotations[annotation])
	if err != nil {
		return nil, fmt.Errorf("the signature is not base64: %w", err)
	}
	sum := sha256.Sum256(text)
	if !ecdsa.VerifyASN1(key, sum[:], signed) {
		return nil, errors.New("the signature was not made with this key; do not deploy the image")
	}
	var content payload
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, fmt.Errorf("the signed text is not a payload of cosign: %w", err)
	}
	if content.Critical.Type != payloadType {
		return nil, fmt.Errorf("the signed text has the type %q; it must be %q", content.Critical.Type, payloadType)
	}
	if digest := content.Critical.Image.DockerManifestDigest; digest != subject.Digest {
		return nil, fmt.Errorf("the signature is for %s, not for %s; do not deploy the image", digest, subject.Digest)
	}
	if repository := content.Critical.Identity.DockerReference; repository != subject.Repository {
		return nil, fmt.Errorf("the signature is for the repository %s, not for %s; sign the image under the name that it is deployed from", repository, subject.Repository)
	}
	return content.Optional, nil
}

// ParsePrivateKey parses an ECDSA key on P-256 in PEM: PKCS #8 (`openssl genpkey`) or SEC 1.
func ParsePrivateKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(bytes.TrimSpace(text))
	if block == nil {
		return nil, errors.New("the key is not PEM; make one with: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256")
	}
	if strings.Contains(block.Type, "ENCRYPTED") {
		return nil, fmt.Errorf("the key is %s; use a decrypted key, from a file that only you can read or from the secrets of CI", block.Type)
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil && key.Curve == elliptic.P256() {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the key, %s, cannot be read; it must be PKCS #8 or SEC 1", block.Type)
	}
	key, isECDSA := parsed.(*ecdsa.PrivateKey)
	if !isECDSA || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("the key is %T; it must be ECDSA on P-256: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256", parsed)
	}
	return key, nil
}

// ParsePublicKeys parses a file with one or several public keys.
func ParsePublicKeys(text []byte) ([]*ecdsa.PublicKey, error) {
	var keys []*ecdsa.PublicKey
	for rest := bytes.TrimSpace(text); len(rest) > 0 || len(keys) == 0; rest = bytes.TrimSpace(rest) {
		block, after := pem.Decode(rest)
		if block == nil {
			after = nil
		}
		key, err := ParsePublicKey(rest[:len(rest)-len(after)])
		if err != nil {
			return nil, err
		}
		keys, rest = append(keys, key), after
	}
	return keys, nil
}

// VerifyAny is like Verify with several keys. One of the keys must have made the signature.
func VerifyAny(layout *image.Layout, keys []*ecdsa.PublicKey, subject image.Pinned) error {
	var problem error
	for _, key := range keys {
		if _, problem = Verify(layout, key, subject); problem == nil {
			return nil
		}
	}
	return problem
}

// ParsePublicKey parses a public key, which `openssl pkey -in KEY -pubout` writes.
func ParsePublicKey(text []byte) (*ecdsa.PublicKey, error) {
	block, _ := pem.Decode(bytes.TrimSpace(text))
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("the key is not a PEM PUBLIC KEY; make it from the private one with: openssl pkey -in KEY -pubout")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the public key cannot be read: %w", err)
	}
	key, isECDSA := parsed.(*ecdsa.PublicKey)
	if !isECDSA || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("the public key is %T; it must be ECDSA on P-256", parsed)
	}
	return key, nil
}
