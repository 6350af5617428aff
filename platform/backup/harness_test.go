package backup

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	password = "c4n4ry-restic-password"
	// waitMax is long, for a busy machine.
	waitMax = time.Minute
)

// site has folders with files, and a repository in a folder.
type site struct {
	t          *testing.T
	root, into string
	repository *Repository
	log        bytes.Buffer
}

var folders = []string{"volumes/data", "volumes/logs"}

func newSite(t *testing.T) *site {
	t.Helper()
	if _, err := exec.LookPath("restic"); err != nil {
		t.Skip("restic is not installed; `scripts/need restic` installs it")
	}
	site := &site{t: t, root: t.TempDir(), into: t.TempDir()}
	site.repository = &Repository{URL: filepath.Join(t.TempDir(), "repository"), Secrets: t.TempDir(), Host: "web/shop", Log: &site.log}
	site.write(filepath.Join(site.repository.Secrets, KeyPassword), password)
	site.initialize()
	site.fill(site.root, 1)
	t.Cleanup(func() {
		if strings.Contains(site.log.String(), password) {
			t.Error("the password is in the log")
		}
	})
	return site
}

// PGPASSWORD is set for the whole package, because t.Setenv forbids parallel tests.
func TestMain(m *testing.M) {
	os.Setenv("PGPASSWORD", databasePassword)
	os.Exit(m.Run())
}

// initialize copies an empty repository. Its key is that of a `restic init`, encrypted again with scrypt's parameter N=2 instead of 32768. This
// saves half a second of CPU time for each call of restic. The tests call restic hundreds of times.
func (site *site) initialize() {
	site.t.Helper()
	err := os.CopyFS(site.repository.URL, os.DirFS("testdata/repository"))
	for _, folder := range []string{"data", "index", "locks", "snapshots"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(site.repository.URL, folder), 0o700))
	}
	if err != nil {
		site.t.Fatal(err)
	}
}

func (site *site) write(path, text string) {
	site.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		site.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		site.t.Fatal(err)
	}
}

// fill writes files of many sizes, an empty folder, a link, and names that need quoting.
func (site *site) fill(root string, seed uint64) {
	site.t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	for index, size := range []int{0, 1, 4096, 3 << 20} {
		content := make([]byte, size)
		for at := range content {
			content[at] = byte(random.Uint32())
		}
		site.write(filepath.Join(root, "volumes/data/tables", "file "+strings.Repeat("ä", 1+index)), string(content))
	}
	site.write(filepath.Join(root, "volumes/data/lost+found/x"), "the file system's")
	site.write(filepath.Join(root, "volumes/logs/-o \"quoted\"\nline"), "log")
	if err := os.MkdirAll(filepath.Join(root, "volumes/data/empty"), 0o700); err != nil {
		site.t.Fatal(err)
	}
	if err := os.Symlink("tables", filepath.Join(root, "volumes/data/link")); err != nil {
		site.t.Fatal(err)
	}
}

// must returns the report of a call that must succeed.
func (site *site) must(report Report, err error) Report {
	site.t.Helper()
	if err != nil {
		site.t.Fatal(err)
	}
	return report
}

// fails takes the results of a call that must fail, and returns a function that checks its error message.
func (site *site) fails(report Report, err error) func(sentences ...string) {
	return func(sentences ...string) {
		site.t.Helper()
		if err == nil {
			site.t.Fatalf("it succeeded: %+v", report)
		}
		for _, sentence := range sentences {
			if !strings.Contains(err.Error(), sentence) {
				site.t.Errorf("%q lacks %q", err, sentence)
			}
		}
		if strings.Contains(err.Error(), password) {
			site.t.Errorf("the password is in the error: %s", err)
		}
	}
}

// refuses is fails for a restore that is not retried.
func (site *site) refuses(report Report, err error) func(sentences ...string) {
	site.t.Helper()
	var refused *UnchangedError
	if !errors.As(err, &refused) || refused.ExitCode() != ExitRefused {
		site.t.Errorf("it is tried again: %v", err)
	}
	return site.fails(report, err)
}

func (site *site) save(keep Keep) (Report, error) {
	return Save(site.t.Context(), site.repository, site.root, folders, keep)
}

// verify restores into a new empty folder.
func (site *site) verify() (Report, error) {
	return Verify(site.t.Context(), site.repository, site.t.TempDir(), 100)
}

func (site *site) restore(options RestoreOptions) (Report, error) {
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(site.into, folder), 0o755); err != nil {
			site.t.Fatal(err)
		}
	}
	if options.Snapshot == "" {
		options.Snapshot = "latest"
	}
	return Restore(site.t.Context(), site.repository, site.into, folders, options)
}

// equals compares two trees with a program that is independent of this package.
func (site *site) equals(a, b string) {
	site.t.Helper()
	out, err := exec.Command("diff", "--recursive", "--no-dereference", "--exclude=lost+found", a, b).CombinedOutput()
	if err != nil {
		site.t.Errorf("%v: %s", err, out)
	}
}

// lock makes restic hold a lock until the returned function kills it. Restic waits for its input until then.
func (site *site) lock(program string, arguments ...string) (kill func()) {
	site.t.Helper()
	arguments = append(arguments, "backup", "--stdin", "--no-cache", "--repo", site.repository.URL)
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "RESTIC_PASSWORD_FILE="+filepath.Join(site.repository.Secrets, KeyPassword))
	input, err := command.StdinPipe()
	if err != nil {
		site.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		site.t.Fatal(err)
	}
	kill = func() {
		command.Process.Kill() //nolint:errcheck // it may have ended
		command.Wait()         //nolint:errcheck // it was killed
	}
	site.t.Cleanup(kill)
	go io.WriteString(input, "content without an end") //nolint:errcheck // the pipe breaks at the end
	for deadline := time.Now().Add(waitMax); len(site.locks()) == 0; {
		if time.Now().After(deadline) {
			site.t.Fatal("restic has taken no lock")
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	return kill
}

func (site *site) locks() []string {
	found, err := filepath.Glob(filepath.Join(site.repository.URL, "locks", "*"))
	if err != nil {
		site.t.Fatal(err)
	}
	return slices.DeleteFunc(found, func(name string) bool { return strings.Contains(name, "-tmp-") })
}

// packs returns the files of the repository that contain data, the largest first.
func (site *site) largestPack() string {
	site.t.Helper()
	files, err := filepath.Glob(filepath.Join(site.repository.URL, "data", "*", "*"))
	if err != nil || len(files) == 0 {
		site.t.Fatal(err, files)
	}
	largest, size := "", int64(-1)
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			site.t.Fatal(err)
		}
		if info.Size() > size {
			largest, size = file, info.Size()
		}
	}
	if err := os.Chmod(largest, 0o600); err != nil {
		site.t.Fatal(err)
	}
	return largest
}
