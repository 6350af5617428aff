package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Verify checks the repository with a part of its data, restores the newest snapshot into an empty folder, and compares it with the
// checksums from the time of the backup.
func Verify(ctx context.Context, repository *Repository, into string, percent int) (Report, error) {
	report := Report{Kind: KindVerify}
	names, err := ownNames(into)
	if err != nil {
		return report, err
	}
	if len(names) > 0 {
		return report, fmt.Errorf("%s is not empty; name an empty folder", into)
	}
	if _, err := repository.open(ctx, false); err != nil {
		return report, err
	}
	snapshot, err := repository.find(ctx, "latest")
	if err != nil {
		return report, err
	}
	report.Snapshot, report.Taken = snapshot.Short(), snapshot.Time
	// The first check finds packs that are cut or missing, of which restic would try to read the data for a quarter of an hour.
	for _, arguments := range [][]string{{"check"}, {"check", fmt.Sprintf("--read-data-subset=%d%%", percent)}} {
		if _, err := repository.runWhenUnlocked(ctx, "", arguments...); err != nil {
			return report, err
		}
	}
	if err := repository.restore(ctx, snapshot, into); err != nil {
		return report, err
	}
	manifest, err := readManifest(into)
	if err != nil {
		return report, err
	}
	comparison, err := repository.compare(ctx, snapshot, manifest, into)
	report.Files, report.Bytes, report.Changed = comparison.Files, comparison.Bytes, comparison.Changed
	return report, err
}

func (repository *Repository) restore(ctx context.Context, snapshot Snapshot, into string, include ...string) error {
	arguments := []string{"restore", snapshot.ID, "--target", into}
	for _, folder := range include {
		arguments = append(arguments, "--include", "/"+folder)
	}
	_, err := repository.runWhenUnlocked(ctx, "", arguments...)
	return err
}

// compare has the verdict on what was restored into a folder.
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

// RestoreOptions say what a restore may overwrite.
type RestoreOptions struct {
	// Snapshot is `latest`, or the begin of an identifier.
	Snapshot string
	// Replace removes what the folders hold now, once the snapshot is restored and compared.
	Replace bool
	// OnlyIfEmpty does nothing if a folder holds something.
	OnlyIfEmpty bool
}

// Restore writes folders of a snapshot below root. Each is restored beside what it holds, and compared, before anything is replaced: if
// the restore fails, the folders are as they were. It can be repeated after an interruption.
func Restore(ctx context.Context, repository *Repository, root string, folders []string, options RestoreOptions) (Report, error) {
	report := Report{Kind: KindRestore}
	if skipped, err := refusesTarget(root, folders, options); skipped || err != nil {
		report.Skipped = skipped
		return report, err
	}
	if _, err := repository.open(ctx, false); err != nil {
		return report, err
	}
	snapshot, err := repository.find(ctx, options.Snapshot)
	if err != nil {
		return report, err
	}
	report.Snapshot, report.Taken = snapshot.Short(), snapshot.Time
	manifest, err := repository.manifest(ctx, snapshot)
	if err != nil {
		return report, err
	}
	for _, folder := range folders {
		part, err := manifest.below(folder)
		if err != nil {
			return report, err
		}
		staging := filepath.Join(root, folder, stagingFolder)
		if err := errors.Join(os.RemoveAll(staging), os.Mkdir(staging, 0o700)); err != nil {
			return report, err
		}
		if err := repository.restore(ctx, snapshot, staging, folder); err != nil {
			return report, errors.Join(err, os.RemoveAll(staging))
		}
		comparison, err := repository.compare(ctx, snapshot, part, staging)
		if err != nil {
			return report, errors.Join(err, os.RemoveAll(staging))
		}
		report.Files += comparison.Files
		report.Bytes += comparison.Bytes
		report.Changed += comparison.Changed
	}
	for _, folder := range folders {
		if err := swap(filepath.Join(root, folder), folder); err != nil {
			return report, err
		}
	}
	return report, nil
}

// refusesTarget is whether there is nothing to do, or why a folder must not be written to.
func refusesTarget(root string, folders []string, options RestoreOptions) (skip bool, err error) {
	for _, folder := range folders {
		path := filepath.Join(root, folder)
		empty, err := isEmpty(path)
		if err != nil {
			return false, err
		}
		// What a swap has moved away shows that it was interrupted: the folder is to be restored again.
		if _, err := os.Lstat(filepath.Join(path, replaced)); err == nil {
			continue
		}
		switch {
		case empty:
		case options.OnlyIfEmpty:
			skip = true
		case !options.Replace:
			return false, fmt.Errorf("%s is not empty; repeat with --replace to have its content replaced", folder)
		}
	}
	return skip, nil
}

// below are the entries of one folder.
func (manifest Manifest) below(folder string) (Manifest, error) {
	part := Manifest{Made: manifest.Made, Entries: map[string]Entry{}}
	for name, entry := range maps.All(manifest.Entries) {
		if name == folder || strings.HasPrefix(name, folder+"/") {
			part.Entries[name] = entry
		}
	}
	if len(part.Entries) == 0 {
		return part, fmt.Errorf("the snapshot has no %s; choose one that was made with the volumes of now", folder)
	}
	return part, nil
}

// swap replaces the content of a folder by what was restored into it. All is moved within one file system.
func swap(target, folder string) error {
	away, restored := filepath.Join(target, replaced), filepath.Join(target, stagingFolder)
	if err := os.Mkdir(away, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := moveAll(target, away); err != nil {
		return err
	}
	if err := moveAll(filepath.Join(restored, filepath.FromSlash(folder)), target); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(restored), os.RemoveAll(away))
}

// moveAll moves the entries of a folder. An entry of the same name is from an attempt that was interrupted, and is replaced.
func moveAll(from, to string) error {
	names, err := ownNames(from)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		target := filepath.Join(to, name)
		if err := os.RemoveAll(target); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(from, name), target); err != nil {
			return err
		}
	}
	return nil
}
