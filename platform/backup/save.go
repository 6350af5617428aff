package backup

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Kinds of reports.
const (
	KindSave    = "save"
	KindVerify  = "verify"
	KindRestore = "restore"
)

// Report is the outcome of a run. The pod writes it to its termination message.
type Report struct {
	Kind string `json:"kind"`
	// Snapshot is the identifier of the snapshot, and Taken its time.
	Snapshot string    `json:"snapshot"`
	Taken    time.Time `json:"taken"`
	// Newest is when a Dunlin made the newest backup in the snapshot.
	Newest *time.Time `json:"newest,omitempty"`
	Files  int        `json:"files"`
	Bytes  int64      `json:"bytes"`
	// Changed is the number of files that changed while they were saved, and were not compared.
	Changed int `json:"changed,omitempty"`
	// IsForeign is true if the snapshot belongs to another owner.
	IsForeign bool `json:"isForeign,omitempty"`
	// IsNew is true if this run created the repository.
	IsNew bool `json:"isNew,omitempty"`
	// Streams is the number of streams of a Dunlin in NATS, and Messages the number of messages in them.
	Streams  int    `json:"streams,omitempty"`
	Messages uint64 `json:"messages,omitempty"`
	// IsLoaded is true if a program of the app has loaded the dump, or a NATS server the streams.
	IsLoaded bool `json:"isLoaded,omitempty"`
	// Skipped is true if there was nothing to do.
	Skipped bool `json:"skipped,omitempty"`
}

// Save makes a snapshot of folders below root, and removes the snapshots that the policy does not keep.
func Save(ctx context.Context, repository *Repository, root string, folders []string, keep Keep) (Report, error) {
	return repository.saveIf(ctx, root, folders, keep, func(Manifest) error { return nil })
}

// saveIf is Save for folders whose manifest passes a check.
func (repository *Repository) saveIf(ctx context.Context, root string, folders []string, keep Keep, check func(Manifest) error) (Report, error) {
	report := Report{Kind: KindSave}
	err := refuseReplacement(root, folders)
	if err != nil {
		return report, err
	}
	if report.IsNew, err = repository.open(ctx, true); err != nil {
		return report, err
	}
	manifest, err := Scan(ctx, root, folders)
	if err != nil {
		return report, err
	}
	if err := check(manifest); err != nil {
		return report, err
	}
	if report.Files, report.Bytes = manifest.filesAndBytes(); report.Files == 0 {
		return report, fmt.Errorf("%s contain no file, and an empty backup is not saved; check the volumes", strings.Join(folders, ", "))
	}
	if err := write(filepath.Join(root, ManifestFile), manifest); err != nil {
		return report, err
	}
	name, err := repository.save(ctx, root, folders)
	if err != nil {
		return report, err
	}
	snapshots, err := repository.snapshots(ctx)
	if err != nil {
		return report, err
	}
	snapshot, err := repository.choose(snapshots, name)
	if err != nil {
		return report, err
	}
	report.Snapshot, report.Taken = snapshot.Short(), snapshot.Time
	listed, err := repository.list(ctx, snapshot)
	if err != nil {
		return report, err
	}
	if missing := unsaved(manifest, listed, root); len(missing) > 0 {
		return report, fmt.Errorf("snapshot %s lacks %d files, such as %s", report.Snapshot, len(missing), missing[0])
	}
	if err := repository.forget(ctx, repository.own(snapshots), keep); err != nil {
		return report, fmt.Errorf("snapshot %s is saved, but older snapshots cannot be removed: %w", report.Snapshot, err)
	}
	return report, nil
}

func write(file string, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	return err
}

// save calls restic in root, so that paths in the snapshot begin there. It returns the identifier of the snapshot.
func (repository *Repository) save(ctx context.Context, root string, folders []string) (string, error) {
	arguments := []string{"backup", "--json", "--host", repository.Host, "--tag", tag}
	if repository.Owner != "" {
		arguments = append(arguments, "--tag", repository.ownerTag())
	}
	for _, folder := range folders {
		for _, name := range notSaved {
			arguments = append(arguments, "--exclude", filepath.Join(root, folder, name))
		}
	}
	out, err := repository.runWhenUnlocked(ctx, root, slices.Concat(arguments, []string{ManifestFile}, folders)...)
	if err != nil {
		return "", err
	}
	name := ""
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var message struct {
			Type     string `json:"message_type"`
			Snapshot string `json:"snapshot_id"`
		}
		if json.Unmarshal(lines.Bytes(), &message) == nil && message.Type == "summary" {
			name = message.Snapshot
		}
	}
	if name == "" {
		return "", errors.New("restic backup printed no snapshot ID")
	}
	return name, nil
}

func (repository *Repository) forget(ctx context.Context, snapshots []Snapshot, keep Keep) error {
	old := expired(snapshots, keep)
	if len(old) == 0 {
		return nil
	}
	arguments := []string{"forget", "--prune"}
	for _, snapshot := range old {
		arguments = append(arguments, snapshot.ID)
	}
	_, err := repository.runWhenUnlocked(ctx, "", arguments...)
	return err
}
