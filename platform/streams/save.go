package streams

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
)

// Suffixes of the files of a stream: its configuration and state, and the snapshot that the server has sent.
const (
	infoSuffix = ".json"
	dataSuffix = ".snapshot"
)

// info is the configuration and the state of a stream at the time of the backup.
type info struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
}

// Save writes each stream to two files in a folder. The streams are saved one after the other while the nodes keep running, so each stream has the
// state of a different time.
func (server *Server) Save(ctx context.Context, folder string) ([]Stream, error) {
	isUnfinished, err := server.IsUnfinished(ctx)
	if err == nil && isUnfinished {
		err = ErrUnfinished
	}
	if err != nil {
		return nil, err
	}
	found, err := server.List(ctx)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("there is no stream with the prefix %s on disk; the nodes create the streams when they start", server.prefix)
	}
	if err != nil {
		return nil, err
	}
	for index := range found {
		if err := server.save(ctx, &found[index], folder); err != nil {
			return nil, fmt.Errorf("saving the stream %s: %w", found[index].Name, err)
		}
	}
	return found, nil
}

func (server *Server) save(ctx context.Context, stream *Stream, folder string) error {
	inbox := server.connection.NewRespInbox()
	chunks, err := server.connection.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer chunks.Unsubscribe() //nolint:errcheck // the connection is closed then
	request := map[string]any{
		"deliver_subject": inbox, "no_consumers": true, "jsck": true, "chunk_size": chunkBytes, "window_size": windowBytes,
	}
	var saved info
	if err := server.ask(ctx, "STREAM.SNAPSHOT."+stream.Name, request, &saved); err != nil {
		return err
	}
	if err := json.Unmarshal(saved.State, &stream.State); err != nil {
		return err
	}
	text, err := json.Marshal(saved)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, stream.Name+infoSuffix), text, 0o600)
	}
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(folder, stream.Name+dataSuffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(file, chunkBytes)
	return errors.Join(receive(ctx, chunks, out), out.Flush(), file.Close())
}

// receive writes the messages of a snapshot until the server sends the last one.
func receive(ctx context.Context, chunks *nats.Subscription, out *bufio.Writer) error {
	for {
		patience, cancel := context.WithTimeout(ctx, stallSeconds*time.Second)
		message, err := chunks.NextMsgWithContext(patience)
		cancel()
		if err != nil {
			return fmt.Errorf("the server did not send the whole stream: %w", err)
		}
		if len(message.Data) == 0 {
			// The last message. Servers before 2.12 send it without a status.
			if status := message.Header.Get("Status"); status != "" && status != "204" {
				return fmt.Errorf("the server did not send the whole stream: %s %s", status, message.Header.Get("Description"))
			}
			return nil
		}
		if _, err := out.Write(message.Data); err != nil {
			return err
		}
		if message.Reply != "" {
			if err := message.Respond(nil); err != nil {
				return err
			}
		}
	}
}
