package command_test

import (
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/command"
)

var digest = "sha256:" + strings.Repeat("ab", 32)

func TestImagesThatDeployDoesNotTake(t *testing.T) {
	person := newPerson(t)
	person.roost(command.ExitFine, "init", "@apps", "shop", "--image", "registry.example.com:5000/shop:1.4.2", "--namespace", "web")
	for _, wrong := range []struct{ image, message string }{
		{"registry.example.com:5000/shop:1.4.3", "write REGISTRY/NAME@sha256:DIGEST"},
		{"registry.example.com:5000/shop@sha256:ab", "write REGISTRY/NAME@sha256:DIGEST"},
		{"registry.example.com:5000/other@" + digest, "the manifests have images of registry.example.com:5000/shop only"},
		{"registry.example.com/shop@" + digest, "the manifests have images of registry.example.com:5000/shop only"},
	} {
		_, stderr := person.roost(command.ExitUsage, "deploy", "@apps", "--image", wrong.image)
		contains(t, stderr, wrong.message)
	}
}

// deployPinned deploys an image by its digest. It does not wait for pods.
func (site *site) deployPinned() {
	site.t.Helper()
	pinned := "registry.example.com/shop@" + digest
	site.roost(command.ExitFine, "deploy", "--wait", "0", "--image", pinned, "@apps/shop.yaml")
	var app v1alpha1.App
	if site.get("shop", &app); app.Spec.Image != pinned {
		site.t.Errorf("the image is %s", app.Spec.Image)
	}
	contains(site.t, site.read("apps/shop.yaml"), "registry.example.com/shop:")
}
