package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Folders of a Dunlin's volume.
const (
	storageBackups = "backups"
	storageData    = "storage"
)

const (
	// stagedFile passes the outcome of the first half of a restore to the second half. It is below their common root.
	stagedFile = "staged.json"
	// ProgramFile is the program that runs FinishStorage and LoadDump, below the root.
	ProgramFile = "roost-backup"
	// lastOutputBytesMax bounds the output of `dunlin restore`, or of a command of the app, in an error message.
	lastOutputBytesMax = 1024
)

// staged is what StageStorage passes to FinishStorage, and StageDump to LoadDump.
type staged struct {
	Report Report `json:"report"`
	// IsDone is true if an interrupted restore was completed, and nothing is staged.
	IsDone bool `json:"isDone"`
	// Dump is the file that LoadDump loads, below the root.
	Dump string `json:"dump,omitempty"`
}

// StageStorage is the first half of a restore of a Dunlin's volume. It runs in the image with restic, restores the backups of the node beside
// the current content of the volume, and compares them. FinishStorage continues in the image of the Dunlin, which has the program dunlin.
// StageStorage leaves a copy of its own program for FinishStorage.
func StageStorage(ctx context.Context, repository *Repository, root, volume string, options RestoreOptions) (Report, error) {
	report, err := repository.stageStorage(ctx, root, volume, options)
	if err == nil {
		err = copyProgram(filepath.Join(root, ProgramFile))
	}
	return report, whetherUnchanged(root, []string{volume}, err)
}

func (repository *Repository) stageStorage(ctx context.Context, root, volume string, options RestoreOptions) (Report, error) {
	report, snapshot, err := repository.prepare(ctx, root, []string{volume}, options)
	if err != nil {
		return report, err
	}
	if snapshot != nil {
		manifest, err := repository.manifest(ctx, *snapshot)
		if err != nil {
			return report, err
		}
		saved := path.Join(volume, storageBackups)
		if err := repository.stage(ctx, *snapshot, manifest, root, volume, saved, &report); err != nil {
			return report, err
		}
		newest, err := newestBackup(filepath.Join(root, volume, stagingFolder, saved))
		if err != nil {
			return report, fmt.Errorf("snapshot %s has no complete backup of the node: %w; name another one with --snapshot", report.Snapshot, err)
		}
		report.Newest = &newest
	}
	return report, write(filepath.Join(root, stagedFile), staged{Report: report, IsDone: snapshot == nil})
}

// copyProgram copies the running program, which is statically linked.
func copyProgram(to string) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(own)
	if err != nil {
		return err
	}
	defer from.Close()
	copied, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(copied, from)
	return errors.Join(err, copied.Close())
}

// FinishStorage is the second half. `dunlin restore` creates a storage from the newest backup, beside the current content of the volume, and
// verifies all checksums. Then the backups and the storage replace those of the volume, as in Restore. All other names in the volume are kept.
func FinishStorage(ctx context.Context, root, volume, program string) (Report, error) {
	report, err := finishStorage(ctx, root, volume, program, os.Rename)
	return report, whetherUnchanged(root, []string{volume}, err)
}

func finishStorage(ctx context.Context, root, volume, program string, rename func(from, to string) error) (Report, error) {
	var found staged
	text, err := os.ReadFile(filepath.Join(root, stagedFile))
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil || found.IsDone {
		return found.Report, err
	}
	content := filepath.Join(root, volume, stagingFolder, volume)
	command := exec.CommandContext(ctx, program, "restore", filepath.Join(content, storageBackups), filepath.Join(content, storageData))
	command.Env = []string{}
	if out, err := command.CombinedOutput(); err != nil {
		words := strings.ToValidUTF8(string(out[max(0, len(out)-lastOutputBytesMax):]), "")
		err = fmt.Errorf("dunlin restore failed: %w: %s", err, strings.TrimSpace(words))
		return found.Report, errors.Join(err, os.RemoveAll(filepath.Join(root, volume, stagingFolder)))
	}
	// The volume may contain more, such as recordings of rooms, which no snapshot contains.
	names := []string{storageBackups, storageData}
	record := &replacement{Folders: []string{volume}, Names: names, Report: found.Report, rename: rename, sync: syncPath}
	if err := record.begin(root); err != nil {
		return found.Report, err
	}
	return found.Report, record.complete(root)
}
