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
	ports := freePorts(t)
	node := &node{site: site, program: program, config: filepath.Join(t.TempDir(), "config.json"), storage: filepath.Join(volume, "storage")}
	node.address = fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	if err := os.MkdirAll(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	site.write(node.config, fmt.Sprintf(`{
		"http_server": {"address": "127.0.0.1", "port": %d, "internal_port": %d}, "http_api": {"key": "drill"}, "health": {"enabled": true},
		"storage": {"path": %q, "backup": {"path": %q, "keep": 3}},
		"channel": {"namespaces": [{"name": "chat", "history_size": 1000, "history_ttl": "24h", "durability": "disk"}]}}`,
		ports[0], ports[1], node.storage, filepath.Join(volume, "backups")))
	return node
}

func freePorts(t *testing.T) [2]int {
	t.Helper()
	var ports [2]int
	for index := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		ports[index] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports
}

// serve runs the node until the function that it returns kills it.
func (node *node) serve() (kill func()) {
	t := node.t
	t.Helper()
	var log bytes.Buffer
	command := exec.Command(node.program, "serve", "--config", node.config)
	command.Stdout, command.Stderr = &log, &log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		command.Process.Kill() //nolint:errcheck // it may have ended
		command.Wait()         //nolint:errcheck // it was killed
	}
	t.Cleanup(kill)
	for deadline := time.Now().Add(waitMax); ; {
		response, err := http.Get(node.address + "/health")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return kill
			}
		}
		if time.Now().After(deadline) {
			kill()
			t.Fatalf("the node does not serve: %v\n%s", err, log.String())
		}
		time.Sleep(20 * time.Millisecond) // between two looks
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

// does runs a command of the server that has to succeed.
func (node *node) does(arguments ...string) string {
	node.t.Helper()
	out, err := exec.Command(node.program, arguments...).Output()
	if err != nil {
		node.t.Fatalf("dunlin %s: %v", strings.Join(arguments, " "), err)
	}
	return string(out)
}

// TestTheStorageOfADunlin is the drill of docs/backups.md with the server itself: its backups are saved while it serves, the volume is lost,
// and a new storage has all that was acknowledged before the backup.
func TestTheStorageOfADunlin(t *testing.T) {
	t.Parallel()
	node := newNode(t)
	saved := []string{"volumes/storage/backups"}
	kill := node.serve()
	node.publish(1, 20)
	node.does("backup", "--config", node.config)
	node.publish(21, 40)
	node.does("backup", "--config", node.config)
	report := node.must(Save(t.Context(), node.repository, node.root, saved, Keep{Daily: 7}))
	verified := node.must(node.verify())
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
	// The node goes on with what was restored.
	node.serve()
	node.publish(41, 41)
}
