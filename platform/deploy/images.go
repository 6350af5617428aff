package deploy

import (
	_ "embed"
	"strings"
)

//go:embed images.env
var imageNames string

// Registry returns the registry of images.env.
func Registry() string { return imageVariable("IMAGE_REGISTRY") }

// Image returns the full name of an image, such as that of roost-backup, with the registry and the tag of images.env.
func Image(name string) string {
	return Registry() + "/" + name + ":" + imageVariable("IMAGE_TAG")
}

func imageVariable(name string) string {
	for line := range strings.Lines(imageNames) {
		if value, isSet := strings.CutPrefix(line, name+"="); isSet {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
