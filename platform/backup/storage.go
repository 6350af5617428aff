package backup

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"
)

// SaveStorage is Save for folders to which a Dunlin writes backups of its storage while it serves. The report contains the time of the newest
// backup, because the data in the snapshot is not newer than that.
func SaveStorage(ctx context.Context, repository *Repository, root string, folders []string, keep Keep) (Report, error) {
	var newest time.Time
	var volumes []string
	for _, folder := range folders {
		volumes = append(volumes, path.Dir(folder))
	}
	if err := refuseReplacement(root, volumes); err != nil {
		return Report{Kind: KindSave}, err
	}
	for _, folder := range folders {
		made, err := newestBackup(filepath.Join(root, folder))
		if err != nil {
			return Report{Kind: KindSave}, fmt.Errorf("%s contains no complete backup of the node: %w; the node makes a backup every hour, and logs the cause if a backup fails", folder, err)
		}
		if made.After(newest) {
			newest = made
		}
	}
	report, err := Save(ctx, repository, root, folders, keep)
	report.Newest = &newest
	return report, err
}

// VerifyStorage is Verify for a snapshot of SaveStorage. The report contains the time of the newest backup in the snapshot, as in SaveStorage.
func VerifyStorage(ctx context.Context, repository *Repository, into string, folders []string, percent int) (Report, error) {
	report, err := Verify(ctx, repository, into, percent)
	if err != nil {
		return report, err
	}
	var newest time.Time
	for _, folder := range folders {
		made, err := newestBackup(filepath.Join(into, folder))
		if err != nil {
			return report, fmt.Errorf("snapshot %s has no complete backup of the node: %w", report.Snapshot, err)
		}
		if made.After(newest) {
			newest = made
		}
	}
	report.Newest = &newest
	return report, nil
}

// newestBackup returns the time of the backup with the highest number in a folder. RocksDB keeps a list of files for each backup, meta/NUMBER,
// and writes it under another name until the backup is complete. The first line that is a number is the Unix time.
func newestBackup(folder string) (time.Time, error) {
	entries, err := os.ReadDir(filepath.Join(folder, "meta"))
	if err != nil {
		return time.Time{}, err
	}
	var last uint64
	for _, entry := range entries {
		if number, err := strconv.ParseUint(entry.Name(), 10, 32); err == nil && number > last {
			last = number
		}
	}
	if last == 0 {
		return time.Time{}, fmt.Errorf("%s contains no backup", filepath.Join(folder, "meta"))
	}
	list := filepath.Join(folder, "meta", strconv.FormatUint(last, 10))
	file, err := os.Open(list)
	if err != nil {
		return time.Time{}, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if seconds, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
			return time.Unix(seconds, 0).UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s contains no time", list)
}
