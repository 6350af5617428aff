package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dunlin-project/dunlin/platform/ports"
)

const sftpServer = "/usr/lib/openssh/sftp-server"

// A lock is removed if its process is gone, and kept if its process lives.
func TestLocks(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	site.must(site.save(Keep{}))
	kill := site.lock("restic")
	site.fails(site.verify())("the repository is locked", "restic unlock --remove-all")
	if len(site.locks()) == 0 {
		t.Fatal("the lock of a process that lives was removed")
	}
	kill()
	if len(site.locks()) == 0 {
		t.Fatal("restic has removed its lock, so the test shows nothing")
	}
	site.must(site.verify())
	site.lock("restic")()
	site.must(site.save(Keep{}))
	if locks := site.locks(); len(locks) > 0 {
		t.Errorf("%q are left", locks)
	}
}

// A lock of another host may be in use. A run that waits for it continues when it is gone.
func TestALockOfAnotherHost(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	if os.Getuid() != 0 {
		t.Skip("only root can have another host name")
	}
	site.must(site.save(Keep{}))
	site.lock("unshare", "--uts", "--", "sh", "-c", `hostname other && exec restic "$@"`, "restic")()
	site.fails(site.verify())("the repository is locked", "by PID")
	if len(site.locks()) != 1 {
		t.Fatalf("%q", site.locks())
	}
	site.repository.LockWait = waitMax
	ended := make(chan error, 1)
	go func() {
		_, err := site.verify()
		ended <- err
	}()
	if err := os.Remove(site.locks()[0]); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestADamagedRepository(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(file string, size int64) error{
		"a truncated pack": func(file string, size int64) error { return os.Truncate(file, size/2) },
		"a missing pack":   func(file string, _ int64) error { return os.Remove(file) },
		"another byte": func(file string, size int64) error {
			open, err := os.OpenFile(file, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer open.Close()
			_, err = open.WriteAt([]byte("another"), size/2)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := newSite(t)
			site.must(site.save(Keep{}))
			site.must(site.restore(RestoreOptions{}))
			pack := site.largestPack()
			info, err := os.Stat(pack)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(pack, info.Size()); err != nil {
				t.Fatal(err)
			}
			site.fails(site.verify())("the repository is damaged")
			if name != "another byte" {
				return // restic tries for minutes to read a pack that is cut or missing
			}
			// The content that a restore was to replace is unchanged.
			site.refuses(site.restore(RestoreOptions{Replace: true}))("damaged")
			site.equals(filepath.Join(site.root, "volumes"), filepath.Join(site.into, "volumes"))
		})
	}
}

// A restore is refused if each retry would fail in the same way. Otherwise, it is retried.
func TestRestoresThatNeverSucceed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		damage   func(*site) error
		sentence string
	}{
		"a wrong key": {func(s *site) error {
			return os.WriteFile(filepath.Join(s.repository.Secrets, KeyPassword), []byte("other"), 0o600)
		}, "is not the password"},
		"no key":       {func(s *site) error { return os.Remove(filepath.Join(s.repository.Secrets, KeyPassword)) }, "there is no RESTIC_PASSWORD"},
		"no store":     {func(s *site) error { return os.RemoveAll(s.repository.URL) }, "there is no repository yet"},
		"no index":     {func(s *site) error { return emptyFolder(filepath.Join(s.repository.URL, "index")) }, "the repository is damaged"},
		"no snapshots": {func(s *site) error { return emptyFolder(filepath.Join(s.repository.URL, "snapshots")) }, "there is no backup yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := newSite(t)
			site.must(site.save(Keep{}))
			if err := row.damage(site); err != nil {
				t.Fatal(err)
			}
			site.repository.secrets = nil
			site.refuses(site.restore(RestoreOptions{Replace: true}))(row.sentence)
		})
	}
}

func emptyFolder(folder string) error {
	return errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o700))
}

// The texts are from restic 0.14, which retries reading a missing pack for 44 s, and prints one line for each affected file.
func TestAPackIsMissingOrItsStoreIsDown(t *testing.T) {
	t.Parallel()
	repository := &Repository{secrets: &secrets{}}
	load := "Load(<data/296c6cb205>, 3000200, 0) returned error, retrying after 552.330144ms: "
	explain := func(command, cause string) *UnchangedError {
		output := load + cause + "\n" + strings.Repeat("ignoring error for /volumes/data/file: StreamPack: "+cause+"\n", 100) + "Fatal: There were 100 errors\n"
		return &UnchangedError{fmt.Errorf("restoring: %w", repository.explain(command, errors.New("exit status 1"), output))}
	}
	missing := "open /repository/data/29/296c6cb20515f38c: no such file or directory"
	for _, cause := range []string{missing, "ReadFull: unexpected EOF", "<data/296c6cb205> does not exist"} {
		if err := explain("restore", cause); err.ExitCode() != ExitRefused || !strings.Contains(err.Error(), "the repository is damaged") {
			t.Errorf("%s: exit code %d: %s", cause, err.ExitCode(), err)
		}
	}
	for _, cause := range []string{"dial tcp 10.0.0.7:8000: connect: connection refused", "unexpected HTTP response (503): 503 Service Unavailable"} {
		for _, command := range []string{"restore", "check"} {
			// The message must not suggest emptying the store, because that would delete the backups.
			if err := explain(command, cause); err.ExitCode() != ExitUnchanged || !strings.Contains(err.Error(), "did not answer") || !strings.Contains(err.Error(), cause) || strings.Contains(err.Error(), "empty it") {
				t.Errorf("%s: exit code %d: %s", cause, err.ExitCode(), err)
			}
		}
	}
}

