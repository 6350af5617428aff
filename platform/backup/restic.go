package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// tag is on each snapshot that this package makes.
const tag = "roost"

const (
	// interruptSeconds is the time that restic gets to remove its lock after a signal.
	interruptSeconds = 20
	outputBytesMax   = 2048
)

// Repository is a repository of snapshots, and how restic reaches it.
type Repository struct {
	// URL of the repository. If it is empty, the file RESTIC_REPOSITORY in Secrets contains it.
	URL string
	// Path below the URL, so that one store can contain several repositories.
	Path string
	// Secrets is a folder with RESTIC_PASSWORD and other variables of restic, each in a file of its name.
	Secrets string
	// Host is the host name of the snapshots.
	Host string
	// Owner is a tag of the snapshots. Snapshots with the same Host and another owner, such as those of the same app in another cluster, are
	// never removed and never verified. If Owner is empty, all snapshots of Host belong to it.
	Owner string
	// Program is the path of restic. If it is empty, restic in $PATH is used.
	Program string
	// Options of restic, such as sftp.command=…
	Options []string
	// LockWait is how long to wait for the lock of another host.
	LockWait time.Duration
	// Log receives restic's own messages.
	Log io.Writer

	secrets *secrets
}

// failure is an error of restic, with the remedy.
type failure struct {
	kind    failureKind
	message string
}

type failureKind int

const (
	failureOther failureKind = iota
	failureLocked
	failureMissing
	// failurePermanent is the kind of a failure that a retry does not fix.
	failurePermanent
)

// permanent returns a failure that a retry does not fix.
func permanent(format string, arguments ...any) error {
	return &failure{failurePermanent, fmt.Sprintf(format, arguments...)}
}

func (failure *failure) Error() string { return failure.message }

func isKind(err error, kind failureKind) bool {
	var found *failure
	return errors.As(err, &found) && found.kind == kind
}

// run calls restic once. Its output contains no secret.
func (repository *Repository) run(ctx context.Context, folder string, arguments ...string) ([]byte, error) {
	var out bytes.Buffer
	if err := repository.stream(ctx, folder, &out, arguments...); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// stream is run for an output that may be long.
func (repository *Repository) stream(ctx context.Context, folder string, out io.Writer, arguments ...string) error {
	if repository.secrets == nil {
		if err := repository.readSecrets(); err != nil {
			return err
		}
	}
	program := repository.Program
	if program == "" {
		program = "restic"
	}
	for _, option := range repository.Options {
		arguments = append(arguments, "--option", option)
	}
	command := exec.CommandContext(ctx, program, append(arguments, "--no-cache")...)
	command.Dir, command.Env = folder, repository.secrets.environment
	// After SIGINT, restic removes its lock.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = interruptSeconds * time.Second
	var failed, first bytes.Buffer
	command.Stdout, command.Stderr = io.MultiWriter(out, &beginning{&first}), &failed
	err := command.Run()
	if repository.Log != nil && failed.Len() > 0 {
		fmt.Fprint(repository.Log, repository.secrets.redact(failed.String()))
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("restic %s was stopped before it completed: %w", arguments[0], ctx.Err())
	case err != nil:
		return repository.explain(arguments[0], err, failed.String()+first.String())
	}
	return nil
}

// beginning keeps the first bytes of an output, for an error message.
type beginning struct{ kept *bytes.Buffer }

func (beginning *beginning) Write(text []byte) (int, error) {
	beginning.kept.Write(text[:min(len(text), max(0, outputBytesMax-beginning.kept.Len()))])
	return len(text), nil
}

// explain turns the output of restic into an error message with the remedy.
func (repository *Repository) explain(command string, cause error, output string) error {
	output = repository.secrets.redact(strings.TrimSpace(output))
	// Search the whole output: for a missing pack, restic prints one line for each affected file after the lines with the cause.
	all := output
	has := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(all, text) })
	}
	if len(output) > outputBytesMax {
		output = "…" + strings.ToValidUTF8(output[len(output)-outputBytesMax:], "")
	}
	switch {
	case has("wrong password or no key found"):
		return &failure{failurePermanent, "RESTIC_PASSWORD is not the password of the repository; set the password that the repository was created with in the encrypted file of spec.backup.repository"}
	case has("already locked", "unable to create lock"):
		return &failure{failureLocked, "the repository is locked: " + output}
	case command == "list" && has("no such file or directory", "does not exist"):
		return &failure{failureMissing, "there is no repository yet"}
	case has(unansweredTexts...):
		return &failure{failureOther, fmt.Sprintf("the store of the repository did not answer during restic %s: %s; check the store and the network", command, findings(output))}
	case command == "check" || has("Load(<data", "Load(<index", "Load(<snapshot", "ciphertext verification failed", "does not match id", "not found in"):
		return permanent("the repository is damaged: %s. Repair the store, or empty it so that the next backup creates a new repository", findings(output))
	}
	return fmt.Errorf("restic %s: %w: %s", command, cause, output)
}

