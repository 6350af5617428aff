package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A restore can be interrupted at each of its moves. Then the volumes are not saved, and the next restore completes it, without the store and
// without --replace, because the replacement was already requested.
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
		record := &replacement{Folders: folders, Report: Report{Snapshot: snapshot, Files: 5}, sync: syncPath, rename: func(from, to string) error {
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
			// Before the record exists, nothing is moved. The restore starts from the beginning.
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
	// The restore of another snapshot first completes the first one, and then runs as usual.
	site.write(filepath.Join(site.into, "volumes/logs", recordFile), `{"folders":["volumes/logs"],"report":{"snapshot":"00000000"}}`)
	if err := os.MkdirAll(filepath.Join(site.into, "volumes/logs", stagingFolder, "volumes/logs/completed"), 0o700); err != nil {
		t.Fatal(err)
	}
	site.fails(site.restore(RestoreOptions{Snapshot: "11111111"}))("volumes/data is not empty; repeat with --replace")
	if names, err := ownNames(filepath.Join(site.into, "volumes/logs")); err != nil || len(names) != 1 || names[0] != "completed" {
		t.Errorf("%q, %v", names, err)
	}
	// The error of a restore that ends between the moves says so. The error of one that ends before them says that the volumes are unchanged.
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

// The record is on the disk before the first move, and its removal is on the disk before the copies are deleted. So after a power failure in
// between, the record can be completed.
func TestARecordIsOnTheDiskInTime(t *testing.T) {
	root := t.TempDir()
	const folder = "volumes/data"
	target := filepath.Join(root, folder)
	for _, file := range []string{"old", stagingFolder + "/" + folder + "/new"} {
		path := filepath.Join(target, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(file), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var steps []string
	name := func(path string) string {
		short, err := filepath.Rel(target, path)
		if err != nil {
			t.Fatal(err)
		}
		return short
	}
	record := &replacement{
		Folders: []string{folder}, Report: Report{Snapshot: "1f2e3d4c"},
		rename: func(from, to string) error {
			steps = append(steps, "move "+name(from))
			return os.Rename(from, to)
		},
		sync: func(path string) error {
			_, failed := os.Stat(filepath.Join(target, stagingFolder))
			steps = append(steps, fmt.Sprintf("sync %s, staged: %t", name(path), failed == nil))
			return syncPath(path)
		},
	}
	if err := errors.Join(record.begin(root), record.complete(root)); err != nil {
		t.Fatal(err)
	}
	draft := stagingFolder + "/" + recordFile
	expected := []string{
		"sync " + draft + ", staged: true", "move " + draft, "sync ., staged: true",
		"move old", "move " + movingFolder, "move " + stagingFolder + "/" + folder + "/new", "sync ., staged: true",
	}
	if !slices.Equal(steps, expected) {
		t.Errorf("%q", steps)
	}
}

// The record is in a volume of the app, and the app can write one.
func TestARecordOfAnApp(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "volumes/data", recordFile)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, isTaken := range map[string]bool{
		`{"folders":["volumes/data"],"report":{"snapshot":"1f2e3d4c"}}`:                 true,
		`{"folders":["volumes/data","../keys"],"report":{"snapshot":"1f2e3d4c"}}`:       false,
		`{"folders":["volumes/data/../../keys"],"report":{"snapshot":"1f2e3d4c"}}`:      false,
		`{"folders":["volumes/logs"],"report":{"snapshot":"1f2e3d4c"}}`:                 false,
		`{"folders":["volumes/data","volumes/other"],"report":{"snapshot":"1f2e3d4c"}}`: false,
		`{"folders":[],"report":{"snapshot":"1f2e3d4c"}}`:                               false,
		`{"folders":["volumes/data"],"report":{"snapshot":"all is well"}}`:              false,
		`{"folders":["volumes/data"],"report":{"snapshot":""}}`:                         false,
		`{`: false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		record, err := replacementUnder(root, []string{"volumes/data", "volumes/logs"})
		if isTaken != (err == nil && record != nil) {
			t.Errorf("%s: %+v, %v", text, record, err)
		}
		if !isTaken && (err == nil || !strings.Contains(err.Error(), "volumes/data/.roost-restore.json") || !strings.Contains(err.Error(), "delete")) {
			t.Errorf("%s: %v", text, err)
		}
		if strings.Contains(text, "volumes/other") && !strings.Contains(err.Error(), "add it again") {
			t.Errorf("a volume that was removed: %v", err)
		}
	}
}
