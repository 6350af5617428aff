// Package dunlintest runs servers for tests.
package dunlintest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dunlin-project/dunlin/platform/ports"
)

const (
	// Key is the API key that a configuration must have.
	Key = "drill"
	// startMax is long, for a busy machine.
	startMax = time.Minute
	portsMax = 10
)

// Program is the server's program. A test without one is skipped.
func Program(t testing.TB) string {
	t.Helper()
	program := os.Getenv("ROOST_TEST_SERVER")
	if program == "" {
		t.Skip("ROOST_TEST_SERVER names no server; `make test` sets it")
	}
	return program
}

// Server is a process of a server, which is killed at the end of the test.
type Server struct {
	// Address is where its API is, and Config is the file of its configuration.
	Address, Config string

	t     testing.TB
	log   string
	ended chan struct{}
	kill  func() error
}

// Start runs a server that has its API on a port. configure returns the configuration with the port, and is called again if another process has
// taken the port meanwhile.
func Start(t testing.TB, configure func(port int) string) *Server {
	t.Helper()
	program := Program(t)
	for range portsMax {
		port := ports.One(t)
		folder := t.TempDir()
		server := &Server{
			Address: fmt.Sprint("http://127.0.0.1:", port), Config: filepath.Join(folder, "config.json"),
			t: t, log: filepath.Join(folder, "log"), ended: make(chan struct{}),
		}
		if err := os.WriteFile(server.Config, []byte(configure(port)), 0o600); err != nil {
			t.Fatal(err)
		}
		server.run(program)
		if server.serves() {
			return server
		}
	}
	t.Fatalf("%d ports were taken", portsMax)
	return nil
}

func (server *Server) run(program string) {
	t := server.t
	t.Helper()
	log, err := os.Create(server.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(program, "serve", "--config", server.Config)
	// The server reads variables as configuration.
	command.Env, command.Stdout, command.Stderr = []string{}, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		command.Wait() //nolint:errcheck // it is killed
		close(server.ended)
	}()
	server.kill = command.Process.Kill
	t.Cleanup(server.Kill)
}

// serves waits until the server answers, and is false if its port was taken.
func (server *Server) serves() bool {
	t := server.t
	t.Helper()
	for deadline := time.After(startMax); ; {
		// Whoever took the port may answer as well.
		if response, err := http.Get(server.Address + "/health"); err == nil {
			response.Body.Close()
			if strings.Contains(server.Log(), "dunlin is listening") {
				return true
			}
		}
		select {
		case <-server.ended:
			if strings.Contains(server.Log(), "Address already in use") {
				return false
			}
			t.Fatalf("the server has ended\n%s", server.Log())
		case <-deadline:
			t.Fatalf("the server does not serve\n%s", server.Log())
		case <-time.After(20 * time.Millisecond): // between two looks
		}
	}
}

// Kill ends the server as a crash does.
func (server *Server) Kill() {
	server.kill() //nolint:errcheck // it may have ended
	<-server.ended
}

// Log is what the server has logged.
func (server *Server) Log() string {
	text, err := os.ReadFile(server.log)
	if err != nil {
		server.t.Fatal(err)
	}
	return string(text)
}

// Call calls a method of the API.
func (server *Server) Call(method, body string, result any) error {
	request, err := http.NewRequestWithContext(server.t.Context(), http.MethodPost, server.Address+"/api/"+method, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("X-API-Key", Key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct{ Error, Result json.RawMessage }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return errors.New(string(answer.Error))
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return json.Unmarshal(answer.Result, result)
}

// Publish publishes these numbers in a channel.
func (server *Server) Publish(channel string, from, to int) {
	server.t.Helper()
	for number := from; number <= to; number++ {
		if err := server.Call("publish", fmt.Sprintf(`{"channel": %q, "data": %d}`, channel, number), &struct{}{}); err != nil {
			server.t.Fatal(err)
		}
	}
}
