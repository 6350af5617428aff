package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/deploy"
	"github.com/dunlin-project/dunlin/platform/render"
)

// TestImagesHaveOneRegistry has images of a registry of somebody's own: no object of the installation names another one.
func TestImagesHaveOneRegistry(t *testing.T) {
	if image := deploy.Image("roost-backup"); image != (render.Cluster{}).DefaultBackupImage() || !strings.HasPrefix(image, "registry.example.com/roost-backup:") {
		t.Errorf("%s, %s", image, (render.Cluster{}).DefaultBackupImage())
	}
	manifest, err := deploy.Files.ReadFile("operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"image: " + deploy.Image("roost-operator") + "\n", "--backup-image=" + deploy.Image("roost-backup") + "]"} {
		if !strings.Contains(string(manifest), part) {
			t.Errorf("operator.yaml has no %q", part)
		}
	}
	folder := t.TempDir()
	write := exec.Command("../images", folder, "manifests")
	write.Env = append(os.Environ(), "IMAGE_REGISTRY=ghcr.io/a-team/roost", "IMAGE_TAG=1.2.3")
	if output, err := write.CombinedOutput(); err != nil || strings.TrimSpace(string(output)) != filepath.Join(folder, "install.yaml") {
		t.Fatalf("%v: %s", err, output)
	}
	text, err := os.ReadFile(filepath.Join(folder, "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"image: ghcr.io/a-team/roost/roost-operator:1.2.3\n", "--backup-image=ghcr.io/a-team/roost/roost-backup:1.2.3]"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("install.yaml has no %q", part)
		}
	}
	kinds := map[string]int{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct{ Containers []struct{ Image string } }
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		kinds[object.Kind]++
		for _, container := range object.Spec.Template.Spec.Containers {
			if !strings.HasPrefix(container.Image, "ghcr.io/a-team/roost/") {
				t.Errorf("%s", container.Image)
			}
		}
	}
	if kinds["CustomResourceDefinition"] != 2 || kinds["Deployment"] != 1 || kinds["Namespace"] != 1 || kinds["ClusterRole"] < 5 {
		t.Errorf("%v", kinds)
	}
}

// TestDocumentsNameTheImagesOfThisVersion has pages with the names of images that a reader copies.
func TestDocumentsNameTheImagesOfThisVersion(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`registry\.example\.com/(roost-operator|roost-backup|dunlin|dunlin-arena):[0-9][0-9.]*[0-9]`)
	found := 0
	for _, page := range append(pages, "../README.md", "../machines/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range name.FindAllStringSubmatch(string(text), -1) {
			found++
			if match[0] != deploy.Image(match[1]) {
				t.Errorf("%s has %s, not %s", page, match[0], deploy.Image(match[1]))
			}
		}
	}
	if found < 4 {
		t.Errorf("%d names", found)
	}
}
