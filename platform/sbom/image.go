package sbom

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/dunlin-project/dunlin/platform/image"
)

// Workspace names the source code of the image's Rust programs. Each is the program of the package of its name.
type Workspace struct {
	Folder string // with Cargo.toml and Cargo.lock
}

// OfImage lists the parts of an image that was written on this machine. For a program, it lists its modules or crates. For a file of a Debian
// package, it lists the package. It lists each other file itself.
func OfImage(layout *image.Layout, workspace Workspace) (Document, error) {
	var components []Component
	err := layout.EachFile(func(path string, content []byte) error {
		found, err := partsOf(path, content, layout.Entry.Platform, workspace)
		components = append(components, found...)
		return err
	})
	if err != nil {
		return Document{}, err
	}
	return NewDocument(layout.Entry.Annotations["io.containerd.image.name"], layout.Entry.Digest, components), nil
}

func partsOf(path string, content []byte, platform *image.Platform, workspace Workspace) ([]Component, error) {
	if modules, isGo := goModules(content); isGo {
		return append(modules, fileAt(path, content)), nil
	}
	found, isDebian, err := debianPackage(path, content)
	if err != nil || isDebian {
		return []Component{found}, err
	}
	if rustCompiler(content) == "" {
		return []Component{fileAt(path, content)}, nil
	}
	if workspace.Folder == "" {
		return nil, fmt.Errorf("%s is compiled from Rust; give --workspace, from which its crates are listed", path)
	}
	target := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[platform.Architecture] + "-unknown-linux-gnu"
	linked, err := crates(workspace.Folder, filepath.Base(path), target, content)
	return append(linked, fileAt(path, content)), err
}

func fileAt(path string, content []byte) Component {
	sum := sha256.Sum256(content)
	return Component{
		Type: "file", Reference: "file:" + strings.TrimPrefix(path, "/"), Name: path,
		Hashes: []Hash{{Algorithm: "SHA-256", Content: hex.EncodeToString(sum[:])}},
	}
}
