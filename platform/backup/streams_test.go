package backup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dunlin-project/dunlin/platform/ports"
)

// broker is a NATS server without streams.
type broker struct {
	*site
	streams    Streams
	connection *nats.Conn
	kill       func()
}

func newBroker(site *site) *broker {
	t := site.t
	t.Helper()
	program := os.Getenv("ROOST_TEST_NATS")
	if program == "" {
		t.Skip("ROOST_TEST_NATS names no server; `make platform` sets it")
	}
	found := &broker{site: site}
	for range portsMax {
		port := ports.One(t)
		server := exec.Command(program, "--jetstream", "--store_dir="+t.TempDir(), "--addr=127.0.0.1", fmt.Sprint("--port=", port))
		server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			server.Wait() //nolint:errcheck // it is killed
			close(ended)
		}()
		found.kill = func() {
			server.Process.Kill() //nolint:errcheck // it may have ended
			<-ended
		}
		t.Cleanup(found.kill)
		found.streams = Streams{URLs: fmt.Sprint("nats://127.0.0.1:", port), Prefix: "dunlin", Replicas: 1}
		if found.connect(ended) {
			return found
		}
	}
	t.Fatalf("%d ports were taken", portsMax)
	return nil
}

func (broker *broker) connect(ended <-chan struct{}) bool {
	for deadline := time.After(waitMax); ; {
		connection, err := nats.Connect(broker.streams.URLs)
		if err == nil {
			if answer, err := connection.Request("$JS.API.INFO", nil, time.Second); err == nil && !strings.Contains(string(answer.Data), `"error":`) {
				broker.connection = connection
				broker.t.Cleanup(connection.Close)
				return true
			}
			connection.Close()
		}
		select {
		case <-ended:
			return false
		case <-deadline:
			broker.t.Fatal("NATS does not serve")
		case <-time.After(20 * time.Millisecond): // between two looks
		}
	}
}

// ask sends a request that JetStream must not refuse.
func (broker *broker) ask(subject, body string) string {
	broker.t.Helper()
	answer, err := broker.connection.Request(subject, []byte(body), waitMax)
	if err != nil || strings.Contains(string(answer.Data), `"error":`) {
		broker.t.Fatal(err, answer)
	}
	return string(answer.Data)
}

// fill creates a stream as a node does, with messages that are as old as the backup.
func (broker *broker) fill(count int) {
	broker.ask("$JS.API.STREAM.CREATE.dunlin_chat_0", `{"name": "dunlin_chat_0", "subjects": ["dunlin.p.chat.0.>"], "storage": "file", "retention": "limits",
		"num_replicas": 1, "max_age": 3600000000000, "metadata": {"dunlin.epoch": "before"}}`)
	for number := range count {
		broker.ask("dunlin.p.chat.0.room", fmt.Sprint(number))
	}
}

func (broker *broker) info() string {
	return broker.ask("$JS.API.STREAM.INFO.dunlin_chat_0", "")
}

func (broker *broker) restore(options RestoreOptions) (Report, error) {
	options.Snapshot = "latest"
	return RestoreStreams(broker.t.Context(), broker.repository, broker.streams, broker.emptyRoot(), options)
}

// TestStreams saves streams, verifies them with a separate server, and restores them into servers that have lost their streams.
func TestStreams(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	live := newBroker(site)
	site.fails(SaveStreams(t.Context(), site.repository, live.streams, site.emptyRoot(), Keep{}))("there is no stream with the prefix dunlin on disk")
	live.fill(100)
	saved := site.must(SaveStreams(t.Context(), site.repository, live.streams, site.emptyRoot(), Keep{Daily: 7}))
	if saved.Streams != 1 || saved.Messages != 100 || saved.Files != 2 {
		t.Errorf("%+v", saved)
	}
	scratch := newBroker(site)
	verified := site.must(VerifyStreams(t.Context(), site.repository, scratch.streams, site.emptyRoot(), 100))
	// The record of the new epoch is a message as well.
	if !verified.IsLoaded || verified.Streams != 1 || verified.Messages != 101 || verified.Snapshot != saved.Snapshot {
		t.Errorf("%+v of %+v", verified, saved)
	}
	site.fails(VerifyStreams(t.Context(), site.repository, scratch.streams, site.emptyRoot(), 100))("the servers already have streams")

	var unchanged *UnchangedError
	if _, err := live.restore(RestoreOptions{}); !errors.As(err, &unchanged) || unchanged.ExitCode() != ExitRefused || !strings.Contains(err.Error(), "repeat with --replace") {
		t.Errorf("streams that are there: %v", err)
	}
	live.ask("dunlin.p.chat.0.room", "later")
	restored := site.must(live.restore(RestoreOptions{Replace: true}))
	if restored.Messages != 101 || restored.Kind != KindRestore || strings.Contains(live.info(), `"before"`) {
		t.Errorf("%+v: %s", restored, live.info())
	}
	empty := newBroker(site)
	site.must(empty.restore(RestoreOptions{}))
	if !strings.Contains(empty.info(), `"messages":101`) {
		t.Error(empty.info())
	}

	// The snapshot contains no streams, like a snapshot of volumes.
	site.must(site.save(Keep{Daily: 7}))
	before := live.info()
	if _, err := live.restore(RestoreOptions{Replace: true}); !errors.As(err, &unchanged) || !strings.Contains(err.Error(), "the snapshot has no dump") {
		t.Errorf("a snapshot without streams: %v", err)
	}
	if after := live.info(); stateOf(after) != stateOf(before) {
		t.Errorf("a restore that has failed: %s instead of %s", after, before)
	}
	// A mark says that streams were being replaced. Then it is not known whether anything has changed.
	live.ask("$JS.API.STREAM.CREATE.dunlin-roost-restore", `{"name": "dunlin-roost-restore", "subjects": ["dunlin-roost-restore"], "storage": "file", "retention": "limits", "num_replicas": 1}`)
	if _, err := live.restore(RestoreOptions{Replace: true}); err == nil || errors.As(err, &unchanged) {
		t.Errorf("after an interrupted restore: %v", err)
	}
	live.kill()
	if _, err := live.restore(RestoreOptions{Replace: true}); err == nil || errors.As(err, &unchanged) || !strings.Contains(err.Error(), "NATS does not answer") {
		t.Errorf("without servers: %v", err)
	}
}

// stateOf returns the state of a stream, without the time of the response.
func stateOf(info string) string {
	_, state, _ := strings.Cut(info, `"state":`)
	state, _, _ = strings.Cut(state, "}")
	return state
}
