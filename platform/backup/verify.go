package backup

import (
	"context"
	"fmt"
)

// Verify checks the repository with a part of its data, restores the newest snapshot into an empty folder, and compares the restored files with
// the checksums from the time of the backup.
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
	snapshot, err := repository.findOwn(ctx)
	if err != nil {
		return report, err
	}
	report.Snapshot, report.Taken = snapshot.Short(), snapshot.Time
	// The first check detects truncated or missing packs. Without it, restic would retry reading their data for a quarter of an hour.
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
	if err == nil {
		err = comparison.checkShare(manifest)
	}
	report.Files, report.Bytes, report.Changed = comparison.Files, comparison.Bytes, comparison.Changed
	return report, err
}
