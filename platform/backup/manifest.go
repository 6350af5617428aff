// Package backup saves folders to a restic repository, restores them, and compares the restored files with checksums from the time of the
// backup. The program roost-backup runs it in pods.
package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ManifestFile contains the checksums. Each snapshot contains it, beside the folders.
const ManifestFile = "manifest.json"

// notSaved are names at the top of a folder that belong to the file system or to an interrupted restore.
var notSaved = []string{"lost+found", stagingFolder, recordFile, movingFolder, replacedFolder}

// Manifest describes the content of folders at the time of a backup.
type Manifest struct {
	Made time.Time `json:"made"`
	// Entries by path, relative to the root of the snapshot.
	Entries map[string]Entry `json:"entries"`
}

// Entry is a file, a folder or a symbolic link.
type Entry struct {
	Mode     fs.FileMode `json:"mode"`
	Size     int64       `json:"size,omitempty"`
	Modified time.Time   `json:"modified,omitzero"`
	SHA256   string      `json:"sha256,omitempty"`
	Target   string      `json:"target,omitempty"`
}

// Scan reads all files of folders below root. It omits files that disappear while it runs.
func Scan(ctx context.Context, root string, folders []string) (Manifest, error) {
	manifest := Manifest{Made: time.Now().UTC(), Entries: map[string]Entry{}}
	for _, folder := range folders {
		top := filepath.Join(root, folder)
		err := filepath.WalkDir(top, func(path string, found fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) && path != top {
				return nil
			}
			if err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if path != top && filepath.Dir(path) == top && slices.Contains(notSaved, found.Name()) {
				return skipped(found)
			}
			entry, err := entryOf(path)
			if err != nil || entry == nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err == nil {
				manifest.Entries[filepath.ToSlash(name)] = *entry
			}
			return err
		})
		if err != nil {
			return Manifest{}, fmt.Errorf("reading %s: %w", top, err)
		}
	}
	return manifest, nil
}

func skipped(found fs.DirEntry) error {
	if found.IsDir() {
		return filepath.SkipDir
	}
	return nil
}

// entryOf returns nil for a file that has disappeared, and for sockets, pipes and devices.
func entryOf(path string) (*Entry, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entry := &Entry{Mode: info.Mode()}
	switch {
	case info.Mode().IsRegular():
		entry.Size, entry.Modified = info.Size(), info.ModTime().UTC()
		entry.SHA256, err = checksum(path)
	case info.Mode()&fs.ModeSymlink != 0:
		entry.Target, err = os.Readlink(path)
	case !info.IsDir():
		return nil, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entry, err
}

func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// readManifest reads the manifest of a snapshot from the folder into which the snapshot was restored.
func readManifest(root string) (Manifest, error) {
	var manifest Manifest
	text, err := os.ReadFile(filepath.Join(root, ManifestFile))
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("the snapshot has no manifest that can be read: %w", err)
	}
	return manifest, nil
}

// filesAndBytes returns the number of files and of their bytes in a manifest, without folders and links.
func (manifest Manifest) filesAndBytes() (files int, bytes int64) {
	for _, entry := range manifest.Entries {
		if entry.Mode.IsRegular() {
			files++
			bytes += entry.Size
		}
	}
	return files, bytes
}
