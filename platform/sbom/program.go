package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// OfPrograms lists the modules of Go programs, the crates of Rust programs, and the programs themselves. The files of Rust programs have the names of their
// packages in the workspace.
func OfPrograms(name, version string, files []string, workspace Workspace) (Document, error) {
	var components []Component
	digest := sha256.New()
	for _, file := range slices.Sorted(slices.Values(files)) {
		content, err := os.ReadFile(file)
		if err != nil {
			return Document{}, err
		}
		program := filepath.Base(file)
		linked, isGo := goModules(content)
		if !isGo {
			if linked, err = cratesOf(program, content, workspace); err != nil {
				return Document{}, fmt.Errorf("%s: %w", file, err)
			}
		}
		sum := sha256.Sum256(content)
		fmt.Fprintf(digest, "%s %x\n", program, sum)
		components = append(append(components, linked...), fileAt(program, content))
	}
	packageURL := fmt.Sprintf("pkg:generic/%s@%s", escape(name), escape(version))
	subject := Component{Type: "application", Reference: packageURL, Name: name, Version: version, PackageURL: packageURL}
	return documentOf(subject, "sha256:"+hex.EncodeToString(digest.Sum(nil)), components), nil
}

func cratesOf(program string, content []byte, workspace Workspace) ([]Component, error) {
	target, err := targetOf(content)
	if err != nil {
		return nil, err
	}
	if workspace.Folder == "" {
		return nil, errors.New("was compiled from Rust; set --workspace to the folder with its Cargo.lock")
	}
	return crates(workspace.Folder, program, target, content)
}

// targetOf returns the target that a program was compiled for.
func targetOf(program []byte) (string, error) {
	if rustCompiler(program) == "" {
		return "", errors.New("is not a program that was compiled from Rust or Go")
	}
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", err
	}
	switch file.Machine {
	case elf.EM_X86_64:
		return "x86_64-unknown-linux-gnu", nil
	case elf.EM_AARCH64:
		return "aarch64-unknown-linux-gnu", nil
	default:
		return "", fmt.Errorf("is for %s, which Dunlin is not released for", file.Machine)
	}
}
