package command

import (
	"fmt"
	"regexp"
	"strings"
)

var pinnedImage = regexp.MustCompile(`^([a-z0-9][a-zA-Z0-9._/:-]*)@sha256:[0-9a-f]{64}$`)

// pinImages replaces images with images of the same repositories that have digests.
func pinImages(manifests []manifest, images []string) error {
	for _, image := range images {
		found := pinnedImage.FindStringSubmatch(image)
		if found == nil {
			return usageError{fmt.Errorf("--image is %q; write REGISTRY/NAME@sha256:DIGEST, which a push of the image prints", image)}
		}
		isUsed := false
		var others []string
		for _, manifest := range manifests {
			current := manifest.image()
			if repositoryOfImage(*current) == found[1] {
				*current = image
				isUsed = true
			}
			others = append(others, repositoryOfImage(*current))
		}
		if !isUsed {
			return usageError{fmt.Errorf("--image is %q, and the manifests have images of %s only; name one of these, or change spec.image of the manifest", image, strings.Join(others, ", "))}
		}
	}
	return nil
}

func (manifest manifest) image() *string {
	if manifest.app != nil {
		return &manifest.app.Spec.Image
	}
	return &manifest.dunlin.Spec.Image
}

// repositoryOfImage returns an image's name without tag and digest.
func repositoryOfImage(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		return name[:colon]
	}
	return name
}