func TestStoresThatDoNotServe(t *testing.T) {
	t.Parallel()
	closed := fmt.Sprint("127.0.0.1:", ports.One(t))
	site := newSite(t)
	working := *site.repository
	site.fails(site.verify())("there is no backup yet")
	site.must(site.save(Keep{}))
	for name, row := range map[string]struct {
		change   func(*Repository)
		sentence string
		// drill is the message of a drill and a restore, if it differs.
		drill string
	}{
		"down, rest": {func(r *Repository) { r.URL = "rest:http://" + closed + "/shop" }, "the store of the repository does not answer: dial tcp " + closed, ""},
		"down, s3":   {func(r *Repository) { r.URL = "s3:http://" + closed + "/bucket" }, "the store of the repository does not answer", ""},
		"down, sftp": {func(r *Repository) { r.URL = "sftp://backup@" + closed + "/srv" }, "the store of the repository does not answer", ""},
		"a wrong key": {func(r *Repository) {
			r.Secrets = t.TempDir()
			site.write(filepath.Join(r.Secrets, KeyPassword), "other")
		}, "RESTIC_PASSWORD is not the password of the repository", ""},
		"no key":                            {func(r *Repository) { r.Secrets = t.TempDir() }, "there is no RESTIC_PASSWORD", ""},
		"no address":                        {func(r *Repository) { r.URL = "" }, "the repository has no address", ""},
		"a store that cannot be written to": {func(r *Repository) { r.URL = "/proc/none" }, "restic init", "there is no repository yet; make a backup first"},
	} {
		changed := working
		changed.secrets = nil
		row.change(&changed)
		site.repository = &changed
		t.Run(name, func(t *testing.T) {
			site.fails(site.save(Keep{}))(row.sentence)
			drill := cmp.Or(row.drill, row.sentence)
			site.fails(site.verify())(drill)
			report, err := site.restore(RestoreOptions{})
			site.fails(report, err)(drill)
			var failed *UnchangedError
			if isDown := strings.HasPrefix(name, "down"); !errors.As(err, &failed) || (failed.ExitCode() == ExitUnchanged) != isDown {
				t.Errorf("%v: a restore is tried again while the store is down, and only then", err)
			}
		})
	}
	site.repository = &working
	site.must(site.verify())
}

// A second machine is reached by SFTP: OpenSSH's SFTP server runs at the other end, without SSH in between.
func TestSFTP(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	if _, err := os.Stat(sftpServer); err != nil {
		t.Skip("openssh-sftp-server is not installed; `scripts/need restic` installs it")
	}
	site.repository.Options = []string{"sftp.command=" + sftpServer}
	site.repository.URL = "sftp:backup@second:" + site.repository.URL
	site.must(site.save(Keep{}))
	site.must(site.verify())
}

// The image has restic and no ssh.
func TestSFTPWithoutSSH(t *testing.T) {
	site := newSite(t)
	program, err := exec.LookPath("restic")
	if err != nil {
		t.Fatal(err)
	}
	site.repository.Program, site.repository.URL = program, "sftp:backup@second:/srv"
	t.Setenv("PATH", t.TempDir())
	site.fails(site.save(Keep{}))("restic needs the program ssh for sftp:, and it is not installed; set the repository to rest:, s3: or a claim")
}

// A process that is stopped leaves no lock.
func TestAnInterruptedBackup(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	site.must(site.save(Keep{}))
	slow := filepath.Join(t.TempDir(), "restic")
	// Restic waits for its input, like a backup that takes long.
	site.write(slow, "#!/bin/sh\nif [ \"$1\" = backup ]; then mkfifo "+slow+".input; exec restic backup --stdin --no-cache <"+slow+".input; fi\nexec restic \"$@\"\n")
	if err := os.Chmod(slow, 0o755); err != nil {
		t.Fatal(err)
	}
	site.repository.Program = slow
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := Save(ctx, site.repository, site.root, folders, Keep{})
		ended <- err
	}()
	deadline := time.Now().Add(waitMax)
	for _, err := os.Stat(slow + ".input"); err != nil; _, err = os.Stat(slow + ".input") {
		if time.Now().After(deadline) {
			t.Fatal("restic has not started")
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	input, err := os.OpenFile(slow+".input", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	for len(site.locks()) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("restic has taken no lock")
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	// The input is larger than a pipe's buffer. Once restic reads it, restic holds its lock.
	if _, err := input.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	cancel()
	site.fails(Report{}, <-ended)("restic backup was stopped before it completed")
	if locks := site.locks(); len(locks) > 0 {
		t.Errorf("%q are left", locks)
	}
}
