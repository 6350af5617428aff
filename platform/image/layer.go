package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// layer is the content of a folder as a compressed archive, with the digests before and after compression.
type layer struct {
	compressed []byte
	digest     string
	diffID     string
}

// newLayer archives a folder. All entries are in lexical order, and have the owner root and the same time, so the same files give the same bytes.
func newLayer(root string, modified time.Time) (layer, error) {
	var plain bytes.Buffer
	archive := tar.NewWriter(&plain)
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		if entry.Type().IsRegular() {
			files++
		}
		return addFile(archive, root, path, entry, modified)
	})
	if err != nil {
		return layer{}, err
	}
	if files == 0 {
		return layer{}, fmt.Errorf("%s has no files; give --root the folder that packaging/image-root has filled", root)
	}
	if err := archive.Close(); err != nil {
		return layer{}, err
	}
	var compressed bytes.Buffer
	compressor := gzip.NewWriter(&compressed)
	if _, err := compressor.Write(plain.Bytes()); err != nil {
		return layer{}, err
	}
	if err := compressor.Close(); err != nil {
		return layer{}, err
	}
	return layer{compressed: compressed.Bytes(), digest: digestOf(compressed.Bytes()), diffID: digestOf(plain.Bytes())}, nil
}

func addFile(archive *tar.Writer, root, path string, entry fs.DirEntry, modified time.Time) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: filepath.ToSlash(name), Mode: int64(info.Mode().Perm()), ModTime: modified, Format: tar.FormatPAX}
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return fmt.Errorf("%s is set-user-ID or set-group-ID; remove that bit, an image must have none", path)
	}
	if info.Mode()&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}
	switch {
	case info.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
	case info.Mode().IsRegular():
		header.Typeflag, header.Size = tar.TypeReg, info.Size()
	case info.Mode()&fs.ModeSymlink != 0:
		header.Typeflag = tar.TypeSymlink
		if header.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s is %s; an image can have files, folders and symbolic links only", path, info.Mode().Type())
	}
	if err := archive.WriteHeader(header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(archive, file)
	return err
}

// architecture returns the GOARCH value that a program was compiled for.
func architecture(program string) (string, error) {
	file, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("the entrypoint is not a Linux program: %w", err)
	}
	defer file.Close()
	info, err := os.Stat(program)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o005 != 0o005 {
		return "", fmt.Errorf("%s has the mode %s; the image's user must be able to run it: set it to 0755", program, info.Mode())
	}
	switch file.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", fmt.Errorf("%s is compiled for %s; images are for amd64 and arm64", program, file.Machine)
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}