// unansweredTexts are messages of restic about a store that could be reached before and cannot be reached now. Such a store is not damaged.
var unansweredTexts = []string{
	"connection refused", "connection reset by peer", "broken pipe", "i/o timeout", "TLS handshake timeout", "no such host", "no route to host",
	"network is unreachable", "unexpected HTTP response (5",
}

// findings returns the lines of restic that name the error, without its progress and its retries.
func findings(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		isError := strings.HasPrefix(line, "error") || strings.HasPrefix(line, "pack ") || strings.HasPrefix(line, "Fatal: ") || strings.HasPrefix(line, "ReadFull(") ||
			strings.HasPrefix(line, "ignoring error for ")
		if isError && len(lines) < findingsMax {
			lines = append(lines, line)
		}
	}
	text := strings.Join(lines, "; ")
	if text == "" {
		text = output
	}
	return strings.ToValidUTF8(text[:min(len(text), findingsBytesMax)], "")
}

const (
	findingsMax      = 4
	findingsBytesMax = 300
)

// open removes stale locks. If isMade is set, it creates the repository if there is none.
func (repository *Repository) open(ctx context.Context, isMade bool) (isNew bool, err error) {
	if err := repository.readSecrets(); err != nil {
		return false, err
	}
	if err := repository.reach(ctx); err != nil {
		return false, err
	}
	err = repository.unlock(ctx)
	if isMade && isKind(err, failureMissing) {
		_, err = repository.run(ctx, "", "init")
		return err == nil, err
	}
	if isKind(err, failureMissing) {
		err = permanent("there is no repository yet; make a backup first")
	}
	return false, err
}

// lock of a repository, in restic's format.
type lock struct {
	Hostname    string
	PID         int
	IsExclusive bool `json:"exclusive"`
	Time        time.Time
}

// unlockAttempts bounds the attempts to remove a lock whose process ID happens to be that of `restic unlock` itself.
const unlockAttempts = 5

// unlock removes locks of this host whose processes have ended, and locks that were not refreshed for 30 minutes. The pods that save an app of a
// cluster share one host name, and never run at the same time. So a lock with that host name belongs to a pod that is gone.
func (repository *Repository) unlock(ctx context.Context) error {
	for range unlockAttempts {
		locks, err := repository.locks(ctx)
		if err != nil || len(locks) == 0 {
			return err
		}
		if _, err := repository.run(ctx, "", "unlock"); err != nil || !hasOwn(locks) {
			return err
		}
	}
	return nil
}

func hasOwn(locks []lock) bool {
	name, err := os.Hostname()
	for _, lock := range locks {
		if err == nil && lock.Hostname == name {
			return true
		}
	}
	return false
}

func (repository *Repository) locks(ctx context.Context) ([]lock, error) {
	names, err := repository.run(ctx, "", "list", "locks", "--no-lock")
	if err != nil {
		return nil, err
	}
	var found []lock
	for _, name := range strings.Fields(string(names)) {
		text, err := repository.run(ctx, "", "cat", "lock", name, "--no-lock")
		if err != nil {
			// Its owner has removed it in the meantime.
			continue
		}
		var read lock
		if err := json.Unmarshal(text, &read); err != nil {
			return nil, fmt.Errorf("reading a lock: %w", err)
		}
		found = append(found, read)
	}
	return found, nil
}

const lockPause = 5 * time.Second

