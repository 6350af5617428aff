package operator_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/image"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/registry"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/signature"
)

const passwordOfRegistry = "c4n4ry-password"

// imageSite is a registry with signatures, and an operator with keys.
type imageSite struct {
	*world
	stored *registry.Memory
	host   string
	calls  atomic.Int64
	isDown atomic.Bool
	keys   string
	// authority is a file with the certificate of the registry.
	authority string
}

func newImageSite(t *testing.T, namespace, password string) *imageSite {
	t.Helper()
	site := &imageSite{world: newWorld(t, namespace), stored: registry.NewMemory(password)}
	server := httptest.NewTLSServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		site.calls.Add(1)
		if site.isDown.Load() {
			response.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		site.stored.ServeHTTP(response, request)
	}))
	t.Cleanup(server.Close)
	site.host, site.keys = strings.TrimPrefix(server.URL, "https://"), filepath.Join(t.TempDir(), "keys.pem")
	site.authority = filepath.Join(t.TempDir(), "authority.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(site.authority, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	site.operator.Signatures = operator.Signatures{
		KeysFile: site.keys, Unsigned: []string{"docker.io/library/nats"}, Registry: registry.Client{HTTP: server.Client()},
	}
	return site
}

func newSigningKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (site *imageSite) trust(keys ...*ecdsa.PrivateKey) {
	site.t.Helper()
	var text []byte
	for _, key := range keys {
		public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
		if err != nil {
			site.t.Fatal(err)
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})...)
	}
	if err := os.WriteFile(site.keys, text, 0o600); err != nil {
		site.t.Fatal(err)
	}
}

func (site *imageSite) pinned(name string, digit int) image.Pinned {
	return image.Pinned{Repository: site.host + "/team/" + name, Digest: fmt.Sprintf("sha256:%064d", digit)}
}

func nameOfImage(pinned image.Pinned) string { return pinned.Repository + "@" + pinned.Digest }

// sign stores a signature in the registry. The signature may be for a different image than its tag.
func (site *imageSite) sign(key *ecdsa.PrivateKey, about, under image.Pinned) {
	site.t.Helper()
	var archive bytes.Buffer
	if err := signature.Sign(&archive, key, about, nil); err != nil {
		site.t.Fatal(err)
	}
	file := filepath.Join(site.t.TempDir(), "signature.tar")
	if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
		site.t.Fatal(err)
	}
	layout, err := image.ReadLayout(file)
	if err != nil {
		site.t.Fatal(err)
	}
	_, name, _ := strings.Cut(under.Repository, "/")
	if err := site.stored.Put(name+":"+under.TagFor("sig"), layout); err != nil {
		site.t.Fatal(err)
	}
}

// expectRefused checks that the operator writes only the status.
func (site *imageSite) expectRefused(object client.Object, sentence string) {
	site.t.Helper()
	kind := "App"
	if _, isDunlin := object.(*v1alpha1.Dunlin); isDunlin {
		kind = "Dunlin"
	}
	site.world.calls.reset(0, false)
	site.converge(kind, object.GetName())
	status, message := site.status(object)
	if !strings.Contains(status, "Degraded=True ImageRefused") || !strings.Contains(message, sentence) {
		site.t.Errorf("%q is not in:\n%s\n%s", sentence, status, message)
	}
	for _, write := range site.world.calls.reset(0, false) {
		if !strings.HasSuffix(write, "/status") {
			site.t.Errorf("%s: %s", sentence, write)
		}
	}
}

func (site *imageSite) setImage(app *v1alpha1.App, name string) {
	site.t.Helper()
	if err := site.get(app.Name, app); err != nil {
		site.t.Fatal(err)
	}
	app.Spec.Image = name
	site.update(app)
}

