package deploy

import (
	_ "embed"
	"strings"
)

//go:embed images.env
var imageNames string

// Image returns the full name of an image, such as that of roost-backup, with the registry and the tag of images.env.
func Image(name string) string {
	return imageVariable("IMAGE_REGISTRY") + "/" + name + ":" + imageVariable("IMAGE_TAG")
}

func imageVariable(name string) string {
	for line := range strings.Lines(imageNames) {
		if value, isSet := strings.CutPrefix(line, name+"="); isSet {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