// runWhenUnlocked waits for locks of other hosts. It removes locks that become stale.
func (repository *Repository) runWhenUnlocked(ctx context.Context, folder string, arguments ...string) (out []byte, err error) {
	err = repository.whenUnlocked(ctx, func() error {
		out, err = repository.run(ctx, folder, arguments...)
		return err
	})
	return out, err
}

func (repository *Repository) whenUnlocked(ctx context.Context, run func() error) error {
	deadline := time.Now().Add(repository.LockWait)
	for {
		err := run()
		if !isKind(err, failureLocked) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w. Restic treats a lock as stale 30 minutes after its last refresh; if the process that holds the lock is gone, `restic unlock --remove-all` removes the lock at once", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(lockPause, repository.LockWait)):
		}
		if err := repository.unlock(ctx); err != nil {
			return err
		}
	}
}

func (repository *Repository) snapshots(ctx context.Context) ([]Snapshot, error) {
	text, err := repository.runWhenUnlocked(ctx, "", "snapshots", "--json", "--host", repository.Host, "--tag", tag)
	if err != nil {
		return nil, err
	}
	var found []Snapshot
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, fmt.Errorf("reading the list of snapshots: %w", err)
	}
	return found, nil
}

// find returns the snapshot with a name: `latest`, or the prefix of an identifier. `latest` is a snapshot of another owner only if there is none
// of this owner.
func (repository *Repository) find(ctx context.Context, name string) (Snapshot, error) {
	snapshots, err := repository.snapshots(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	if own := repository.own(snapshots); name == "latest" && len(own) > 0 {
		snapshots = own
	}
	return repository.choose(snapshots, name)
}

// findOwn returns the newest snapshot of the owner.
func (repository *Repository) findOwn(ctx context.Context) (Snapshot, error) {
	snapshots, err := repository.snapshots(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	own := repository.own(snapshots)
	if len(own) == 0 && len(snapshots) > 0 {
		return Snapshot{}, fmt.Errorf("all %d snapshots of %s belong to another cluster or to a deleted App; make a backup first", len(snapshots), repository.Host)
	}
	return repository.choose(own, "latest")
}

// ownerTag is on each snapshot of the owner.
func (repository *Repository) ownerTag() string { return "owner=" + repository.Owner }

func (repository *Repository) isOwn(snapshot Snapshot) bool {
	return repository.Owner == "" || slices.Contains(snapshot.Tags, repository.ownerTag())
}

// own returns the snapshots of the owner.
func (repository *Repository) own(snapshots []Snapshot) []Snapshot {
	return slices.DeleteFunc(slices.Clone(snapshots), func(snapshot Snapshot) bool { return !repository.isOwn(snapshot) })
}

func (repository *Repository) choose(snapshots []Snapshot, name string) (Snapshot, error) {
	var found []Snapshot
	for _, snapshot := range snapshots {
		isNewest := name == "latest" && (len(found) == 0 || snapshot.Time.After(found[0].Time))
		switch {
		case isNewest:
			found = []Snapshot{snapshot}
		case name != "latest" && strings.HasPrefix(snapshot.ID, name):
			found = append(found, snapshot)
		}
	}
	if len(found) != 1 {
		return Snapshot{}, permanent("%d snapshots of %s match %q; write latest, or one of %s", len(found), repository.Host, name, shortNames(snapshots))
	}
	return found[0], nil
}

func shortNames(snapshots []Snapshot) string {
	var names []string
	for _, snapshot := range snapshots {
		names = append(names, snapshot.Short()+" of "+snapshot.Time.UTC().Format(time.RFC3339))
	}
	if len(names) == 0 {
		return "none: there is no backup yet"
	}
	return strings.Join(names, ", ")
}

func (repository *Repository) manifest(ctx context.Context, snapshot Snapshot) (Manifest, error) {
	text, err := repository.runWhenUnlocked(ctx, "", "dump", snapshot.ID, "/"+ManifestFile)
	if err != nil {
		return Manifest{}, err
	}
	var manifest Manifest
	if err := json.Unmarshal(text, &manifest); err != nil {
		return Manifest{}, fmt.Errorf("reading the manifest of snapshot %s: %w", snapshot.Short(), err)
	}
	return manifest, nil
}
