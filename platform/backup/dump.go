package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// DumpFolder is the folder below the root to which spec.backup.command writes.
	DumpFolder = "dump"
	// HostVariable names the host that spec.backup.restoreCommand loads a dump into: the app, or a copy of it without data.
	HostVariable = "ROOST_RESTORE_HOST"
	// loadGraceSeconds is the time between SIGTERM and SIGKILL of the command that loads a dump.
	loadGraceSeconds = 20
)

// SaveDump is Save for a dump. The dump must be one file, because a command of the app reads it from standard input.
func SaveDump(ctx context.Context, repository *Repository, root string, folders []string, keep Keep) (Report, error) {
	return repository.saveIf(ctx, root, folders, keep, func(manifest Manifest) error {
		_, err := manifest.dump()
		return err
	})
}

// dump returns the only file of a dump.
func (manifest Manifest) dump() (string, error) {
	var files []string
	for _, name := range slices.Sorted(maps.Keys(manifest.Entries)) {
		if manifest.Entries[name].Mode.IsRegular() {
			files = append(files, name)
		}
	}
	if len(files) != 1 {
		return "", fmt.Errorf("the dump has %d files, and spec.backup.restoreCommand reads one from its standard input; have spec.backup.command write one file to /backup/%s",
			len(files), DumpFolder)
	}
	if manifest.Entries[files[0]].Size == 0 {
		return "", fmt.Errorf("the dump %s is empty; have spec.backup.command fail when it cannot write it", path.Base(files[0]))
	}
	return files[0], nil
}

// StageDump is the first half of a restore of a dump. It runs in the image with restic, restores the dump into the empty folder DumpFolder, and
// compares it. LoadDump continues in the image of the app, which has the program that reads the dump. StageDump leaves a copy of its own program
// for LoadDump.
func StageDump(ctx context.Context, repository *Repository, root string, options RestoreOptions) (Report, error) {
	report, err := repository.stageDump(ctx, root, options)
	if err != nil {
		err = &UnchangedError{err}
	}
	return report, err
}

func (repository *Repository) stageDump(ctx context.Context, root string, options RestoreOptions) (Report, error) {
	report, snapshot, err := repository.prepare(ctx, root, []string{DumpFolder}, options)
	if err != nil {
		return report, err
	}
	manifest, err := repository.manifest(ctx, *snapshot)
	if err != nil {
		return report, err
	}
	if err := repository.stage(ctx, *snapshot, manifest, root, DumpFolder, DumpFolder, &report); err != nil {
		return report, err
	}
	return report, leaveDump(root, path.Join(DumpFolder, stagingFolder), manifest, report)
}

// VerifyDump is the first half of a drill. It calls Verify, and leaves the dump for LoadDump. Without LoadDump, nothing is verified.
func VerifyDump(ctx context.Context, repository *Repository, root string, percent int) (Report, error) {
	into := filepath.Join(root, DumpFolder)
	report, err := Verify(ctx, repository, into, percent)
	if err != nil {
		return report, err
	}
	manifest, err := readManifest(into)
	if err != nil {
		return report, err
	}
	return report, leaveDump(root, DumpFolder, manifest, report)
}

// leaveDump passes the dump of a snapshot to LoadDump. The dump was restored below a folder of root.
func leaveDump(root, folder string, manifest Manifest, report Report) error {
	part, err := manifest.below(DumpFolder)
	if err != nil {
		return err
	}
	name, err := part.dump()
	if err != nil {
		return err
	}
	if err := write(filepath.Join(root, stagedFile), staged{Report: report, Dump: path.Join(folder, name)}); err != nil {
		return err
	}
	return copyProgram(filepath.Join(root, ProgramFile))
}

// LoadDump is the second half of a restore and of a drill. It runs a command of the app with the dump as standard input. It fails if the command
// fails, or if the command has read nothing. The command inherits the variables of this process, so no secret is an argument.
func LoadDump(ctx context.Context, root string, words []string, log io.Writer) (Report, error) {
	var found staged
	text, err := os.ReadFile(filepath.Join(root, stagedFile))
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		return found.Report, fmt.Errorf("there is no restored dump: %w", err)
	}
	dump, err := os.Open(filepath.Join(root, found.Dump))
	if err != nil {
		return found.Report, err
	}
	defer dump.Close()
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = loadGraceSeconds * time.Second
	last := &ending{}
	out := io.MultiWriter(log, last)
	command.Stdin, command.Stdout, command.Stderr = dump, out, out
	if err := command.Run(); err != nil {
		return found.Report, fmt.Errorf("spec.backup.restoreCommand failed: %w: %s", errors.Join(ctx.Err(), err), last)
	}
	// The command shares this open file, so the offset is where the command stopped reading.
	at, err := dump.Seek(0, io.SeekCurrent)
	if err == nil && at == 0 {
		err = errors.New("spec.backup.restoreCommand did not read the dump from its standard input; have it read its standard input")
	}
	found.Report.IsLoaded = err == nil
	return found.Report, err
}

// ending keeps the last bytes of an output, for an error message.
type ending struct{ kept []byte }

func (ending *ending) Write(text []byte) (int, error) {
	ending.kept = append(ending.kept, text...)
	ending.kept = ending.kept[max(0, len(ending.kept)-lastOutputBytesMax):]
	return len(text), nil
}

func (ending *ending) String() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(ending.kept), ""))
}
