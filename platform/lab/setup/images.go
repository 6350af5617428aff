package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// image is an entry of images.json. Several names may have one root, with variables of their own.
type image struct {
	Root       string   `json:"root"`
	Entrypoint []string `json:"entrypoint"`
	User       string   `json:"user"`
	Names      []struct {
		Name string   `json:"name"`
		Env  []string `json:"env"`
	} `json:"names"`
}

type object = map[string]any

// archive is a tar file with an OCI image layout.
type archive struct {
	out     *tar.Writer
	written map[string]bool
}

func writeImages(path, roots, description string) error {
	text, err := os.ReadFile(description)
	if err != nil {
		return err
	}
	var images []image
	if err := json.Unmarshal(text, &images); err != nil {
		return fmt.Errorf("%s: %w", description, err)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	layout := archive{tar.NewWriter(file), map[string]bool{}}
	var manifests []object
	for _, image := range images {
		found, err := layout.image(image, filepath.Join(roots, image.Root))
		if err != nil {
			return fmt.Errorf("%s: %w", image.Root, err)
		}
		manifests = append(manifests, found...)
	}
	index, _ := json.Marshal(object{"schemaVersion": 2, "manifests": manifests})
	if err := layout.file("index.json", index); err != nil {
		return err
	}
	if err := layout.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	return layout.out.Close()
}

// image writes the layer, and a manifest for each name.
func (archive *archive) image(image image, root string) ([]object, error) {
	layer, err := layerOf(root)
	if err != nil {
		return nil, err
	}
	layerBlob, err := archive.blob("application/vnd.oci.image.layer.v1.tar", layer)
	if err != nil {
		return nil, err
	}
	var manifests []object
	for _, named := range image.Names {
		configText, _ := json.Marshal(object{
			"architecture": "amd64", "os": "linux",
			"config": object{"Entrypoint": image.Entrypoint, "User": image.User, "Env": named.Env},
			"rootfs": object{"type": "layers", "diff_ids": []any{layerBlob["digest"]}},
		})
		config, err := archive.blob("application/vnd.oci.image.config.v1+json", configText)
		if err != nil {
			return nil, err
		}
		text, _ := json.Marshal(object{
			"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []object{layerBlob},
		})
		manifest, err := archive.blob("application/vnd.oci.image.manifest.v1+json", text)
		if err != nil {
			return nil, err
		}
		manifest["annotations"] = object{"io.containerd.image.name": named.Name}
		manifests = append(manifests, manifest)
	}
	return manifests, nil
}

// blob writes the content once, and returns its descriptor.
func (archive *archive) blob(kind string, content []byte) (object, error) {
	digest := fmt.Sprintf("%x", sha256.Sum256(content))
	if !archive.written[digest] {
		if err := archive.file("blobs/sha256/"+digest, content); err != nil {
			return nil, err
		}
		archive.written[digest] = true
	}
	return object{"mediaType": kind, "digest": "sha256:" + digest, "size": len(content)}, nil
}

func (archive *archive) file(name string, content []byte) error {
	if err := archive.out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := archive.out.Write(content)
	return err
}

func layerOf(root string) ([]byte, error) {
	var content bytes.Buffer
	out := tar.NewWriter(&content)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		header, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		header.Name, _ = filepath.Rel(root, path)
		header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
		if err := out.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(out, file)
		return err
	})
	if err != nil {
		return nil, err
	}
	return content.Bytes(), out.Close()
}
