package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// list returns the entries of a snapshot.
func (repository *Repository) list(ctx context.Context, snapshot Snapshot) (map[string]saved, error) {
	var found map[string]saved
	err := repository.whenUnlocked(ctx, func() error {
		found = map[string]saved{}
		return repository.listEach(ctx, snapshot, func(name string, entry saved) { found[name] = entry })
	})
	return found, err
}

// listEach calls a function for each entry of a snapshot while restic writes them, so the text of the list is never in memory as a whole.
func (repository *Repository) listEach(ctx context.Context, snapshot Snapshot, each func(name string, entry saved)) error {
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := readListing(read, each)
		// Close the pipe, so that restic does not wait for a reader that has failed.
		read.CloseWithError(err)
		ended <- err
	}()
	err := repository.stream(ctx, "", write, "ls", "--json", snapshot.ID)
	write.Close() //nolint:errcheck // a pipe in memory
	if failed := <-ended; err == nil && failed != nil {
		err = fmt.Errorf("reading the list of a snapshot: %w", failed)
	}
	return err
}

func readListing(text io.Reader, each func(name string, entry saved)) error {
	for decoder := json.NewDecoder(text); ; {
		var node struct {
			Path       string    `json:"path"`
			Size       int64     `json:"size"`
			Modified   time.Time `json:"mtime"`
			StructType string    `json:"struct_type"`
		}
		if err := decoder.Decode(&node); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if node.StructType == "node" {
			each(strings.TrimPrefix(filepath.ToSlash(node.Path), "/"), saved{node.Size, node.Modified})
		}
	}
}
