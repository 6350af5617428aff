package backup

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dunlin-project/dunlin/platform/ports"
)

const (
	databasePassword = "c4n4ry-database-password"
	// rowsText is the dump of all rows, in their order, as one checksum.
	rowsText = "SELECT count(*), md5(string_agg(t::text, E'\\n' ORDER BY id)) FROM tickers t"
)

// portsMax is the number of ports that a database tries.
const portsMax = 10

// database is a PostgreSQL server with one superuser, who has a password.
type database struct {
	*site
	programs, folder string
	port             int
	server           *exec.Cmd
}

// asServer makes a command run as the user postgres if the tests run as root, because PostgreSQL refuses to run as root.
func asServer(t *testing.T, command *exec.Cmd) *exec.Cmd {
	t.Helper()
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		found, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		id, _ := strconv.Atoi(found.Uid) //nolint:errcheck // a number
		group, _ := strconv.Atoi(found.Gid)
		command.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(id), Gid: uint32(group)}
	}
	command.Dir = "/"
	return command
}

// newDatabase starts a server without data.
func newDatabase(site *site) *database {
	t := site.t
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		t.Skip("PostgreSQL is not installed; `scripts/need postgresql` installs it")
	}
	// Not below t.TempDir, which only root can enter.
	folder, err := os.MkdirTemp("", "roost-postgresql")
	if err != nil {
		t.Fatal(err)
	}
	database := &database{site: site, programs: filepath.Dir(found[0]), folder: folder}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(folder, "password")
	site.write(password, databasePassword)
	if err := os.Chmod(password, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := asServer(t, exec.Command(found[0], "--pgdata="+database.data(), "--username=shop", "--pwfile="+password,
		"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync")).CombinedOutput()
	if err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	database.start()
	return database
}

func (database *database) data() string { return filepath.Join(database.folder, "data") }

// start tries ports until the server answers: another process may take a free port first.
func (database *database) start() {
	t := database.t
	t.Helper()
	for range portsMax {
		database.port = ports.One(t)
		var log bytes.Buffer
		server := asServer(t, exec.Command(filepath.Join(database.programs, "postgres"), "-D", database.data(), "-F",
			"-c", "listen_addresses=127.0.0.1", "-c", fmt.Sprint("port=", database.port), "-c", "unix_socket_directories="))
		server.Stdout, server.Stderr = &log, &log
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			server.Wait() //nolint:errcheck // it is killed
			close(ended)
		}()
		database.server = server
		t.Cleanup(database.kill)
		if database.answers(ended) {
			return
		}
		<-ended
		if !strings.Contains(log.String(), "could not bind") {
			t.Fatalf("PostgreSQL has ended: %s", &log)
		}
	}
	t.Fatalf("%d ports were taken", portsMax)
}

func (database *database) answers(ended <-chan struct{}) bool {
	for deadline := time.After(waitMax); ; {
		if _, err := database.psql("SELECT 1"); err == nil {
			return true
		}
		select {
		case <-ended:
			return false
		case <-deadline:
			database.t.Fatal("PostgreSQL does not answer")
		case <-time.After(20 * time.Millisecond): // between two looks
		}
	}
}

// kill kills the server and its children, like a power failure.
func (database *database) kill() { database.server.Process.Kill() } //nolint:errcheck // it may have ended

func (database *database) lose() {
	database.kill()
	if err := os.RemoveAll(database.data()); err != nil {
		database.t.Fatal(err)
	}
}

