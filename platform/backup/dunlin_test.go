package backup

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// portsMax is the number of ports that a node tries.
const portsMax = 10

// node is a server with a storage on disk, and a folder for the backups that it makes while it serves.
type node struct {
	*site
	program, config, storage, address string
}

func newNode(t *testing.T) *node {
	t.Helper()
	program := os.Getenv("ROOST_TEST_SERVER")
	if program == "" {
		t.Skip("ROOST_TEST_SERVER names no server; `make test` sets it")
	}
	site := newSite(t)
	site.root = t.TempDir()
	volume := filepath.Join(site.root, "volumes/storage")
	if err := os.MkdirAll(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	return &node{
		site: site, program: program, config: filepath.Join(t.TempDir(), "config.json"), storage: filepath.Join(volume, "storage"),
	}
}

// listen writes a configuration with a free internal port. Another process may take the port before the node does.
func (node *node) listen() {
	t := node.t
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	node.address = "http://" + listener.Addr().String()
	node.write(node.config, fmt.Sprintf(`{
		"http_server": {"address": "127.0.0.1", "port": 0, "internal_port": %d}, "http_api": {"key": "drill"},
		"storage": {"path": %q, "backup": {"path": %q, "keep": 3}},
		"channel": {"namespaces": [{"name": "chat", "history_size": 1000, "history_ttl": "24h", "durability": "disk"}]}}`,
		listener.Addr().(*net.TCPAddr).Port, node.storage, filepath.Join(filepath.Dir(node.storage), "backups")))
}

// serve runs the node until the returned function kills it.
func (node *node) serve() (kill func()) {
	node.t.Helper()
	for range portsMax {
		if kill := node.tryToServe(); kill != nil {
			return kill
		}
	}
	node.t.Fatalf("%d ports were taken", portsMax)
	return nil
}

// tryToServe returns nil if another process has taken the port.
func (node *node) tryToServe() (kill func()) {
	t := node.t
	t.Helper()
	node.listen()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(node.program, "serve", "--config", node.config)
	command.Env = []string{}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		command.Wait() //nolint:errcheck // it is killed
		close(ended)
	}()
	kill = func() {
		command.Process.Kill() //nolint:errcheck // it may have ended
		<-ended
	}
	t.Cleanup(kill)
	for deadline := time.After(waitMax); ; {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("listening on the internal port")) {
			return kill
		}
		select {
		case <-ended:
			text, err := os.ReadFile(log.Name())
			if err != nil || !bytes.Contains(text, []byte("Address already in use")) {
				t.Fatalf("the node has ended: %v\n%s", err, text)
			}
			return nil
		case <-deadline:
			t.Fatalf("the node does not serve\n%s", text)
		case <-time.After(20 * time.Millisecond): // between two looks
		}
	}
}

func (node *node) publish(from, to int) {
	node.t.Helper()
	for number := from; number <= to; number++ {
		body := strings.NewReader(fmt.Sprintf(`{"channel": "chat:drill", "data": %d}`, number))
		request, err := http.NewRequestWithContext(node.t.Context(), http.MethodPost, node.address+"/api/publish", body)
		if err != nil {
			node.t.Fatal(err)
		}
		request.Header.Set("X-API-Key", "drill")
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != http.StatusOK {
			node.t.Fatal(err, response)
		}
		response.Body.Close()
	}
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
	kill := node.serve()
	node.publish(1, 20)
	node.does("backup", "--config", node.config)
	node.publish(21, 40)
	node.does("backup", "--config", node.config)
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
	kill()
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
