package backup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const volume = "volumes/storage"

// stage is the first half of a restore.
func (node *node) stage(options RestoreOptions) (Report, error) {
	return StageStorage(node.t.Context(), node.repository, node.root, volume, options)
}

// publications returns the number of publications in the storage, which no node may have open.
func (node *node) publications() int {
	node.t.Helper()
	return strings.Count(node.does("storage", "export", node.storage), "\n")
}

// save makes a backup of the node, and a snapshot of it. Another snapshot of the day is kept.
func (node *node) save(kept string) Report {
	node.t.Helper()
	node.does("backup", "--config", node.server.Config)
	return node.must(SaveStorage(node.t.Context(), node.repository, node.root, []string{volume + "/backups"}, Keep{Daily: 7, Snapshot: kept}))
}

// TestARestoreOfADunlin restores a named snapshot, and the newest one, with the server itself. A failed restore leaves the volume unchanged, and
// an interrupted restore is completed.
func TestARestoreOfADunlin(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	node.serve()
	node.publish(1, 20)
	first := node.save("")
	node.publish(21, 40)
	second := node.save(first.Snapshot)
	node.publish(41, 50)
	node.server.Kill()
	// The server also writes other folders to the volume, such as recordings of rooms. No backup contains them.
	recording := filepath.Join(node.root, volume, "rooms/arena/1")
	node.write(recording, "a recording")
	var unchanged *UnchangedError
	if _, err := node.stage(RestoreOptions{Snapshot: "latest"}); !errors.As(err, &unchanged) || !strings.Contains(err.Error(), "volumes/storage is not empty; repeat with --replace") {
		t.Errorf("a volume that is not empty: %v", err)
	}
	replace := RestoreOptions{Snapshot: first.Snapshot, Replace: true}
	node.must(node.stage(replace))
	broken := filepath.Join(t.TempDir(), "dunlin")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho the backup is damaged >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := FinishStorage(t.Context(), node.root, volume, broken)
	if !errors.As(err, &unchanged) || !strings.Contains(err.Error(), "dunlin restore failed: exit status 1: the backup is damaged") {
		t.Errorf("a backup that cannot be restored: %v", err)
	}
	if count := node.publications(); count != 50 {
		t.Errorf("%d publications of before", count)
	}
	staged := node.must(node.stage(replace))
	finished := node.must(FinishStorage(t.Context(), node.root, volume, node.program))
	if staged.Snapshot != first.Snapshot || finished.Snapshot != first.Snapshot || !finished.Newest.Equal(*first.Newest) {
		t.Errorf("%+v, %+v of %+v", staged, finished, first)
	}
	if count := node.publications(); count != 20 {
		t.Errorf("%d publications of the named snapshot", count)
	}
	// The first move is that of the record. After it, some of the old files and some of the new files are moved.
	for _, moves := range []int{0, 2, 5} {
		node.interruptRestore(moves)
		report := node.must(node.stage(RestoreOptions{Snapshot: "latest", Replace: true}))
		again := node.must(FinishStorage(t.Context(), node.root, volume, node.program))
		if report.Snapshot != second.Snapshot || again.Snapshot != second.Snapshot || again.Newest == nil {
			t.Errorf("after %d moves: %+v, %+v of %+v", moves, report, again, second)
		}
		if count := node.publications(); count != 40 {
			t.Errorf("after %d moves: %d publications", moves, count)
		}
	}
	names, err := os.ReadDir(filepath.Join(node.root, volume))
	if err != nil || len(names) != 3 {
		t.Errorf("the volume: %v, %v", names, err)
	}
	if text, err := os.ReadFile(recording); err != nil || string(text) != "a recording" {
		t.Errorf("the recording: %q, %v", text, err)
	}
	// The node and its backups continue.
	node.serve()
	node.publish(41, 45)
	if third := node.save(""); third.Newest.Before(*second.Newest) {
		t.Errorf("%+v", third)
	}
}

// interruptRestore makes a restore of the newest snapshot fail after some moves.
func (node *node) interruptRestore(moves int) {
	t := node.t
	t.Helper()
	node.must(node.stage(RestoreOptions{Snapshot: "latest", Replace: true}))
	killed, done := errors.New("killed"), 0
	_, err := finishStorage(t.Context(), node.root, volume, node.program, func(from, to string) error {
		if done == moves {
			return killed
		}
		done++
		return os.Rename(from, to)
	})
	var unchanged *UnchangedError
	if !errors.Is(err, killed) || errors.As(whetherUnchanged(node.root, []string{volume}, err), &unchanged) != (moves == 0) {
		t.Fatalf("after %d moves: %v", moves, err)
	}
	if moves == 0 {
		return
	}
	if _, err := SaveStorage(t.Context(), node.repository, node.root, []string{volume + "/backups"}, Keep{}); err == nil || !strings.Contains(err.Error(), "complete it with `roost restore`") {
		t.Errorf("after %d moves, it is saved: %v", moves, err)
	}
}
