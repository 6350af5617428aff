package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// fileBytesMax is the largest file that is read into memory.
const fileBytesMax = 1 << 30

// Layout is an OCI image layout with one manifest. The content of each blob matches the digest in its name.
type Layout struct {
	Entry    Descriptor
	Manifest Manifest
	blobs    Blobs
}

// ReadLayout reads a tar file that was written by this package, skopeo or buildah.
func ReadLayout(path string) (*Layout, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	layout, err := readLayout(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return layout, nil
}

func readLayout(in io.Reader) (*Layout, error) {
	layout := &Layout{blobs: Blobs{}}
	var index Index
	hasIndex := false
	archive := tar.NewReader(in)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if header.Size > fileBytesMax {
			return nil, fmt.Errorf("%s has %d bytes; at most %d are allowed", header.Name, header.Size, fileBytesMax)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(header.Name, "./")
		if digest, isBlob := strings.CutPrefix(name, "blobs/sha256/"); isBlob && header.Typeflag == tar.TypeReg {
			if actual := digestOf(content); actual != "sha256:"+digest {
				return nil, fmt.Errorf("%s has the digest %s: the archive is damaged; write it again", name, actual)
			}
			layout.blobs["sha256:"+digest] = content
		}
		if name == "index.json" {
			hasIndex = true
			if err := json.Unmarshal(content, &index); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if !hasIndex || len(index.Manifests) != 1 {
		return nil, fmt.Errorf("index.json lists %d manifests; an OCI archive with exactly one is needed", len(index.Manifests))
	}
	layout.Entry = index.Manifests[0]
	text, err := layout.Blob(layout.Entry.Digest)
	if err != nil {
		return nil, err
	}
	return layout, json.Unmarshal(text, &layout.Manifest)
}

// NewLayout creates a layout from a manifest and its layers. The content of each layer must match its digest in the manifest.
func NewLayout(manifest []byte, layersMax int, fetch func(Descriptor) ([]byte, error)) (*Layout, error) {
	layout := &Layout{blobs: Blobs{}}
	layout.Entry = layout.blobs.Add(MediaTypeManifest, manifest)
	if err := json.Unmarshal(manifest, &layout.Manifest); err != nil {
		return nil, fmt.Errorf("the manifest is not JSON: %w", err)
	}
	if count := len(layout.Manifest.Layers); count > layersMax {
		return nil, fmt.Errorf("the manifest has %d layers; at most %d are read", count, layersMax)
	}
	for _, layer := range layout.Manifest.Layers {
		content, err := fetch(layer)
		if err != nil {
			return nil, err
		}
		if actual := digestOf(content); actual != layer.Digest {
			return nil, fmt.Errorf("the content of %s has the digest %s", layer.Digest, actual)
		}
		layout.blobs[layer.Digest] = content
	}
	return layout, nil
}

// Blob returns the content with a digest.
func (layout *Layout) Blob(digest string) ([]byte, error) {
	content, isThere := layout.blobs[digest]
	if !isThere {
		return nil, fmt.Errorf("the archive lacks %s; write it again", digest)
	}
	return content, nil
}

// EachFile calls visit for each regular file of all layers, with its absolute path.
func (layout *Layout) EachFile(visit func(path string, content []byte) error) error {
	for _, part := range layout.Manifest.Layers {
		compressed, err := layout.Blob(part.Digest)
		if err != nil {
			return err
		}
		if part.MediaType != MediaTypeLayer {
			return fmt.Errorf("the layer %s is %s; only %s is supported", part.Digest, part.MediaType, MediaTypeLayer)
		}
		plain, err := gzip.NewReader(bytes.NewReader(compressed))
		if err != nil {
			return err
		}
		archive := tar.NewReader(plain)
		for {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if header.Typeflag != tar.TypeReg {
				continue
			}
			if header.Size > fileBytesMax {
				return fmt.Errorf("%s has %d bytes; at most %d are allowed", header.Name, header.Size, fileBytesMax)
			}
			content, err := io.ReadAll(archive)
			if err != nil {
				return err
			}
			if err := visit("/"+strings.TrimPrefix(header.Name, "./"), content); err != nil {
				return err
			}
		}
	}
	return nil
}