func (database *database) psql(query string) (string, error) {
	out, err := exec.Command("psql", append(database.flags(), "--no-psqlrc", "--tuples-only", "--no-align", "--command="+query, "postgres")...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (database *database) flags() []string {
	return []string{"--host=127.0.0.1", fmt.Sprint("--port=", database.port), "--username=shop"}
}

func (database *database) query(query string) string {
	database.t.Helper()
	out, err := database.psql(query)
	if err != nil {
		database.t.Fatal(err, out)
	}
	return out
}

// restoreCommand is that of docs/backups.md.
func (database *database) restoreCommand() []string {
	return append([]string{"pg_restore"}, append(database.flags(), "--exit-on-error", "--single-transaction", "--clean", "--if-exists", "--dbname=postgres")...)
}

// dump does what spec.backup.command does.
func (database *database) dump(root string) {
	database.t.Helper()
	folder := filepath.Join(root, DumpFolder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		database.t.Fatal(err)
	}
	arguments := append(database.flags(), "--format=custom", "--file="+filepath.Join(folder, "shop"), "postgres")
	if out, err := exec.Command("pg_dump", arguments...).CombinedOutput(); err != nil {
		database.t.Fatalf("pg_dump: %v: %s", err, out)
	}
}

// emptyRoot returns a root with an empty volume for the dump.
func (site *site) emptyRoot() string {
	site.t.Helper()
	root := site.t.TempDir()
	if err := os.Mkdir(filepath.Join(root, DumpFolder), 0o755); err != nil {
		site.t.Fatal(err)
	}
	return root
}

// TestADatabase saves a dump of PostgreSQL, verifies it by loading it into a server without data, loses the database, and restores it: all rows
// have the previous checksum. A failed restore leaves the rows unchanged.
func TestADatabase(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	live := newDatabase(site)
	live.query("CREATE TABLE tickers (id int PRIMARY KEY, name text NOT NULL, price numeric, raw bytea); " +
		"INSERT INTO tickers SELECT n, 'ticker ' || n || E' ä\\n', n / 7.0, decode(md5(n::text), 'hex') FROM generate_series(1, 20000) n; " +
		"CREATE VIEW dear AS SELECT * FROM tickers WHERE price > 100; CREATE SEQUENCE orders START 4711")
	before := live.query(rowsText)
	root := t.TempDir()
	live.dump(root)
	saved := site.must(SaveDump(t.Context(), site.repository, root, []string{DumpFolder}, Keep{Daily: 7}))

	scratch, staging := newDatabase(site), site.emptyRoot()
	staged := site.must(VerifyDump(t.Context(), site.repository, staging, 100))
	if staged.IsLoaded || staged.Files != 1 {
		t.Errorf("%+v", staged)
	}
	verified := site.must(LoadDump(t.Context(), staging, scratch.restoreCommand(), &site.log))
	if !verified.IsLoaded || verified.Kind != KindVerify || verified.Snapshot != saved.Snapshot {
		t.Errorf("%+v of %+v", verified, saved)
	}
	if rows := scratch.query(rowsText); rows != before {
		t.Errorf("%s instead of %s", rows, before)
	}

	live.query("UPDATE tickers SET price = 0; CREATE TABLE later (id int)")
	changed := live.query(rowsText)
	staging = site.emptyRoot()
	site.must(StageDump(t.Context(), site.repository, staging, RestoreOptions{Snapshot: "latest"}))
	site.fails(LoadDump(t.Context(), staging, append(live.restoreCommand(), "--role=nobody"), &site.log))(
		"spec.backup.restoreCommand failed: exit status 1: pg_restore: error: ", `role "nobody" does not exist`)
	if rows := live.query(rowsText); rows != changed {
		t.Errorf("after a restore that has failed: %s instead of %s", rows, changed)
	}

	live.lose()
	live = newDatabase(site)
	restored := site.must(LoadDump(t.Context(), staging, live.restoreCommand(), &site.log))
	if !restored.IsLoaded || restored.Kind != KindRestore || restored.Snapshot != saved.Snapshot {
		t.Errorf("%+v of %+v", restored, saved)
	}
	if rows, count, next := live.query(rowsText), live.query("SELECT count(*) FROM dear"), live.query("SELECT nextval('orders')"); rows != before || count != "19300" || next != "4711" {
		t.Errorf("%s instead of %s; %s in the view; the sequence is at %s", rows, before, count, next)
	}
	// Restore the same rows again: the command replaces the existing rows.
	live.query("UPDATE tickers SET price = 0")
	site.must(LoadDump(t.Context(), staging, live.restoreCommand(), &site.log))
	if rows := live.query(rowsText); rows != before {
		t.Errorf("%s instead of %s", rows, before)
	}
	if strings.Contains(site.log.String(), databasePassword) {
		t.Error("the password of the database is in the log")
	}
}

// TestDumpsThatAreRefused tests dumps and commands with which nothing is restored.
func TestDumpsThatAreRefused(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	for _, row := range []struct {
		name, sentence string
		files          map[string]string
	}{
		{"none", "the dump has 0 files", nil},
		{"two", "the dump has 2 files, and spec.backup.restoreCommand reads one", map[string]string{"a": "1", "b/c": "2"}},
		{"an empty one", "the dump shop is empty", map[string]string{"shop": ""}},
	} {
		root := site.emptyRoot()
		for name, text := range row.files {
			site.write(filepath.Join(root, DumpFolder, name), text)
		}
		site.fails(SaveDump(t.Context(), site.repository, root, []string{DumpFolder}, Keep{}))(row.sentence)
	}
	root := site.emptyRoot()
	// Random data is not compressed, so its pack is the largest: restic retries reading a truncated pack of folders for a long time.
	rows := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(rows) //nolint:errcheck // it never fails
	site.write(filepath.Join(root, DumpFolder, "shop"), string(rows))
	site.write(filepath.Join(root, DumpFolder, "lost+found/x"), "the file system's")
	saved := site.must(SaveDump(t.Context(), site.repository, root, []string{DumpFolder}, Keep{Daily: 7}))
	site.fails(LoadDump(t.Context(), t.TempDir(), []string{"cat"}, &site.log))("there is no restored dump")
	staging := site.emptyRoot()
	site.must(StageDump(t.Context(), site.repository, staging, RestoreOptions{Snapshot: saved.Snapshot}))
	site.fails(LoadDump(t.Context(), staging, []string{"true"}, &site.log))("did not read the dump")
	site.fails(LoadDump(t.Context(), staging, []string{"no-such-program"}, &site.log))("spec.backup.restoreCommand failed", "not found")
	site.fails(LoadDump(t.Context(), staging, []string{"sh", "-c", "cat; echo the last words >&2; exit 7"}, &site.log))("exit status 7: ", "the last words")
	loaded := filepath.Join(t.TempDir(), "loaded")
	site.must(LoadDump(t.Context(), staging, []string{"sh", "-c", "cat > " + loaded}, &site.log))
	site.equals(loaded, filepath.Join(root, DumpFolder, "shop"))

	var unchanged *UnchangedError
	pack := site.largestPack()
	if err := os.Truncate(pack, 50); err != nil {
		t.Fatal(err)
	}
	site.fails(VerifyDump(t.Context(), site.repository, site.emptyRoot(), 100))("the repository is damaged", "unexpected file size: got 50")
	site.repository.URL += "-none"
	if _, err := StageDump(t.Context(), site.repository, site.emptyRoot(), RestoreOptions{Snapshot: "latest"}); !errors.As(err, &unchanged) {
		t.Errorf("no repository: %v", err)
	}
}
