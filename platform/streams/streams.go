// Package streams saves the streams of a Dunlin in NATS JetStream to files, and restores them. A restore gives channels a new epoch: a position
// from before the restore is not valid in a stream that has lost its end.
package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// user is the NATS user of the servers that Roost runs.
	user = "dunlin"
	// requestSeconds is the timeout of a JetStream request. It allows for the election of a leader.
	requestSeconds = 20
	// stallSeconds is the timeout between two messages of a snapshot.
	stallSeconds = 60
	epochKey     = "dunlin.epoch"
	// leaseSuffix is the suffix of the name of the stream of leases.
	leaseSuffix = "_LEASE"
	// chunkBytes is the size of the messages that transfer a stream. The servers accept up to 1 MiB.
	chunkBytes = 256 << 10
	// windowBytes is the number of bytes that a server sends before it needs an acknowledgment, so it bounds the buffer of this process.
	windowBytes = 4 << 20
)

// Server is a connection to JetStream, for the streams with one prefix.
type Server struct {
	connection *nats.Conn
	prefix     string
}

// Connect connects to NATS as the user dunlin if there is a password, or without credentials. The URLs contain no password, because they may be
// logged.
func Connect(urls, password, prefix string) (*Server, error) {
	options := []nats.Option{nats.Name("roost-backup"), nats.Timeout(requestSeconds * time.Second), nats.MaxReconnects(-1)}
	if password != "" {
		options = append(options, nats.UserInfo(user, password))
	}
	connection, err := nats.Connect(urls, options...)
	if err != nil {
		return nil, fmt.Errorf("NATS does not answer at %s: %w; check that its pods run", urls, err)
	}
	return &Server{connection, prefix}, nil
}

// Close ends the connection.
func (server *Server) Close() { server.connection.Close() }

// State is the state of a stream, as JetStream reports it.
type State struct {
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	First    uint64 `json:"first_seq"`
	Last     uint64 `json:"last_seq"`
}

// Stream is a stream with channels of the Dunlin.
type Stream struct {
	Name string
	// Config is the configuration that the server reports. It includes fields that this package does not know.
	Config map[string]any
	State  State
}

func (stream *Stream) metadata() map[string]any {
	found, _ := stream.Config["metadata"].(map[string]any)
	return found
}

// isSaved reports whether the stream has publications on disk. Leases and streams in memory do not survive a restart of the servers, and the nodes
// create them again.
func (stream *Stream) isSaved(prefix string) bool {
	epoch, _ := stream.metadata()[epochKey].(string)
	return strings.HasPrefix(stream.Name, prefix+"_") && stream.Name != prefix+leaseSuffix && epoch != "" && stream.Config["storage"] == "file"
}

// apiError is the error in a JetStream response.
type apiError struct {
	// Code is a class as in HTTP, Number says which error it is.
	Code        int            `json:"code"`
	Number      nats.ErrorCode `json:"err_code"`
	Description string         `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.Code) }

// isNoMessage reports whether a stream has no message with the wanted subject.
func isNoMessage(err error) bool {
	var refused *apiError
	return errors.As(err, &refused) && refused.Number == nats.JSErrCodeMessageNotFound
}

// ask sends a request to the JetStream API.
func (server *Server) ask(ctx context.Context, subject string, request, answer any) error {
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestSeconds*time.Second)
	defer cancel()
	message, err := server.connection.RequestWithContext(ctx, "$JS.API."+subject, body)
	if err != nil {
		return fmt.Errorf("JetStream does not answer %s: %w", subject, err)
	}
	return read(subject, message.Data, answer)
}

func read(subject string, body []byte, answer any) error {
	var failed struct {
		Error *apiError `json:"error"`
	}
	err := json.Unmarshal(body, &failed)
	if err == nil && failed.Error != nil {
		return fmt.Errorf("JetStream refuses %s: %w", subject, failed.Error)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(body, answer)
	}
	return err
}

// List returns the streams with publications on disk.
func (server *Server) List(ctx context.Context) ([]Stream, error) {
	var found []Stream
	for offset := 0; ; {
		var page struct {
			Total   int `json:"total"`
			Streams []struct {
				Config map[string]any `json:"config"`
				State  State          `json:"state"`
			} `json:"streams"`
			Missing []string `json:"missing"`
		}
		if err := server.ask(ctx, "STREAM.LIST", map[string]any{"offset": offset}, &page); err != nil {
			return nil, err
		}
		if len(page.Missing) > 0 {
			return nil, fmt.Errorf("the servers do not answer for the streams %s; wait until each has a leader", strings.Join(page.Missing, ", "))
		}
		for _, each := range page.Streams {
			name, _ := each.Config["name"].(string)
			if stream := (Stream{name, each.Config, each.State}); stream.isSaved(server.prefix) {
				found = append(found, stream)
			}
		}
		offset += len(page.Streams)
		if offset >= page.Total || len(page.Streams) == 0 {
			return found, nil
		}
	}
}

// has reports whether a stream with a name exists.
func (server *Server) has(ctx context.Context, name string) (bool, error) {
	var page struct {
		Streams []string `json:"streams"`
	}
	err := server.ask(ctx, "STREAM.NAMES", map[string]any{"subject": name}, &page)
	return len(page.Streams) > 0, err
}

// markName returns the name of a stream, and of its only subject. The stream exists while streams are being replaced.
func (server *Server) markName() string { return server.prefix + "-roost-restore" }

// ErrUnfinished is returned if a restore into the servers was interrupted.
var ErrUnfinished = errors.New("a restore of the streams was interrupted; complete it with `roost restore`")

// IsUnfinished reports whether a restore was interrupted.
func (server *Server) IsUnfinished(ctx context.Context) (bool, error) {
	return server.has(ctx, server.markName())
}
