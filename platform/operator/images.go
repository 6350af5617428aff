package operator

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/image"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/registry"
	"github.com/dunlin-project/dunlin/platform/signature"
)

// Signatures configures which images may run. Without a file of keys, all images may run.
type Signatures struct {
	// KeysFile is a file with one or several public keys in PEM. It is read in each pass, so that keys can be replaced.
	KeysFile string
	// Unsigned are repositories whose images need no signature.
	Unsigned []string
	Registry registry.Client
	// Timeout is the timeout of all calls for one image. Zero: registrySeconds.
	Timeout  time.Duration
	verified verifiedImages
	silent   silentRegistries
}

// registryClient returns a client that trusts the certificate authorities of the system and of a file.
func registryClient(authoritiesFile string) (registry.Client, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return registry.Client{}, err
	}
	if authoritiesFile != "" {
		text, err := os.ReadFile(authoritiesFile)
		if err != nil {
			return registry.Client{}, fmt.Errorf("--registry-ca: %w", err)
		}
		if !pool.AppendCertsFromPEM(text) {
			return registry.Client{}, fmt.Errorf("--registry-ca: %s has no certificate in PEM", authoritiesFile)
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	return registry.Client{HTTP: &http.Client{Transport: transport, Timeout: registrySeconds * time.Second}}, nil
}

// verifiedImages caches images with the hash of the keys that verified them. They are not verified again: an image with a digest does not change.
type verifiedImages struct {
	guard sync.Mutex
	known map[string]bool
}

// verifiedMax bounds the size of the cache. When it is full, the cache is cleared.
const verifiedMax = 4096

func (verified *verifiedImages) has(name string) bool {
	verified.guard.Lock()
	defer verified.guard.Unlock()
	return verified.known[name]
}

func (verified *verifiedImages) add(name string) {
	verified.guard.Lock()
	defer verified.guard.Unlock()
	if verified.known == nil || len(verified.known) >= verifiedMax {
		verified.known = map[string]bool{}
	}
	verified.known[name] = true
}

// refusedImage returns why an image of the desired objects is refused, or nil.
func (operator *Operator) refusedImage(ctx context.Context, subject *subject, desired []reconcile.Manifest) (*reconcile.Block, error) {
	signatures := &operator.Signatures
	if signatures.KeysFile == "" {
		return nil, nil
	}
	refused := func(message string) *reconcile.Block {
		return &reconcile.Block{Reason: reconcile.ReasonImageRefused, Message: message}
	}
	text, err := os.ReadFile(signatures.KeysFile)
	if err != nil {
		return refused(fmt.Sprintf("the operator cannot read the keys that verify images: %s; set --image-keys to a file with public keys", err)), nil
	}
	keys, err := signature.ParsePublicKeys(text)
	if err != nil {
		return refused(fmt.Sprintf("%s, the file of --image-keys: %s", signatures.KeysFile, err)), nil
	}
	generation := fmt.Sprintf("%x ", sha256.Sum256(text))
	for _, name := range imagesOf(desired) {
		if signatures.isExempt(name) || signatures.verified.has(generation+name) {
			continue
		}
		problem, err := operator.verify(ctx, subject, name, keys)
		if err != nil {
			return nil, err
		}
		if problem != "" {
			return refused(fmt.Sprintf("the image %s: %s", name, problem)), nil
		}
		signatures.verified.add(generation + name)
	}
	return nil, nil
}

// verify returns why an image is refused. An error is an error of the API server.
func (operator *Operator) verify(ctx context.Context, subject *subject, name string, keys []*ecdsa.PublicKey) (string, error) {
	pinned, err := image.ParsePinned(name)
	if err != nil {
		return "it is not REGISTRY/NAME@sha256:DIGEST, and a tag can be moved; name it by its digest, as `roost deploy --image` does", nil
	}
	credentials, problem, err := operator.credentials(ctx, subject, pinned.Repository)
	if problem != "" || err != nil {
		return problem, err
	}
	layout, err := operator.attachedSignature(ctx, pinned, credentials)
	switch {
	case errors.Is(err, registry.ErrMissing):
		return fmt.Sprintf("it is not signed: the registry has no %s:%s; sign it with `roost-image sign` or cosign", pinned.Repository, pinned.TagFor("sig")), nil
	case err != nil:
		return fmt.Sprintf("its signature cannot be read: %s", err), nil
	}
	if err := signature.VerifyAny(layout, keys, pinned); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// credentials returns the registry credentials of the Secret that the spec names, if any.
func (operator *Operator) credentials(ctx context.Context, subject *subject, repository string) (registry.Credentials, string, error) {
	if subject.pullSecret == "" {
		return registry.Credentials{}, "", nil
	}
	var secret corev1.Secret
	err := operator.Live.Get(ctx, types.NamespacedName{Namespace: subject.object.GetNamespace(), Name: subject.pullSecret}, &secret)
	if apierrors.IsNotFound(err) {
		return registry.Credentials{}, fmt.Sprintf("the Secret %s of spec.pullSecret does not exist; create it", subject.pullSecret), nil
	}
	if err != nil {
		return registry.Credentials{}, "", err
	}
	if secret.Type != corev1.SecretTypeDockerConfigJson {
		return registry.Credentials{}, fmt.Sprintf("the Secret %s of spec.pullSecret has the type %s; it must be %s", subject.pullSecret, secret.Type, corev1.SecretTypeDockerConfigJson), nil
	}
	credentials, err := registry.CredentialsFor(secret.Data[corev1.DockerConfigJsonKey], repository)
	if err != nil {
		return credentials, err.Error(), nil
	}
	return credentials, "", nil
}

func (signatures *Signatures) isExempt(name string) bool {
	return slices.Contains(signatures.Unsigned, repositoryOf(name))
}

// repositoryOf returns the name of an image without a tag and a digest.
func repositoryOf(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	return name
}

// imagesOf returns the images of all containers in the objects.
func imagesOf(objects []reconcile.Manifest) []string {
	found := map[string]bool{}
	var visit func(any)
	visit = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, field := range value {
				if list, isList := field.([]any); isList && (name == "containers" || name == "initContainers") {
					for _, element := range list {
						container, _ := element.(map[string]any)
						if text, isText := container["image"].(string); isText {
							found[text] = true
						}
					}
				}
				visit(field)
			}
		case []any:
			for _, element := range value {
				visit(element)
			}
		}
	}
	for _, object := range objects {
		if object["kind"] != "ControllerRevision" {
			visit(object)
		}
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
