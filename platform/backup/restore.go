package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/dunlin-project/dunlin/platform/streams"
)

func (repository *Repository) restore(ctx context.Context, snapshot Snapshot, into string, include ...string) error {
	arguments := []string{"restore", snapshot.ID, "--target", into}
	for _, folder := range include {
		arguments = append(arguments, "--include", "/"+folder)
	}
	_, err := repository.runWhenUnlocked(ctx, "", arguments...)
	return err
}

// compare returns an error if the files that were restored into a folder differ from the saved ones.
func (repository *Repository) compare(ctx context.Context, snapshot Snapshot, manifest Manifest, into string) (Comparison, error) {
	listed, err := repository.list(ctx, snapshot)
	if err != nil {
		return Comparison{}, err
	}
	comparison, err := compare(manifest, listed, into)
	if err == nil {
		err = comparison.check(manifest)
	}
	return comparison, err
}

// RestoreOptions control what a restore may overwrite.
type RestoreOptions struct {
	// Snapshot is `latest`, or the prefix of an identifier.
	Snapshot string
	// Replace removes the current content of the folders, after the snapshot is restored and compared.
	Replace bool
	// OnlyIfEmpty does nothing if a folder contains files.
	OnlyIfEmpty bool

	// rename is os.Rename, except in tests.
	rename func(from, to string) error
}

// names reports whether the options request a snapshot.
func (options RestoreOptions) names(snapshot string) bool {
	return options.Snapshot == "latest" || strings.HasPrefix(snapshot, options.Snapshot) || strings.HasPrefix(options.Snapshot, snapshot)
}

// Exit codes of roost-backup.
const (
	// ExitUnchanged is for an UnchangedError.
	ExitUnchanged = 3
	// ExitRefused is for an UnchangedError that a retry does not fix. The pods of the app are stopped during retries.
	ExitRefused = 4
)

var errNotEmpty = errors.New("is not empty; repeat with --replace to replace its content")

// UnchangedError is the error of a restore that has left each folder in one state: the previous one, or that of a snapshot.
type UnchangedError struct{ cause error }

func (e *UnchangedError) Error() string { return e.cause.Error() }

func (e *UnchangedError) Unwrap() error { return e.cause }

// ExitCode returns the exit code of roost-backup.
func (e *UnchangedError) ExitCode() int {
	if errors.Is(e.cause, errNotEmpty) || errors.Is(e.cause, streams.ErrNotEmpty) || isKind(e.cause, failurePermanent) {
		return ExitRefused
	}
	return ExitUnchanged
}

// Restore writes folders of a snapshot below root. It restores each folder beside its current content, and compares it, before it replaces
// anything. If the restore fails before that, the folders are unchanged. If a restore is interrupted while it replaces files, the next one
// completes it. Until then, Save refuses the folders.
func Restore(ctx context.Context, repository *Repository, root string, folders []string, options RestoreOptions) (Report, error) {
	report, err := restoreFolders(ctx, repository, root, folders, options)
	return report, whetherUnchanged(root, folders, err)
}

// whetherUnchanged returns the error of a restore, as an UnchangedError if no folder has parts of two states.
func whetherUnchanged(root string, folders []string, err error) error {
	if err != nil {
		if record, failed := replacementUnder(root, folders); record == nil && failed == nil {
			err = &UnchangedError{err}
		}
	}
	return err
}

func restoreFolders(ctx context.Context, repository *Repository, root string, folders []string, options RestoreOptions) (Report, error) {
	report, snapshot, err := repository.prepare(ctx, root, folders, options)
	if err != nil || snapshot == nil {
		return report, err
	}
	manifest, err := repository.manifest(ctx, *snapshot)
	if err != nil {
		return report, err
	}
	for _, folder := range folders {
		if err := repository.stage(ctx, *snapshot, manifest, root, folder, folder, &report); err != nil {
			return report, err
		}
	}
	record := &replacement{Folders: folders, Report: report, rename: options.rename, sync: syncPath}
	if record.rename == nil {
		record.rename = os.Rename
	}
	if err := record.begin(root); err != nil {
		return report, err
	}
	return report, record.complete(root)
}

// prepare completes an interrupted restore, and finds the snapshot to restore. If it returns no snapshot, there is nothing more to do.
func (repository *Repository) prepare(ctx context.Context, root string, folders []string, options RestoreOptions) (Report, *Snapshot, error) {
	report := Report{Kind: KindRestore}
	interrupted, err := replacementUnder(root, folders)
	if err != nil {
		return report, nil, err
	}
	if interrupted != nil {
		if err := interrupted.complete(root); err != nil || options.names(interrupted.Report.Snapshot) {
			return interrupted.Report, nil, err
		}
	}
	if skipped, err := refusesTarget(root, folders, options); skipped || err != nil {
		report.Skipped = skipped
		return report, nil, err
	}
	if _, err := repository.open(ctx, false); err != nil {
		return report, nil, err
	}
	snapshot, err := repository.find(ctx, options.Snapshot)
	if err != nil {
		return report, nil, err
	}
	report.Snapshot, report.Taken, report.IsForeign = snapshot.Short(), snapshot.Time, !repository.isOwn(snapshot)
	return report, &snapshot, nil
}

// stage restores a part of the snapshot beside the current content of a folder, and compares it.
func (repository *Repository) stage(ctx context.Context, snapshot Snapshot, manifest Manifest, root, folder, saved string, report *Report) error {
	part, err := manifest.below(saved)
	if err != nil {
		return err
	}
	staging := filepath.Join(root, folder, stagingFolder)
	if err := errors.Join(os.RemoveAll(staging), os.Mkdir(staging, 0o700)); err != nil {
		return err
	}
	if err := repository.restore(ctx, snapshot, staging, saved); err != nil {
		return errors.Join(err, os.RemoveAll(staging))
	}
	comparison, err := repository.compare(ctx, snapshot, part, staging)
	if err != nil {
		return errors.Join(err, os.RemoveAll(staging))
	}
	report.Files += comparison.Files
	report.Bytes += comparison.Bytes
	report.Changed += comparison.Changed
	return nil
}

// refusesTarget reports whether there is nothing to do, or returns why a folder must not be written to.
func refusesTarget(root string, folders []string, options RestoreOptions) (skip bool, err error) {
	for _, folder := range folders {
		path := filepath.Join(root, folder)
		empty, err := isEmpty(path)
		if err != nil {
			return false, err
		}
		switch {
		case empty:
		case options.OnlyIfEmpty:
			skip = true
		case !options.Replace:
			return false, fmt.Errorf("%s %w", folder, errNotEmpty)
		}
	}
	return skip, nil
}

// below returns the entries of one folder.
func (manifest Manifest) below(folder string) (Manifest, error) {
	part := Manifest{Made: manifest.Made, Entries: map[string]Entry{}}
	for name, entry := range maps.All(manifest.Entries) {
		if name == folder || strings.HasPrefix(name, folder+"/") {
			part.Entries[name] = entry
		}
	}
	if len(part.Entries) == 0 {
		return part, permanent("the snapshot has no %s; choose a snapshot that was made with the current volumes", folder)
	}
	return part, nil
}
