package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
)

// Names at the top of a folder while its content is replaced.
const (
	// stagingFolder contains the restored files.
	stagingFolder = ".roost-restore"
	// recordFile exists from the first move to the last.
	recordFile = ".roost-restore.json"
	// movingFolder receives the previous content of the folder. It is renamed to replacedFolder when all of the content has moved.
	movingFolder   = ".roost-moving"
	replacedFolder = ".roost-replaced"
)

// replacement is the record of a restore that has begun to replace files, so that another process can complete it. It is stored in the first of
// the folders, and is valid for all of them.
type replacement struct {
	Folders []string `json:"folders"`
	// Names at the top of the folders that are replaced. If it is empty, all names are replaced.
	Names  []string `json:"names,omitempty"`
	Report Report   `json:"report"`

	rename func(from, to string) error
	// sync is syncPath, except in tests.
	sync func(path string) error
}

// syncPath returns when a file, or the names in a folder, are on the disk.
func syncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// replacementUnder returns the record in the folders below root, or nil.
func replacementUnder(root string, folders []string) (*replacement, error) {
	for _, folder := range folders {
		text, err := os.ReadFile(filepath.Join(root, folder, recordFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		record := &replacement{rename: os.Rename, sync: syncPath}
		if err == nil {
			err = json.Unmarshal(text, record)
		}
		if err == nil {
			err = record.check(folder, folders)
		}
		if err != nil {
			return nil, fmt.Errorf("the record %s of an interrupted restore is not valid: %w. To discard the record, delete that file in a pod that mounts the volume, "+
				"as docs/backups.md describes under \"An interrupted restore\", and repeat `roost restore --replace`", filepath.Join(folder, recordFile), err)
		}
		return record, nil
	}
	return nil, nil
}

var recordedSnapshotPattern = regexp.MustCompile(`^[0-9a-f]{4,64}$`)

// check refuses a record that Restore does not write. The app can write a record to its volume.
func (record *replacement) check(folder string, folders []string) error {
	for _, name := range record.Folders {
		if !slices.Contains(folders, name) {
			return fmt.Errorf("it names the folder %q, but the volumes are %q; if the volume was removed from spec.volumes, add it again, and complete the restore with `roost restore`", name, folders)
		}
	}
	if !slices.Contains(record.Folders, folder) {
		return fmt.Errorf("it does not name its own folder %q", folder)
	}
	if !recordedSnapshotPattern.MatchString(record.Report.Snapshot) {
		return fmt.Errorf("the snapshot %.80q is not hexadecimal", record.Report.Snapshot)
	}
	return nil
}

// refuseReplacement returns an error while a restore has replaced only a part of the folders.
func refuseReplacement(root string, folders []string) error {
	record, err := replacementUnder(root, folders)
	if err == nil && record != nil {
		err = fmt.Errorf("a restore of snapshot %s was interrupted, so the volumes hold parts of two states; complete it with `roost restore`", record.Report.Snapshot)
	}
	return err
}

// begin writes the record. The restored files are on the disk before the record, and the record is on the disk before the first move.
func (record *replacement) begin(root string) error {
	for _, folder := range record.Folders {
		for _, name := range []string{movingFolder, replacedFolder} {
			if err := os.RemoveAll(filepath.Join(root, folder, name)); err != nil {
				return err
			}
		}
	}
	syscall.Sync()
	first := filepath.Join(root, record.Folders[0])
	draft := filepath.Join(first, stagingFolder, recordFile)
	if err := write(draft, record); err != nil {
		return err
	}
	if err := record.sync(draft); err != nil {
		return err
	}
	if err := record.rename(draft, filepath.Join(first, recordFile)); err != nil {
		return err
	}
	return record.sync(first)
}

// complete moves the previous content of the folders away, and the restored files into place. All moves stay within one file system, and each
// step can be repeated. The record is removed when all folders are done.
func (record *replacement) complete(root string) error {
	for _, folder := range record.Folders {
		if err := record.replaceContent(filepath.Join(root, folder), folder); err != nil {
			return fmt.Errorf("%w; the volumes hold parts of two states: complete the restore with `roost restore`", err)
		}
	}
	syscall.Sync()
	for _, folder := range record.Folders {
		if err := os.Remove(filepath.Join(root, folder, recordFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// A record that reappears after a power failure must find the files that it moves.
		if err := record.sync(filepath.Join(root, folder)); err != nil {
			return err
		}
	}
	var failures error
	for _, folder := range record.Folders {
		for _, name := range []string{stagingFolder, replacedFolder} {
			failures = errors.Join(failures, os.RemoveAll(filepath.Join(root, folder, name)))
		}
	}
	return failures
}

func (record *replacement) replaceContent(target, folder string) error {
	moving, done := filepath.Join(target, movingFolder), filepath.Join(target, replacedFolder)
	_, err := os.Lstat(done)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(moving, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := record.moveAll(target, moving); err != nil {
			return err
		}
		err = record.rename(moving, done)
	}
	if err != nil {
		return err
	}
	return record.moveAll(filepath.Join(target, stagingFolder, filepath.FromSlash(folder)), target)
}

func (record *replacement) moveAll(from, to string) error {
	names, err := ownNames(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if len(record.Names) > 0 && !slices.Contains(record.Names, name) {
			continue
		}
		if err := record.rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}