func TestOnlySignedImagesRun(t *testing.T) {
	t.Parallel()
	site := newImageSite(t, "signed", "")
	ours, theirs, other := newSigningKey(t), newSigningKey(t), newSigningKey(t)
	site.trust(theirs, ours)
	unsigned, good, foreign, moved, renamed := site.pinned("shop", 1), site.pinned("shop", 2), site.pinned("shop", 3), site.pinned("shop", 4), site.pinned("stolen", 2)
	site.sign(ours, good, good)
	site.sign(other, foreign, foreign)
	site.sign(ours, good, moved)
	site.sign(ours, good, renamed)
	app := site.app("shop")
	app.Spec.Image = site.host + "/team/shop:1"
	site.create(app)
	site.expectRefused(app, "the image "+app.Spec.Image+": it is not REGISTRY/NAME@sha256:DIGEST, and a tag can be moved")
	for pinned, sentence := range map[image.Pinned]string{
		unsigned: "it is not signed: the registry has no " + unsigned.Repository + ":" + unsigned.TagFor("sig"),
		foreign:  "the signature was not made with this key",
		moved:    "the signature is for " + good.Digest + ", not for " + moved.Digest,
		renamed:  "the signature is for the repository " + good.Repository + ", not for " + renamed.Repository,
	} {
		site.setImage(app, nameOfImage(pinned))
		site.expectRefused(app, sentence)
		if names := site.names("shop"); names != "" {
			t.Errorf("%s: %s was written", sentence, names)
		}
	}
	site.setImage(app, nameOfImage(good))
	site.isDown.Store(true)
	site.expectRefused(app, "its signature cannot be read: the registry "+site.host+" answers with status 503")
	site.isDown.Store(false)
	site.converge("App", "shop")
	if status, message := site.status(app); status != well {
		t.Fatalf("%s\n%s", status, message)
	}

	// What is verified is not asked for again, and goes on when the registry is away.
	before := site.calls.Load()
	site.isDown.Store(true)
	site.deleteService("shop")
	site.converge("App", "shop")
	if status, message := site.status(app); status != well || site.calls.Load() != before {
		t.Errorf("%d calls, %s\n%s", site.calls.Load()-before, status, message)
	}
	site.isDown.Store(false)

	// A release that is not signed leaves the old one as it is. So does a key that is taken away.
	template := site.template("shop")
	site.setImage(app, nameOfImage(unsigned))
	site.expectRefused(app, "it is not signed")
	site.setImage(app, nameOfImage(good))
	site.trust(theirs)
	site.expectRefused(app, "the signature was not made with this key")
	if status, _ := site.status(app); !strings.Contains(status, "Ready=True") || fmt.Sprint(site.template("shop")) != fmt.Sprint(template) {
		t.Errorf("%s", status)
	}
	if err := os.WriteFile(site.keys, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	site.expectRefused(app, "the file of --image-keys: the key is not a PEM PUBLIC KEY")
	if err := os.Remove(site.keys); err != nil {
		t.Fatal(err)
	}
	site.expectRefused(app, "the operator cannot read the keys that verify images")
}

// TestImagesOfAPrivateRegistry uses a Dunlin. The image of its NATS servers needs no signature.
func TestImagesOfAPrivateRegistry(t *testing.T) {
	t.Parallel()
	site := newImageSite(t, "private", passwordOfRegistry)
	key := newSigningKey(t)
	site.trust(key)
	pinned := site.pinned("dunlin", 1)
	site.sign(key, pinned, pinned)
	site.createSecret("keys", map[string]string{render.LabelUsable: "true"})
	dunlin := &v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Name: "realtime", Namespace: site.namespace}}
	dunlin.Spec.Image, dunlin.Spec.Keys.Secret = nameOfImage(pinned), "keys"
	dunlin.Spec.NATS = &v1alpha1.NATS{Servers: new(int32(1)), Image: "nats:2.15.2"}
	site.create(dunlin)
	set := func(change func()) {
		t.Helper()
		if err := site.get("realtime", dunlin); err != nil {
			t.Fatal(err)
		}
		change()
		site.update(dunlin)
	}
	site.expectRefused(dunlin, "denies access: status 401; name a Secret with its credentials in spec.pullSecret")
	set(func() { dunlin.Spec.PullSecret = "registry" })
	site.expectRefused(dunlin, "the Secret registry of spec.pullSecret does not exist")
	set(func() { dunlin.Spec.PullSecret = "keys" })
	site.expectRefused(dunlin, "the Secret keys of spec.pullSecret has the type Opaque; it must be kubernetes.io/dockerconfigjson")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "registry", Namespace: site.namespace}, Type: corev1.SecretTypeDockerConfigJson}
	secret.Data = map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"username":"ci","password":%q}}}`, site.host, passwordOfRegistry)}
	site.world.create(secret)
	set(func() { dunlin.Spec.PullSecret = "registry" })
	site.expectRefused(dunlin, "the image nats:2.15.2: ")
	set(func() { dunlin.Spec.NATS.Image = "docker.io/library/nats:2.15.2" })
	site.converge("Dunlin", "realtime")
	status, message := site.status(dunlin)
	if status != well || strings.Contains(fmt.Sprint(dunlin.Status), passwordOfRegistry) {
		t.Errorf("%s\n%s", status, message)
	}
}

// TestTheProgramDemandsSignatures checks the flags of the program, and its events.
func TestTheProgramDemandsSignatures(t *testing.T) {
	t.Parallel()
	site := newImageSite(t, "demanding", "")
	key := newSigningKey(t)
	site.trust(key)
	unsigned, signed := site.pinned("shop", 1), site.pinned("shop", 2)
	site.sign(key, signed, signed)
	site.start(programOfOperator(t), "--image-keys="+site.keys, "--registry-ca="+site.authority, "--unsigned-images="+site.host+"/team/free")
	app, free := site.app("shop"), site.app("free")
	app.Spec.Image, free.Spec.Image = nameOfImage(unsigned), site.host+"/team/free:1"
	site.create(app)
	site.create(free)
	site.waitForEvent(corev1.EventTypeWarning, "ImageRefused", "it is not signed: the registry has no "+unsigned.Repository)
	site.waitForEvent(corev1.EventTypeNormal, "ReleaseStarted", "revision ")
	site.setImage(app, nameOfImage(signed))
	wait(t, "a Deployment of the signed image", func() bool { return len(site.list("Deployment", "shop")) == 1 })
}

// silentRegistry does not respond to requests for its host. It stands in for the network: a real handshake can take longer than
// the timeout on a busy machine, and the request would not be seen.
type silentRegistry struct {
	host  string
	calls atomic.Int64
	next  http.RoundTripper
}

func (silent *silentRegistry) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host != silent.host {
		return silent.next.RoundTrip(request)
	}
	silent.calls.Add(1)
	<-request.Context().Done()
	return nil, request.Context().Err()
}

// A registry that accepts connections and does not respond blocks only the Apps that need it.
func TestARegistryThatDoesNotAnswer(t *testing.T) {
	site := newImageSite(t, "silent", "")
	key := newSigningKey(t)
	site.trust(key)
	const host = "silent.example"
	silent := &silentRegistry{host: host, next: site.operator.Signatures.Registry.HTTP.Transport}
	site.operator.Signatures.Registry.HTTP = &http.Client{Transport: silent}
	now := time.Now()
	site.operator.Now = func() time.Time { return now }
	site.operator.Signatures.Timeout = 200 * time.Millisecond
	var apps []*v1alpha1.App
	for index := range 5 {
		app := site.app(fmt.Sprintf("shop%d", index))
		app.Spec.Image = fmt.Sprintf("%s/team/shop@sha256:%064d", host, index)
		site.create(app)
		apps = append(apps, app)
	}
	other := site.app("other")
	image := site.pinned("other", 9)
	site.sign(key, image, image)
	other.Spec.Image = nameOfImage(image)
	site.create(other)
	pass := func(name string) {
		t.Helper()
		if _, err := site.operator.Pass(t.Context(), operator.KindApp, types.NamespacedName{Namespace: site.namespace, Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for index := range apps {
		pass(apps[index].Name)
	}
	if silent.calls.Load() != 1 {
		t.Errorf("%d calls of a registry that does not answer", silent.calls.Load())
	}
	if text, message := site.status(apps[4]); !strings.Contains(text, "Degraded=True ImageRefused") || !strings.Contains(message, "the registry "+host+" does not answer; the operator retries after ") {
		t.Errorf("%s: %s", text, message)
	}
	site.converge(operator.KindApp, "other")
	if text, message := site.status(other); !strings.Contains(text, "Degraded=False") {
		t.Errorf("%s: %s", text, message)
	}
	now = now.Add(61 * time.Second)
	pass(apps[0].Name)
	if silent.calls.Load() != 2 {
		t.Errorf("%d calls after a minute", silent.calls.Load())
	}
}
