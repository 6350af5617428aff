package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/dunlin-project/dunlin/platform/image"
)

// Memory is an image registry in memory, for tests. It implements the calls of skopeo: uploads of blobs in one or several parts, and manifests.
type Memory struct {
	password string

	mutex     sync.Mutex
	blobs     map[string][]byte
	manifests map[string]storedManifest
	uploads   map[string][]byte
}

type storedManifest struct {
	mediaType string
	content   []byte
}

// NewMemory returns a registry. It requires basic authentication if there is a password.
func NewMemory(password string) *Memory {
	return &Memory{password: password, blobs: map[string][]byte{}, manifests: map[string]storedManifest{}, uploads: map[string][]byte{}}
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ServeHTTP serves pushes and pulls.
func (registry *Memory) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	if _, password, _ := request.BasicAuth(); password != registry.password {
		response.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		response.WriteHeader(http.StatusUnauthorized)
		return
	}
	registry.mutex.Lock()
	defer registry.mutex.Unlock()
	path := strings.TrimPrefix(request.URL.Path, "/v2/")
	body, err := io.ReadAll(request.Body)
	if err != nil {
		response.WriteHeader(http.StatusBadRequest)
		return
	}
	if name, reference, isManifest := strings.Cut(path, "/manifests/"); isManifest {
		registry.manifest(response, request, name, reference, body)
		return
	}
	if name, rest, isUpload := strings.Cut(path, "/blobs/uploads/"); isUpload {
		registry.upload(response, request, name, rest, body)
		return
	}
	if _, digest, isBlob := strings.Cut(path, "/blobs/"); isBlob {
		content, isThere := registry.blobs[digest]
		if !isThere {
			response.WriteHeader(http.StatusNotFound)
			return
		}
		send(response, request, "application/octet-stream", content)
	}
}

func (registry *Memory) manifest(response http.ResponseWriter, request *http.Request, name, reference string, body []byte) {
	if request.Method == http.MethodPut {
		stored := storedManifest{request.Header.Get("Content-Type"), body}
		registry.manifests[name+":"+reference] = stored
		registry.manifests[name+":"+digestOf(body)] = stored
		response.Header().Set("Docker-Content-Digest", digestOf(body))
		response.WriteHeader(http.StatusCreated)
		return
	}
	stored, isThere := registry.manifests[name+":"+reference]
	if !isThere {
		response.Header().Set("Content-Type", "application/json")
		response.WriteHeader(http.StatusNotFound)
		fmt.Fprint(response, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`)
		return
	}
	send(response, request, stored.mediaType, stored.content)
}

func (registry *Memory) upload(response http.ResponseWriter, request *http.Request, name, id string, body []byte) {
	switch request.Method {
	case http.MethodPost:
		id = fmt.Sprint(len(registry.uploads))
		registry.uploads[id] = nil
	case http.MethodPatch:
		registry.uploads[id] = append(registry.uploads[id], body...)
	case http.MethodPut:
		content := append(registry.uploads[id], body...)
		if digest := request.URL.Query().Get("digest"); digest != digestOf(content) {
			response.WriteHeader(http.StatusBadRequest)
			return
		}
		registry.blobs[digestOf(content)] = content
		response.WriteHeader(http.StatusCreated)
		return
	}
	response.Header().Set("Location", "/v2/"+name+"/blobs/uploads/"+id)
	response.Header().Set("Range", fmt.Sprintf("0-%d", max(len(registry.uploads[id])-1, 0)))
	response.WriteHeader(http.StatusAccepted)
}

func send(response http.ResponseWriter, request *http.Request, mediaType string, content []byte) {
	response.Header().Set("Content-Type", mediaType)
	response.Header().Set("Content-Length", fmt.Sprint(len(content)))
	response.Header().Set("Docker-Content-Digest", digestOf(content))
	if request.Method != http.MethodHead {
		response.Write(content)
	}
}

// HasManifest reports whether there is a manifest under NAME:REFERENCE.
func (registry *Memory) HasManifest(name string) bool {
	registry.mutex.Lock()
	defer registry.mutex.Unlock()
	_, isThere := registry.manifests[name]
	return isThere
}

// Put stores a layout under NAME:REFERENCE.
func (registry *Memory) Put(name string, layout *image.Layout) error {
	manifest, err := layout.Blob(layout.Entry.Digest)
	if err != nil {
		return err
	}
	registry.mutex.Lock()
	defer registry.mutex.Unlock()
	registry.manifests[name] = storedManifest{image.MediaTypeManifest, manifest}
	for _, layer := range layout.Manifest.Layers {
		content, err := layout.Blob(layer.Digest)
		if err != nil {
			return err
		}
		registry.blobs[layer.Digest] = content
	}
	return nil
}
