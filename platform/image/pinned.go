package image

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Pinned is an image reference with a digest.
type Pinned struct {
	Repository string
	Digest     string
}

var pinnedName = regexp.MustCompile(`^([a-z0-9.-]+(?::[0-9]+)?(?:/[a-z0-9._-]+)+)@(sha256:[0-9a-f]{64})$`)

// ParsePinned parses REGISTRY/NAME@sha256:DIGEST.
func ParsePinned(text string) (Pinned, error) {
	found := pinnedName.FindStringSubmatch(text)
	if found == nil {
		return Pinned{}, fmt.Errorf("the image %q is not REGISTRY/NAME@sha256:DIGEST; a tag is not enough, because it can be moved", text)
	}
	return Pinned{Repository: found[1], Digest: found[2]}, nil
}

// TagFor returns the tag of an attachment of the image, as cosign names it: sha256-DIGEST.KIND.
func (pinned Pinned) TagFor(kind string) string {
	return strings.Replace(pinned.Digest, ":", "-", 1) + "." + kind
}

// Attachment returns an image with one document, such as a signature. A registry stores it beside the image that it describes.
func Attachment(mediaType string, content []byte, annotations map[string]string, tag string) (Blobs, Descriptor, error) {
	blobs := Blobs{}
	layer := blobs.Add(mediaType, content)
	layer.Annotations = annotations
	config := fmt.Sprintf(`{"architecture":"","created":"0001-01-01T00:00:00Z","os":"","rootfs":{"type":"layers","diff_ids":[%q]},"config":{}}`, layer.Digest)
	manifest, err := json.Marshal(Manifest{
		SchemaVersion: 2, MediaType: MediaTypeManifest, Config: blobs.Add(MediaTypeConfig, []byte(config)), Layers: []Descriptor{layer},
	})
	if err != nil {
		return nil, Descriptor{}, err
	}
	entry := blobs.Add(MediaTypeManifest, manifest)
	entry.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag}
	return blobs, entry, nil
}
