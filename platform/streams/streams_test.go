package streams

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dunlin-project/dunlin/platform/dunlintest"
	"github.com/dunlin-project/dunlin/platform/ports"
)

const (
	password = "c4n4ry-nats-password"
	channel  = "chat:drill"
	// waitMax is long, for a busy machine.
	waitMax = time.Minute
)

// process is a program that is killed at the end of the test.
type process struct {
	t      *testing.T
	folder string
	kill   func()
}

func (process *process) start(program string, arguments ...string) {
	t := process.t
	t.Helper()
	log, err := os.OpenFile(filepath.Join(process.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(program, arguments...)
	command.Env, command.Stdout, command.Stderr = []string{"NATS_PASSWORD=" + password}, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		command.Wait() //nolint:errcheck // it is killed
		close(ended)
	}()
	process.kill = func() {
		command.Process.Kill() //nolint:errcheck // it may have ended
		<-ended
	}
	t.Cleanup(process.kill)
}

func (process *process) log() string {
	text, _ := os.ReadFile(filepath.Join(process.folder, "log")) //nolint:errcheck // for a message
	return string(text[max(0, len(text)-2000):])
}

// natsServer is one with a password and an empty folder.
type natsServer struct {
	process
	url    string
	server *Server
}

func newNATS(t *testing.T) *natsServer {
	t.Helper()
	found := &natsServer{process: process{t: t, folder: t.TempDir()}}
	port := ports.One(t)
	found.url = fmt.Sprint("nats://127.0.0.1:", port)
	config := fmt.Sprintf("listen: \"127.0.0.1:%d\"\nauthorization { user: dunlin, password: $NATS_PASSWORD }\njetstream { store_dir: %q }\n", port, filepath.Join(found.folder, "data"))
	if err := os.WriteFile(filepath.Join(found.folder, "nats.conf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	found.restart()
	return found
}

func (nats *natsServer) restart() {
	t := nats.t
	t.Helper()
	program := os.Getenv("ROOST_TEST_NATS")
	if program == "" {
		t.Skip("ROOST_TEST_NATS names no server; `make platform` sets it")
	}
	nats.start(program, "--config", filepath.Join(nats.folder, "nats.conf"))
	for deadline := time.Now().Add(waitMax); ; {
		server, err := Connect(nats.url, password, "dunlin")
		if err == nil {
			if _, err = server.List(t.Context()); err == nil {
				nats.server = server
				t.Cleanup(server.Close)
				return
			}
			server.Close()
		}
		if time.Now().After(deadline) {
			t.Fatalf("NATS does not serve: %v\n%s", err, nats.log())
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}

// node is one of a cluster.
type node struct {
	*dunlintest.Server
	t *testing.T
}

func (nats *natsServer) newNode() *node {
	t := nats.t
	t.Helper()
	server := dunlintest.Start(t, func(port int) string {
		return fmt.Sprintf(`{"http_server": {"address": "127.0.0.1", "port": %d}, "http_api": {"key": %q}, "shards": 1, "health": {"enabled": true},
		"uni_http_stream": {"enabled": true}, "client": {"allow_anonymous_connect_without_token": true},
		"broker": {"enabled": true, "type": "nats", "nats": {"url": "nats://dunlin:%s@%s", "prefix": "dunlin", "jetstream": {"replicas": 1}}},
		"channel": {"namespaces": [{"name": "chat", "history_size": 1000, "history_ttl": "24h", "force_recovery": true,
			"allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true}]}}`,
			port, dunlintest.Key, password, strings.TrimPrefix(nats.url, "nats://"))
	})
	found := &node{Server: server, t: t}
	for deadline := time.Now().Add(waitMax); ; {
		if _, err := found.tryHistory(); err == nil {
			return found
		} else if time.Now().After(deadline) {
			t.Fatalf("the node does not serve: %v\n%s", err, found.Log())
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}

func (node *node) publish(from, to int) {
	node.t.Helper()
	node.Publish(channel, from, to)
}

type history struct {
	Publications []struct {
		Data   int
		Offset uint64
	}
	Offset uint64
	Epoch  string
}

func (history history) numbers() []int {
	var found []int
	for _, publication := range history.Publications {
		found = append(found, publication.Data)
	}
	return found
}

func (node *node) tryHistory() (history, error) {
	var found history
	return found, node.Call("history", fmt.Sprintf(`{"channel": %q, "limit": 1000}`, channel), &found)
}

func (node *node) history() history {
	node.t.Helper()
	found, err := node.tryHistory()
	if err != nil {
		node.t.Fatal(err)
	}
	return found
}

// recover is what a client gets that comes back with a position.
func (node *node) recover(epoch string, offset uint64) (isRecovered bool, numbers []int) {
	t := node.t
	t.Helper()
	body := fmt.Sprintf(`{"subs": {%q: {"recover": true, "epoch": %q, "offset": %d}}}`, channel, epoch, offset)
	response, err := http.Post(node.Address+"/connection/uni_http_stream", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var push struct {
		Connect struct {
			Subs map[string]struct {
				Recovered    bool
				Publications []struct{ Data int }
			}
		}
	}
	if err := json.Unmarshal(line, &push); err != nil || len(push.Connect.Subs) != 1 {
		t.Fatalf("%v: %s", err, line)
	}
	for _, publication := range push.Connect.Subs[channel].Publications {
		numbers = append(numbers, publication.Data)
	}
	return push.Connect.Subs[channel].Recovered, numbers
}

func upTo(last int) []int {
	var found []int
	for number := 1; number <= last; number++ {
		found = append(found, number)
	}
	return found
}

// TestTheLossOfAllVolumes saves the streams of a node that runs, restores them into a server without data, as a drill does, loses all
// data, and restores it. Positions from before are refused, also when the stream has grown beyond them.
func TestTheLossOfAllVolumes(t *testing.T) {
	nats := newNATS(t)
	first := nats.newNode()
	first.publish(1, 40)
	before, folder := first.history(), t.TempDir()
	saved, err := nats.server.Save(t.Context(), folder)
	if err != nil || len(saved) == 0 {
		t.Fatal(saved, err)
	}
	first.publish(41, 50)
	lost := first.history()
	if isRecovered, numbers := first.recover(lost.Epoch, before.Offset); !isRecovered || len(numbers) != 10 {
		t.Fatalf("before the loss: %t, %v", isRecovered, numbers)
	}

	scratch := newNATS(t)
	verified, err := scratch.server.Restore(t.Context(), folder, Options{Replicas: 1, KeepsAll: true})
	if err != nil || len(verified) != len(saved) {
		t.Fatal(verified, err)
	}

	first.Kill()
	nats.kill()
	if err := os.RemoveAll(filepath.Join(nats.folder, "data")); err != nil {
		t.Fatal(err)
	}
	nats.restart()
	if _, err := nats.server.Restore(t.Context(), folder, Options{Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	second := nats.newNode()
	after := second.history()
	if !slices.Equal(after.numbers(), upTo(40)) || after.Epoch == before.Epoch {
		t.Errorf("%v with the epoch %s, before %s", after.numbers(), after.Epoch, before.Epoch)
	}
	// As many publications as were lost, and more: offsets reach those of clients from before.
	for number := 1041; second.history().Offset <= lost.Offset; number++ {
		second.publish(number, number)
	}
	for _, offset := range []uint64{before.Offset, lost.Offset} {
		if isRecovered, _ := second.recover(before.Epoch, offset); isRecovered {
			t.Errorf("a position of before, %d, is recovered", offset)
		}
	}
	if isRecovered, numbers := second.recover(after.Epoch, after.Offset); !isRecovered || len(numbers) == 0 || numbers[0] != 1041 {
		t.Errorf("a position of after: %t, %v", isRecovered, numbers)
	}

	// A second restore has a record of an epoch to follow, and does not repeat the one before.
	second.Kill()
	again := t.TempDir()
	if _, err := nats.server.Save(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if _, err := nats.server.Restore(t.Context(), again, Options{Replicas: 1}); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("servers with streams: %v", err)
	}
	if _, err := nats.server.Restore(t.Context(), again, Options{Replicas: 1, IsReplacing: true}); err != nil {
		t.Fatal(err)
	}
	third := nats.newNode().history()
	if third.Epoch == after.Epoch || third.Epoch == before.Epoch || third.Publications[0].Data != 1 {
		t.Errorf("the epoch %s after %s and %s, with %v", third.Epoch, after.Epoch, before.Epoch, third.numbers())
	}
}

// TestARestoreThatIsInterrupted has files that are damaged. The servers say so until a restore has succeeded.
func TestARestoreThatIsInterrupted(t *testing.T) {
	nats := newNATS(t)
	node := nats.newNode()
	node.publish(1, 40)
	folder := t.TempDir()
	if _, err := nats.server.Save(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	node.Kill()
	data, err := filepath.Glob(filepath.Join(folder, "dunlin_chat_*"+dataSuffix))
	if err != nil || len(data) == 0 {
		t.Fatal(data, err)
	}
	whole, err := os.ReadFile(data[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"cut": whole[:len(whole)/2], "empty": nil, "other bytes": bytes.Repeat([]byte("x"), len(whole))} {
		if err := os.WriteFile(data[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := nats.server.Restore(t.Context(), folder, Options{Replicas: 1, IsReplacing: true}); err == nil {
			t.Errorf("%s: it succeeded", name)
		}
		if isUnfinished, err := nats.server.IsUnfinished(t.Context()); !isUnfinished || err != nil {
			t.Errorf("%s: %t, %v", name, isUnfinished, err)
		}
		if _, err := nats.server.Save(t.Context(), t.TempDir()); !errors.Is(err, ErrUnfinished) {
			t.Errorf("%s: it is saved: %v", name, err)
		}
	}
	if err := os.WriteFile(data[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	// An interrupted restore is completed without --replace.
	if _, err := nats.server.Restore(t.Context(), folder, Options{Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	if isUnfinished, err := nats.server.IsUnfinished(t.Context()); isUnfinished || err != nil {
		t.Errorf("%t, %v", isUnfinished, err)
	}
	if found := nats.newNode().history(); !slices.Equal(found.numbers(), upTo(40)) {
		t.Error(found.numbers())
	}
	if _, err := Connect(nats.url, "another", "dunlin"); err == nil || strings.Contains(err.Error(), "another") {
		t.Errorf("another password: %v", err)
	}
	if _, err := nats.server.Restore(t.Context(), t.TempDir(), Options{Replicas: 1, IsReplacing: true}); err == nil {
		t.Error("a backup without streams was restored")
	}
	other, err := Connect(nats.url, password, "other")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Save(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "there is no stream with the prefix other") {
		t.Errorf("another prefix: %v", err)
	}
}
