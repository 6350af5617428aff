package backup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestABackupIsRestoredWithTheSameBytes(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	if err := os.RemoveAll(site.repository.URL); err != nil {
		t.Fatal(err)
	}
	site.fails(site.verify())("there is no repository yet; make a backup first")
	saved := site.must(site.save(Keep{}))
	if !saved.IsNew || saved.Files != 5 || saved.Bytes != 3<<20+4096+1+3 || saved.Snapshot == "" {
		t.Errorf("%+v", saved)
	}
	verified := site.must(site.verify())
	if verified.Snapshot != saved.Snapshot || !verified.Taken.Equal(saved.Taken) || verified.Files != 5 || verified.Bytes != saved.Bytes || verified.Changed != 0 {
		t.Errorf("%+v", verified)
	}
	restored := site.must(site.restore(RestoreOptions{}))
	if restored.Files != 5 || restored.Snapshot != saved.Snapshot {
		t.Errorf("%+v", restored)
	}
	site.equals(filepath.Join(site.root, "volumes"), filepath.Join(site.into, "volumes"))

	// Restore the next state, and then the first one by its name.
	site.write(filepath.Join(site.root, "volumes/data/new"), "new")
	second := site.must(site.save(Keep{Daily: 2}))
	if second.IsNew || second.Files != 6 {
		t.Errorf("%+v", second)
	}
	site.fails(site.restore(RestoreOptions{Snapshot: saved.Snapshot, Replace: true}))("0 snapshots of web/shop match \"" + saved.Snapshot)
	site.must(site.restore(RestoreOptions{Replace: true}))
	site.equals(filepath.Join(site.root, "volumes"), filepath.Join(site.into, "volumes"))
}

func TestAFolderThatIsNotEmpty(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	site.must(site.save(Keep{}))
	own := filepath.Join(site.into, "volumes/logs/own")
	site.write(own, "own")
	_, err := site.restore(RestoreOptions{})
	site.fails(Report{}, err)("volumes/logs is not empty; repeat with --replace")
	var refused, failed *UnchangedError
	if !errors.As(err, &refused) || refused.ExitCode() != ExitRefused {
		t.Errorf("a volume that is not empty: %v", err)
	}
	// A retry would not find the missing snapshot either, so the restore is refused.
	if _, err = site.restore(RestoreOptions{Snapshot: "11111111", Replace: true}); !errors.As(err, &failed) || failed.ExitCode() != ExitRefused {
		t.Errorf("a snapshot that is not there: %v", err)
	}
	if report := site.must(site.restore(RestoreOptions{OnlyIfEmpty: true})); !report.Skipped {
		t.Errorf("%+v", report)
	}
	if names, err := ownNames(filepath.Join(site.into, "volumes/data")); err != nil || len(names) > 0 {
		t.Errorf("%q, %v", names, err)
	}
	site.must(site.restore(RestoreOptions{Replace: true}))
	if _, err := os.Lstat(own); !os.IsNotExist(err) {
		t.Error("what was there is still there")
	}
	site.equals(filepath.Join(site.root, "volumes"), filepath.Join(site.into, "volumes"))
	_, err = Verify(t.Context(), site.repository, site.into, 1)
	site.fails(Report{}, err)("is not empty; name an empty folder")
}

func TestABackupOfNothing(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	site.root = t.TempDir()
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(site.root, folder, "empty"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	site.fails(site.save(Keep{}))("volumes/data, volumes/logs contain no file, and an empty backup is not saved")
}

// Apps with the same name in two clusters save to one repository.
func TestTwoOwnersOfOneRepository(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	mine, other := *site.repository, *site.repository
	mine.Owner, other.Owner = "mine", "other"
	site.repository = &other
	foreign := site.must(site.save(Keep{}))
	site.repository = &mine
	site.fails(site.verify())("all 1 snapshots of web/shop belong to another cluster or to a deleted App; make a backup first")
	if report := site.must(site.restore(RestoreOptions{})); !report.IsForeign || report.Snapshot != foreign.Snapshot {
		t.Errorf("a new cluster begins with the snapshots of the old one: %+v", report)
	}
	site.write(filepath.Join(site.root, "volumes/data/new"), "new")
	saved := site.must(site.save(Keep{}))
	site.repository = &other
	latest := site.must(site.save(Keep{Daily: 7}))
	// A policy that keeps one snapshot per day removes no snapshot of another owner.
	site.repository = &mine
	if verified := site.must(site.verify()); verified.Snapshot != saved.Snapshot || verified.Files != 6 {
		t.Errorf("%+v, want %s", verified, saved.Snapshot)
	}
	if report := site.must(site.restore(RestoreOptions{Replace: true})); report.IsForeign || report.Snapshot != saved.Snapshot {
		t.Errorf("%+v", report)
	}
	if report := site.must(site.restore(RestoreOptions{Replace: true, Snapshot: latest.Snapshot})); !report.IsForeign {
		t.Errorf("%+v", report)
	}
}
