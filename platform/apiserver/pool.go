package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

const resetSecondsMax = 60

// Pool lends servers to the tests of a package, each server to one test at a time. To start a server takes ten CPU-seconds. A test
// finds what Prepare has written, and nothing of earlier tests.
type Pool struct {
	Prepare func(context.Context, *Server) error
	mutex   sync.Mutex
	idle    []*lent
	folders []string
}

type lent struct {
	server *Server
	// begin is what was in the database when the server was ready and prepared.
	begin contents
}

// ForTest returns a server that is the test's until it ends. If the programs are missing, it skips the test.
func (pool *Pool) ForTest(t *testing.T) *Server {
	t.Helper()
	programs, isThere := ProgramsOfTest()
	if !isThere {
		t.Skip("ROOST_TEST_ETCD or ROOST_TEST_KUBE_APISERVER is not set; `make platform` sets them")
	}
	taken := pool.take()
	if taken == nil {
		var err error
		if taken, err = pool.start(t.Context(), programs); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), resetSecondsMax*time.Second)
		defer cancel()
		if err := taken.server.reset(ctx, taken.begin); err != nil {
			taken.server.Stop()
			t.Errorf("the server cannot be used again: %v", err)
			return
		}
		pool.mutex.Lock()
		defer pool.mutex.Unlock()
		pool.idle = append(pool.idle, taken)
	})
	return taken.server
}

// Stop stops all servers and removes their files, after the last test.
func (pool *Pool) Stop() error {
	pool.mutex.Lock()
	defer pool.mutex.Unlock()
	var failures []error
	for _, idle := range pool.idle {
		idle.server.Stop()
	}
	for _, folder := range pool.folders {
		failures = append(failures, os.RemoveAll(folder))
	}
	return errors.Join(failures...)
}

func (pool *Pool) take() *lent {
	pool.mutex.Lock()
	defer pool.mutex.Unlock()
	last := len(pool.idle) - 1
	if last < 0 {
		return nil
	}
	taken := pool.idle[last]
	pool.idle = pool.idle[:last]
	return taken
}

func (pool *Pool) start(ctx context.Context, programs Programs) (*lent, error) {
	folder, err := os.MkdirTemp("", "roost-servers")
	if err != nil {
		return nil, err
	}
	pool.mutex.Lock()
	pool.folders = append(pool.folders, folder)
	pool.mutex.Unlock()
	server, err := Start(programs, folder)
	if err != nil {
		return nil, err
	}
	if pool.Prepare != nil {
		err = pool.Prepare(ctx, server)
	}
	var begin contents
	if err == nil {
		begin, err = server.contents(ctx)
	}
	if err != nil {
		server.Stop()
		return nil, err
	}
	return &lent{server, begin}, nil
}

// contents are the keys and values of the database.
type contents map[string]string

// isOwn says whether the API server itself writes the key again and again: its address and its leases.
func isOwn(key string) bool {
	return strings.HasPrefix(key, "/registry/masterleases/") || strings.HasPrefix(key, "/registry/leases/kube-system/")
}

// reset makes the database contain what it did at the begin. The API server sees the changes as those of another API server. No
// finalizer and no owner keeps an object.
func (server *Server) reset(ctx context.Context, begin contents) error {
	now, err := server.contents(ctx)
	if err != nil {
		return err
	}
	for key := range now {
		if _, was := begin[key]; !was && !isOwn(key) {
			if err := server.database(ctx, "deleterange", map[string][]byte{"key": []byte(key)}, nil); err != nil {
				return err
			}
		}
	}
	for key, value := range begin {
		if current, is := now[key]; (!is || current != value) && !isOwn(key) {
			if err := server.database(ctx, "put", map[string][]byte{"key": []byte(key), "value": []byte(value)}, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (server *Server) contents(ctx context.Context) (contents, error) {
	var answer struct {
		Pairs []struct{ Key, Value []byte } `json:"kvs"`
	}
	if err := server.database(ctx, "range", map[string][]byte{"key": []byte("/registry/"), "range_end": []byte("/registry0")}, &answer); err != nil {
		return nil, err
	}
	found := contents{}
	for _, pair := range answer.Pairs {
		found[string(pair.Key)] = string(pair.Value)
	}
	return found, nil
}

// database calls etcd's API for keys. Its JSON has bytes in base64, as Go's.
func (server *Server) database(ctx context.Context, call string, body map[string][]byte, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.etcd+"/v3/kv/"+call, bytes.NewReader(text))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s", call, answer.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
