package backup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dunlin-project/dunlin/platform/dunlintest"
)

// node is a server with a storage on disk, and a folder for the backups that it makes while it serves.
type node struct {
	*site
	program, storage string
	server           *dunlintest.Server
}

func newNode(t *testing.T) *node {
	t.Helper()
	program := dunlintest.Program(t)
	site := newSite(t)
	site.root = t.TempDir()
	volume := filepath.Join(site.root, "volumes/storage")
	if err := os.MkdirAll(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	return &node{site: site, program: program, storage: filepath.Join(volume, "storage")}
}

// serve starts a server, whose API is on the internal port.
func (node *node) serve() {
	node.t.Helper()
	node.server = dunlintest.Start(node.t, func(port int) string {
		return fmt.Sprintf(`{
		"http_server": {"address": "127.0.0.1", "port": 0, "internal_port": %d}, "http_api": {"key": %q},
		"storage": {"path": %q, "backup": {"path": %q, "keep": 3}},
		"channel": {"namespaces": [{"name": "chat", "history_size": 1000, "history_ttl": "24h", "durability": "disk"}]}}`,
			port, dunlintest.Key, node.storage, filepath.Join(filepath.Dir(node.storage), "backups"))
	})
}

func (node *node) publish(from, to int) {
	node.t.Helper()
	node.server.Publish("chat:drill", from, to)
}

// does runs a command of the server that must succeed.
func (node *node) does(arguments ...string) string {
	node.t.Helper()
	command := exec.Command(node.program, arguments...)
	command.Env = []string{}
	out, err := command.Output()
	if err != nil {
		node.t.Fatalf("dunlin %s: %v", strings.Join(arguments, " "), err)
	}
	return string(out)
}

// TestTheStorageOfADunlin is the drill of docs/backups.md with the server itself: its backups are saved while it serves, the volume is lost, and
// a new storage contains everything that was acknowledged before the backup.
func TestTheStorageOfADunlin(t *testing.T) {
	t.Parallel()
	node, begun := newNode(t), time.Now().Truncate(time.Second)
	saved := []string{"volumes/storage/backups"}
	node.serve()
	node.publish(1, 20)
	node.does("backup", "--config", node.server.Config)
	node.publish(21, 40)
	node.does("backup", "--config", node.server.Config)
	report := node.must(SaveStorage(t.Context(), node.repository, node.root, saved, Keep{Daily: 7}))
	if age := report.Taken.Sub(*report.Newest); age < 0 || report.Newest.Before(begun) {
		t.Errorf("the newest backup is of %s, the test began at %s", report.Newest, begun)
	}
	verified := node.must(VerifyStorage(t.Context(), node.repository, t.TempDir(), saved, 100))
	if !verified.Newest.Equal(*report.Newest) {
		t.Errorf("the newest backup is of %s, and in the snapshot of %s", report.Newest, verified.Newest)
	}
	if _, err := VerifyStorage(t.Context(), node.repository, t.TempDir(), []string{"volumes/storage"}, 100); err == nil || !strings.Contains(err.Error(), "has no complete backup of the node") {
		t.Errorf("a folder without backups: %v", err)
	}
	if verified.Snapshot != report.Snapshot || verified.Files != report.Files || verified.Files == 0 || verified.Changed != 0 {
		t.Errorf("%+v of %+v", verified, report)
	}
	node.publish(41, 50)
	node.server.Kill()
	all := node.does("storage", "export", node.storage)
	if err := os.RemoveAll(filepath.Join(node.root, "volumes/storage")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(node.root, saved[0]), 0o755); err != nil {
		t.Fatal(err)
	}
	node.must(Restore(t.Context(), node.repository, node.root, saved, RestoreOptions{Snapshot: "latest"}))
	node.does("restore", filepath.Join(node.root, saved[0]), node.storage)
	restored := node.does("storage", "export", node.storage)
	if lines := strings.Count(restored, "\n"); lines != 40 || !strings.HasPrefix(all, restored) {
		t.Errorf("%d of 40 publications, which are the first of those of before: %t", lines, strings.HasPrefix(all, restored))
	}
	// The node continues with the restored storage.
	node.serve()
	node.publish(41, 41)
}
