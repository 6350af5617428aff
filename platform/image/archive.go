// Package image writes container images without a container engine: an OCI image layout in a tar file, which `docker load` can read.
// The same files give the same bytes.
package image

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Media types of the OCI specifications.
const (
	MediaTypeIndex    = "application/vnd.oci.image.index.v1+json"
	MediaTypeManifest = "application/vnd.oci.image.manifest.v1+json"
	MediaTypeConfig   = "application/vnd.oci.image.config.v1+json"
	MediaTypeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// Descriptor points to content by its digest.
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Platform    *Platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Platform is the operating system and the architecture that an image runs on.
type Platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// Manifest lists the parts of an image.
type Manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        Descriptor   `json:"config"`
	Layers        []Descriptor `json:"layers"`
}

// Index is the table of contents of an image layout.
type Index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []Descriptor `json:"manifests"`
}

// Source is the input of WriteArchive.
type Source struct {
	Name    string // with registry and tag, such as registry.example.com/roost-operator:0.1.0
	Root    string // the folder with the image's files
	Config  Config
	Created time.Time
}

// configuration is the document that a container engine reads.
type configuration struct {
	Created      string `json:"created"`
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       Config `json:"config"`
	RootFS       struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []history `json:"history"`
}

type history struct {
	Created   string `json:"created"`
	CreatedBy string `json:"created_by"`
}

// WriteArchive writes the image and returns the digest of its manifest, which a registry and `image: NAME@DIGEST` use.
func WriteArchive(out io.Writer, source Source) (string, error) {
	repository, tag, err := splitName(source.Name)
	if err != nil {
		return "", err
	}
	machine, err := architecture(filepath.Join(source.Root, source.Config.Entrypoint[0]))
	if err != nil {
		return "", err
	}
	files, err := newLayer(source.Root, source.Created)
	if err != nil {
		return "", err
	}
	created := source.Created.UTC().Format(time.RFC3339)
	document := configuration{Created: created, Architecture: machine, OS: "linux", Config: source.Config}
	document.RootFS.Type, document.RootFS.DiffIDs = "layers", []string{files.diffID}
	document.History = []history{{Created: created, CreatedBy: "roost-image"}}
	config, err := json.Marshal(document)
	if err != nil {
		return "", err
	}
	blobs := Blobs{}
	manifest := Manifest{
		SchemaVersion: 2, MediaType: MediaTypeManifest,
		Config: blobs.Add(MediaTypeConfig, config), Layers: []Descriptor{blobs.Add(MediaTypeLayer, files.compressed)},
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return "", err
	}
	entry := blobs.Add(MediaTypeManifest, text)
	entry.Platform = &Platform{Architecture: machine, OS: "linux"}
	entry.Annotations = map[string]string{"io.containerd.image.name": source.Name, "org.opencontainers.image.ref.name": tag}
	docker := []map[string]any{{
		"Config": blobPath(manifest.Config.Digest), "RepoTags": []string{repository + ":" + tag}, "Layers": []string{blobPath(files.digest)},
	}}
	return entry.Digest, WriteLayout(out, blobs, entry, docker)
}

// Blobs maps digests to contents.
type Blobs map[string][]byte

// Add stores a content, and returns its descriptor.
func (blobs Blobs) Add(mediaType string, content []byte) Descriptor {
	digest := digestOf(content)
	blobs[digest] = content
	return Descriptor{MediaType: mediaType, Digest: digest, Size: int64(len(content))}
}

// WriteLayout writes an OCI image layout with one manifest as a tar file. With docker, it is also an archive for `docker load`.
func WriteLayout(out io.Writer, blobs Blobs, manifest Descriptor, docker any) error {
	index, err := json.Marshal(Index{SchemaVersion: 2, MediaType: MediaTypeIndex, Manifests: []Descriptor{manifest}})
	if err != nil {
		return err
	}
	contents := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": index}
	for digest, content := range blobs {
		contents[blobPath(digest)] = content
	}
	if docker != nil {
		text, err := json.Marshal(docker)
		if err != nil {
			return err
		}
		contents["manifest.json"] = text
	}
	archive := tar.NewWriter(out)
	for _, name := range []string{"blobs/", "blobs/sha256/"} {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(contents[name])), ModTime: time.Unix(0, 0)}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(contents[name]); err != nil {
			return err
		}
	}
	return archive.Close()
}

func blobPath(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

// splitName separates the tag of an image name. Tag and registry are required, because tools that read archives expand incomplete names differently.
func splitName(name string) (repository, tag string, err error) {
	colon := strings.LastIndex(name, ":")
	if colon < strings.LastIndex(name, "/") || colon < 0 {
		return "", "", fmt.Errorf("the image's name %q has no tag; write REGISTRY/NAME:TAG", name)
	}
	repository, tag = name[:colon], name[colon+1:]
	host, _, hasHost := strings.Cut(repository, "/")
	if !hasHost || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return "", "", fmt.Errorf("the image's name %q has no registry; write REGISTRY/NAME:TAG", name)
	}
	return repository, tag, nil
}
