package ci

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// registry is an image registry in memory, with what skopeo calls: blobs that are uploaded in one or several parts, and manifests.
type registry struct {
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

func newRegistry(password string) *registry {
	return &registry{password: password, blobs: map[string][]byte{}, manifests: map[string]storedManifest{}, uploads: map[string][]byte{}}
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (registry *registry) ServeHTTP(response http.ResponseWriter, request *http.Request) {
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

func (registry *registry) manifest(response http.ResponseWriter, request *http.Request, name, reference string, body []byte) {
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

func (registry *registry) upload(response http.ResponseWriter, request *http.Request, name, id string, body []byte) {
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
