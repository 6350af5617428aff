package image

import (
	"strings"
	"testing"
)

func TestNamesWithDigests(t *testing.T) {
	digest := "sha256:" + strings.Repeat("ab", 32)
	for _, text := range []string{
		"", "shop", "registry.example.com/shop:1.0.0", "registry.example.com/shop@sha256:12", "shop@" + digest, "registry.example.com/shop:1@" + digest,
	} {
		if _, err := ParsePinned(text); err == nil || !strings.Contains(err.Error(), "a tag is not enough") {
			t.Errorf("%q: %v", text, err)
		}
	}
	pinned, err := ParsePinned("localhost:5000/shop@" + digest)
	if err != nil || pinned.Repository != "localhost:5000/shop" || pinned.TagFor("sig") != "sha256-"+strings.Repeat("ab", 32)+".sig" {
		t.Errorf("%+v, %v", pinned, err)
	}
}
