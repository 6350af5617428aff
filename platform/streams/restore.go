package streams

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Headers and subject of the records that begin an epoch in a stream. They are the same as in crates/cluster.
const (
	generationHeader = "Dn-Generation"
	epochHeader      = "Dn-Epoch"
	expectedHeader   = "Nats-Expected-Last-Subject-Sequence"
	epochToken       = "%_e"
	epochCharacters  = 8
)

// ErrNotEmpty is returned when the servers have streams and the options do not allow to replace them.
var ErrNotEmpty = errors.New("the servers already have streams; repeat with --replace to replace them")

// Options of a restore.
type Options struct {
	// Replicas is the number of servers that keep a copy of each stream.
	Replicas int
	// IsReplacing removes the existing streams with the same prefix first.
	IsReplacing bool
	// KeepsAll disables the age limit of the streams, so that no saved message expires during the restore.
	KeepsAll bool
}

// Restore creates the streams that were saved in a folder. No node may run meanwhile. It returns the states that the servers report at the end.
func (server *Server) Restore(ctx context.Context, folder string, options Options) ([]Stream, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*"+infoSuffix))
	if err == nil && len(files) == 0 {
		err = errors.New("the backup has no streams")
	}
	if err != nil {
		return nil, err
	}
	if err := server.clear(ctx, options); err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := server.restore(ctx, file, options); err != nil {
			return nil, fmt.Errorf("restoring the stream %s: %w", strings.TrimSuffix(filepath.Base(file), infoSuffix), err)
		}
	}
	found, err := server.List(ctx)
	if err != nil {
		return nil, err
	}
	if len(found) != len(files) {
		return nil, fmt.Errorf("the servers have %d of %d streams", len(found), len(files))
	}
	return found, server.ask(ctx, "STREAM.DELETE."+server.markName(), nil, nil)
}

// clear removes the existing streams, and creates a mark that stays until the restore is complete.
func (server *Server) clear(ctx context.Context, options Options) error {
	isUnfinished, err := server.IsUnfinished(ctx)
	if err != nil {
		return err
	}
	there, err := server.List(ctx)
	if err != nil {
		return err
	}
	if len(there) > 0 && !isUnfinished && !options.IsReplacing {
		return ErrNotEmpty
	}
	if !isUnfinished {
		mark := map[string]any{"name": server.markName(), "subjects": []string{server.markName()}, "storage": "file", "num_replicas": options.Replicas, "retention": "limits"}
		if err := server.ask(ctx, "STREAM.CREATE."+server.markName(), mark, nil); err != nil {
			return err
		}
	}
	for _, stream := range there {
		if err := server.ask(ctx, "STREAM.DELETE."+stream.Name, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

func (server *Server) restore(ctx context.Context, file string, options Options) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var saved info
	stream := Stream{}
	if err := errors.Join(json.Unmarshal(text, &saved), json.Unmarshal(saved.Config, &stream.Config), json.Unmarshal(saved.State, &stream.State)); err != nil {
		return err
	}
	stream.Name, _ = stream.Config["name"].(string)
	if !stream.isSaved(server.prefix) || stream.Name+infoSuffix != filepath.Base(file) {
		return fmt.Errorf("it is not a stream with the prefix %s", server.prefix)
	}
	epoch := strings.ToLower(rand.Text()[:epochCharacters])
	stream.metadata()[epochKey] = epoch
	stream.Config["num_replicas"] = options.Replicas
	if options.KeepsAll {
		stream.Config["max_age"] = float64(0)
	}
	if err := server.send(ctx, stream, saved.State, strings.TrimSuffix(file, infoSuffix)+dataSuffix); err != nil {
		return err
	}
	return server.beginEpoch(ctx, stream, epoch)
}

// send uploads the file of a stream to the server, which creates the stream from it.
func (server *Server) send(ctx context.Context, stream Stream, state json.RawMessage, file string) error {
	data, err := os.Open(file)
	if err != nil {
		return err
	}
	defer data.Close()
	var begun struct {
		Subject string `json:"deliver_subject"`
	}
	subject := "STREAM.RESTORE." + stream.Name
	if err := server.ask(ctx, subject, map[string]any{"config": stream.Config, "state": state}, &begun); err != nil {
		return err
	}
	chunk := make([]byte, chunkBytes)
	for {
		count, err := io.ReadFull(data, chunk)
		if count > 0 {
			if err := server.chunk(ctx, begun.Subject, chunk[:count], nil); err != nil {
				return err
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return err
		}
	}
	var made struct {
		State State `json:"state"`
	}
	if err := server.chunk(ctx, begun.Subject, nil, &made); err != nil {
		return err
	}
	// The server removes messages that are older than max_age at once.
	hasAged := stream.Config["max_age"] != float64(0) && made.State.Last == stream.State.Last && made.State.Messages < stream.State.Messages
	if made.State != stream.State && !hasAged {
		return fmt.Errorf("its state is %+v instead of %+v", made.State, stream.State)
	}
	return nil
}

// chunk uploads one part, which the server acknowledges. A response with content to a part other than the last one is an error.
func (server *Server) chunk(ctx context.Context, subject string, part []byte, answer any) error {
	patience, cancel := context.WithTimeout(ctx, stallSeconds*time.Second)
	defer cancel()
	message, err := server.connection.RequestWithContext(patience, subject, part)
	if err != nil {
		return fmt.Errorf("the server does not accept the stream: %w", err)
	}
	if len(message.Data) == 0 && answer == nil {
		return nil
	}
	return read("a part of the stream", message.Data, answer)
}

// beginEpoch sets the epoch of the stream. It appends a record, because a record of an earlier epoch takes precedence over the configuration.
func (server *Server) beginEpoch(ctx context.Context, stream Stream, epoch string) error {
	subjects, _ := stream.Config["subjects"].([]any)
	if len(subjects) != 1 {
		return fmt.Errorf("it has %d subjects", len(subjects))
	}
	subject := strings.TrimSuffix(fmt.Sprint(subjects[0]), ">") + epochToken
	var last struct {
		Message struct {
			Sequence uint64 `json:"seq"`
			Headers  []byte `json:"hdrs"`
		} `json:"message"`
	}
	generation := uint64(0)
	err := server.ask(ctx, "STREAM.MSG.GET."+stream.Name, map[string]any{"last_by_subj": subject}, &last)
	if err != nil && !isNoMessage(err) {
		return err
	}
	if err == nil {
		headers, err := nats.DecodeHeadersMsg(last.Message.Headers)
		if err == nil {
			generation, err = strconv.ParseUint(headers.Get(generationHeader), 10, 64)
		}
		if err != nil {
			return fmt.Errorf("the record of its epoch cannot be read: %w", err)
		}
	}
	record := nats.NewMsg(subject)
	record.Header.Set(generationHeader, strconv.FormatUint(generation+1, 10))
	record.Header.Set(epochHeader, epoch)
	record.Header.Set(expectedHeader, strconv.FormatUint(last.Message.Sequence, 10))
	patience, cancel := context.WithTimeout(ctx, requestSeconds*time.Second)
	defer cancel()
	answer, err := server.connection.RequestMsgWithContext(patience, record)
	if err != nil {
		return fmt.Errorf("its new epoch is not stored: %w", err)
	}
	return read("a new epoch", answer.Data, nil)
}
