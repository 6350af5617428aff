package backup

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"

	"github.com/dunlin-project/dunlin/platform/streams"
)

// streamsFolder is below DumpFolder.
const streamsFolder = "streams"

// KeyNATSPassword is the variable with the password of the NATS servers. The password is never an argument.
const KeyNATSPassword = "NATS_PASSWORD"

// Streams are the streams of a Dunlin in NATS.
type Streams struct {
	// URLs of the servers, without a password.
	URLs, Password, Prefix string
	// Replicas is the number of servers that keep a restored stream.
	Replicas int
}

// SaveStreams writes the streams to the empty folder DumpFolder, and saves it.
func SaveStreams(ctx context.Context, repository *Repository, from Streams, root string, keep Keep) (Report, error) {
	report := Report{Kind: KindSave}
	server, err := streams.Connect(from.URLs, from.Password, from.Prefix)
	if err != nil {
		return report, err
	}
	defer server.Close()
	folder := filepath.Join(root, DumpFolder, streamsFolder)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return report, err
	}
	found, err := server.Save(ctx, folder)
	if err != nil {
		return report, err
	}
	report, err = Save(ctx, repository, root, []string{DumpFolder}, keep)
	report.addStreams(found)
	return report, err
}

func (report *Report) addStreams(found []streams.Stream) {
	for _, stream := range found {
		report.Streams++
		report.Messages += stream.State.Messages
	}
}

// VerifyStreams calls Verify for DumpFolder. It then restores the streams into a server without streams. That server must have all messages
// afterwards.
func VerifyStreams(ctx context.Context, repository *Repository, scratch Streams, root string, percent int) (Report, error) {
	into := filepath.Join(root, DumpFolder)
	report, err := Verify(ctx, repository, into, percent)
	if err != nil {
		return report, err
	}
	server, err := streams.Connect(scratch.URLs, scratch.Password, scratch.Prefix)
	if err != nil {
		return report, err
	}
	defer server.Close()
	found, err := server.Restore(ctx, filepath.Join(into, DumpFolder, streamsFolder), streams.Options{Replicas: scratch.Replicas, KeepsAll: true})
	report.addStreams(found)
	report.IsLoaded = err == nil
	return report, err
}

// RestoreStreams restores the streams of a snapshot into servers. No node may run during the restore. An error before the streams are replaced
// is an UnchangedError.
func RestoreStreams(ctx context.Context, repository *Repository, into Streams, root string, options RestoreOptions) (Report, error) {
	report := Report{Kind: KindRestore}
	server, err := streams.Connect(into.URLs, into.Password, into.Prefix)
	if err != nil {
		return report, err
	}
	defer server.Close()
	isUnfinished, err := server.IsUnfinished(ctx)
	if err != nil {
		return report, err
	}
	report, snapshot, err := repository.prepare(ctx, root, []string{DumpFolder}, options)
	if err == nil {
		var manifest Manifest
		if manifest, err = repository.manifest(ctx, *snapshot); err == nil {
			err = repository.stage(ctx, *snapshot, manifest, root, DumpFolder, DumpFolder, &report)
		}
	}
	if err == nil {
		folder := filepath.Join(root, path.Join(DumpFolder, stagingFolder, DumpFolder, streamsFolder))
		var found []streams.Stream
		found, err = server.Restore(ctx, folder, streams.Options{Replicas: into.Replicas, IsReplacing: options.Replace})
		report.addStreams(found)
		if err != nil && !errors.Is(err, streams.ErrNotEmpty) {
			return report, err
		}
	}
	if err != nil && !isUnfinished {
		err = &UnchangedError{err}
	}
	return report, err
}
