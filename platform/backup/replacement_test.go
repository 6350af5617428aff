package backup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A restore can end at each of its moves. The volumes are not saved then, and the next restore completes it: without the store, and without
// --replace, because what is replaced was asked for.
func TestAnInterruptedRestore(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	const snapshot = "1f2e3d4c"
	working := *site.repository
	down := working
	down.URL, down.secrets = "/proc/none", nil
	for moves, isDone := 0, false; !isDone; moves++ {
		site.into, isDone = t.TempDir(), true
		site.write(filepath.Join(site.into, "volumes/data/tables/old"), "old")
		site.write(filepath.Join(site.into, "volumes/data/unsaved"), "old")
		site.write(filepath.Join(site.into, "volumes/logs/old"), "old")
		for _, folder := range folders {
			staged := filepath.Join(site.into, folder, stagingFolder, folder)
			if err := os.CopyFS(staged, os.DirFS(filepath.Join(site.root, folder))); err != nil {
				t.Fatal(err)
			}
		}
		left := moves
		record := &replacement{Folders: folders, Report: Report{Snapshot: snapshot, Files: 5}, rename: func(from, to string) error {
			if left--; left < 0 {
				isDone = false
				return errors.New("ended here")
			}
			return os.Rename(from, to)
		}}
		err := record.begin(site.into)
		if err == nil {
			err = record.complete(site.into)
		}
		site.repository = &down
		_, failed := Save(t.Context(), site.repository, site.into, folders, Keep{})
		report, restored := site.restore(RestoreOptions{Snapshot: snapshot})
		if isDone || moves == 0 {
			// Before the record is there, nothing is moved. The restore begins anew.
			site.fails(report, restored)("is not empty; repeat with --replace")
			site.fails(Report{}, failed)("restic init")
			continue
		}
		site.fails(Report{}, err)("ended here", "the volumes hold parts of two states: complete the restore with `roost restore`")
		site.fails(Report{}, failed)("a restore of snapshot " + snapshot + " was interrupted")
		if site.must(report, restored); report.Snapshot != snapshot || report.Files != 5 {
			t.Errorf("%+v", report)
		}
		site.equals(filepath.Join(site.root, "volumes"), filepath.Join(site.into, "volumes"))
		if moves > 30 {
			t.Fatal("it does not end")
		}
	}
	// The restore of another snapshot completes the first one, and is then one like any other.
	site.write(filepath.Join(site.into, "volumes/logs", recordFile), `{"folders":["volumes/logs"],"report":{"snapshot":"00000000"}}`)
	if err := os.MkdirAll(filepath.Join(site.into, "volumes/logs", stagingFolder, "volumes/logs/completed"), 0o700); err != nil {
		t.Fatal(err)
	}
	site.fails(site.restore(RestoreOptions{Snapshot: "11111111"}))("volumes/data is not empty; repeat with --replace")
	if names, err := ownNames(filepath.Join(site.into, "volumes/logs")); err != nil || len(names) != 1 || names[0] != "completed" {
		t.Errorf("%q, %v", names, err)
	}
	// A restore that ends between the moves says so, and one that ends before them says that the volumes are as they were.
	site.repository = &working
	site.must(site.save(Keep{}))
	for moves, isUnchanged := range []bool{true, false} {
		left := moves
		_, err := site.restore(RestoreOptions{Replace: true, rename: func(from, to string) error {
			if left--; left < 0 {
				return errors.New("ended here")
			}
			return os.Rename(from, to)
		}})
		var unchanged *UnchangedError
		if site.fails(Report{}, err)("ended here"); errors.As(err, &unchanged) != isUnchanged {
			t.Errorf("after %d moves: %v", moves, err)
		}
	}
	site.repository = &down
	site.must(site.restore(RestoreOptions{}))
	site.equals(filepath.Join(site.root, "volumes"), filepath.Join(site.into, "volumes"))
}
