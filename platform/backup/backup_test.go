package backup

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const sftpServer = "/usr/lib/openssh/sftp-server"

func TestABackupIsRestoredWithTheSameBytes(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	if err := os.RemoveAll(site.repository.URL); err != nil {
		t.Fatal(err)
	}
	site.fails(site.verify())("there is no repository yet; make a backup first")
	saved := site.must(site.save(Keep{}))
	if !saved.IsNew || saved.Files != 5 || saved.Bytes != 3<<20+4096+1+3 || saved.Snapshot == "" {
		t.Errorf("%+v", saved)
	}
	verified := site.must(site.verify())
	if verified.Snapshot != saved.Snapshot || !verified.Taken.Equal(saved.Taken) || verified.Files != 5 || verified.Bytes != saved.Bytes || verified.Changed != 0 {
		t.Errorf("%+v", verified)
	}
	restored := site.must(site.restore(RestoreOptions{}))
	if restored.Files != 5 || restored.Snapshot != saved.Snapshot {
		t.Errorf("%+v", restored)
	}
	site.equals(filepath.Join(site.root, "volumes"), filepath.Join(site.into, "volumes"))

	// The next state, and back to the first one by its name.
	site.write(filepath.Join(site.root, "volumes/data/new"), "new")
	second := site.must(site.save(Keep{Daily: 2}))
	if second.IsNew || second.Files != 6 {
		t.Errorf("%+v", second)
	}
	site.fails(site.restore(RestoreOptions{Snapshot: saved.Snapshot, Replace: true}))("0 snapshots of web/shop are named \"" + saved.Snapshot)
	site.must(site.restore(RestoreOptions{Replace: true}))
	site.equals(filepath.Join(site.root, "volumes"), filepath.Join(site.into, "volumes"))
}

// A lock whose process is gone is removed. One whose process lives is not.
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

// A lock of another host may be in use. Whoever waits for it goes on when it is gone.
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
			// What a restore was to replace is as it was.
			site.fails(site.restore(RestoreOptions{Replace: true}))("damaged")
			site.equals(filepath.Join(site.root, "volumes"), filepath.Join(site.into, "volumes"))
		})
	}
}

// The restore compares even where the check of the repository has read nothing of the damage.
func TestWhatDiffersIsFound(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	saved := site.must(site.save(Keep{}))
	snapshot, err := site.repository.find(t.Context(), saved.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	if err := site.repository.restore(t.Context(), snapshot, into); err != nil {
		t.Fatal(err)
	}
	manifest, err := readManifest(into)
	if err != nil {
		t.Fatal(err)
	}
	name := "volumes/logs/-o \"quoted\"\nline"
	entry := manifest.Entries[name]
	entry.SHA256 = strings.Repeat("0", 64)
	manifest.Entries[name] = entry
	manifest.Entries["volumes/data/tables/gone"] = Entry{}
	_, err = site.repository.compare(t.Context(), snapshot, manifest, into)
	site.fails(Report{}, err)("1 of ", "restored entries differ", "other content")
}

func TestStoresThatDoNotServe(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	site := newSite(t)
	working := *site.repository
	site.fails(site.verify())("there is no backup yet")
	site.must(site.save(Keep{}))
	for name, row := range map[string]struct {
		change   func(*Repository)
		sentence string
		// drill is the sentence of a drill and a restore, where it is another one.
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
			site.fails(site.restore(RestoreOptions{}))(drill)
		})
	}
	site.repository = &working
	site.must(site.verify())
}

// A second machine is reached by SFTP: the server of OpenSSH stands at the other end, without SSH between.
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

func TestAFolderThatIsNotEmpty(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	site.must(site.save(Keep{}))
	own := filepath.Join(site.into, "volumes/logs/own")
	site.write(own, "own")
	site.fails(site.restore(RestoreOptions{}))("volumes/logs is not empty; repeat with --replace")
	if report := site.must(site.restore(RestoreOptions{OnlyIfEmpty: true})); !report.Skipped {
		t.Errorf("%+v", report)
	}
	if names, err := ownNames(filepath.Join(site.into, "volumes/data")); err != nil || len(names) > 0 {
		t.Errorf("%q, %v", names, err)
	}
	site.must(site.restore(RestoreOptions{Replace: true}))
	if _, err := os.Lstat(own); !os.IsNotExist(err) {
		t.Error("what was there is still there")
	}
	site.equals(filepath.Join(site.root, "volumes"), filepath.Join(site.into, "volumes"))
	_, err := Verify(t.Context(), site.repository, site.into, 1)
	site.fails(Report{}, err)("is not empty; name an empty folder")
}

func TestABackupOfNothing(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	site.root = t.TempDir()
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(site.root, folder, "empty"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	site.fails(site.save(Keep{}))("volumes/data, volumes/logs hold no file; a backup of nothing is not kept")
}

// A process that is ended leaves no lock.
func TestAnInterruptedBackup(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	site.must(site.save(Keep{}))
	slow := filepath.Join(t.TempDir(), "restic")
	// It waits for its input in place of a backup that takes long.
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
	// More than a pipe takes: restic reads, so it knows of its lock.
	if _, err := input.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	cancel()
	site.fails(Report{}, <-ended)("ended before restic backup was done")
	if locks := site.locks(); len(locks) > 0 {
		t.Errorf("%q are left", locks)
	}
}

func TestCompare(t *testing.T) {
	when := time.Unix(1_700_000_000, 0).UTC()
	file := Entry{Mode: 0o640, Size: 3, Modified: when, SHA256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
	for _, row := range []struct {
		name                string
		entry               Entry
		listed              *saved
		content             string
		compared, changed   int
		difference, verdict string
		isEnough            bool
	}{
		{"the same", file, &saved{3, when}, "abc", 1, 0, "", "", true},
		{"other content", file, &saved{3, when}, "abd", 0, 0, "other content", "1 of 1 restored entries differ", false},
		{"shorter", file, &saved{3, when}, "ab", 0, 0, "2 bytes instead of 3", "differ", false},
		{"missing", file, &saved{3, when}, "", 0, 0, "missing", "differ", false},
		{"changed while it was saved", file, &saved{3, when.Add(1)}, "abd", 0, 1, "", "", false},
		{"deleted while it was saved", file, nil, "", 0, 1, "", "", false},
		{"another mode", Entry{Mode: 0o600, Size: 3, Modified: when, SHA256: file.SHA256}, &saved{3, when}, "abc", 0, 0, "mode -rw-r----- instead of -rw-------", "differ", false},
		{"a folder instead of a file", Entry{Mode: fs.ModeDir | 0o755}, &saved{}, "abc", 0, 0, "mode", "differ", false},
	} {
		root := t.TempDir()
		if row.content != "" {
			if err := os.WriteFile(filepath.Join(root, "file"), []byte(row.content), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		listed := map[string]saved{}
		if row.listed != nil {
			listed["file"] = *row.listed
		}
		manifest := Manifest{Entries: map[string]Entry{"file": row.entry}}
		found, err := compare(manifest, listed, root)
		if err != nil || found.Files != row.compared || found.Changed != row.changed || !strings.Contains(strings.Join(found.Differences, " "), row.difference) {
			t.Errorf("%s: %+v, %v", row.name, found, err)
		}
		if verdict := fmt.Sprint(found.check(manifest)); !strings.Contains(verdict, row.verdict) || row.verdict == "" && verdict != "<nil>" {
			t.Errorf("%s: %s", row.name, verdict)
		}
		if err := found.checkShare(manifest); (err == nil) != row.isEnough {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// A drill counts only if enough was compared.
func TestTheShareThatIsCompared(t *testing.T) {
	for _, row := range []struct {
		sizes    []int64
		compared Comparison
		isEnough bool
	}{
		{nil, Comparison{}, false},
		{[]int64{5}, Comparison{Files: 1, Bytes: 5}, true},
		{[]int64{5, 5}, Comparison{Files: 1, Bytes: 5}, true},
		{[]int64{5, 6}, Comparison{Files: 1, Bytes: 5}, false},
		{[]int64{9, 1, 1}, Comparison{Files: 1, Bytes: 9}, false},
		{[]int64{9, 1, 1}, Comparison{Files: 2, Bytes: 2}, false},
		{[]int64{0}, Comparison{Files: 1}, true},
	} {
		manifest := Manifest{Entries: map[string]Entry{"folder": {Mode: fs.ModeDir}}}
		for index, size := range row.sizes {
			manifest.Entries[fmt.Sprint(index)] = Entry{Size: size}
		}
		if err := row.compared.checkShare(manifest); (err == nil) != row.isEnough || err != nil && !strings.Contains(err.Error(), "have spec.backup.command write a dump") {
			t.Errorf("%v, %+v: %v", row.sizes, row.compared, err)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for address, want := range map[string]string{
		"/srv/backups": "", "rest:https://user:pass@second.example.com/shop": "second.example.com:443", "rest:http://10.0.0.9:8000/": "10.0.0.9:8000",
		"sftp:backup@10.0.0.9:/srv": "10.0.0.9:22", "sftp://backup@10.0.0.9:2222//srv": "10.0.0.9:2222", "sftp://backup@second//srv": "second:22",
		"s3:s3.amazonaws.com/bucket": "s3.amazonaws.com:443", "s3:http://minio:9000/bucket": "minio:9000", "s3:https://minio/bucket": "minio:443",
	} {
		if found := Endpoint(address); found != want {
			t.Errorf("%s: %q, want %q", address, found, want)
		}
	}
}

func TestRetention(t *testing.T) {
	// 31 March 2026 is a Tuesday. Names are days before it, and the hour where it is not 3.
	day := func(days, hour int, name string) Snapshot {
		return Snapshot{ID: name, Time: time.Date(2026, 3, 31, hour, 0, 0, 0, time.UTC).AddDate(0, 0, -days)}
	}
	var year []Snapshot
	for days := range 365 {
		year = append(year, day(days, 3, fmt.Sprint(days)))
	}
	for _, row := range []struct {
		name      string
		snapshots []Snapshot
		keep      Keep
		left      string
	}{
		{"nothing", nil, Keep{Daily: 7, Weekly: 4, Monthly: 6}, ""},
		{"the newest is kept", []Snapshot{day(3, 3, "3"), day(0, 3, "0"), day(1, 3, "1")}, Keep{}, "0"},
		{"the newer of one day", []Snapshot{day(0, 3, "0"), day(0, 4, "0 at 4"), day(1, 4, "1 at 4"), day(1, 3, "1")}, Keep{Daily: 7}, "0 at 4, 1 at 4"},
		// The days before 29, 22 and 15 March, which are Sundays, and the last days of months.
		{"a year of days", year, Keep{Daily: 7, Weekly: 4, Monthly: 6}, "0, 1, 2, 3, 4, 5, 6, 9, 16, 31, 59, 90, 121, 151"},
		{"days without a backup do not count", []Snapshot{day(0, 3, "0"), day(30, 3, "30"), day(60, 3, "60"), day(61, 3, "61")}, Keep{Daily: 3}, "0, 30, 60"},
		{"the verified one is kept", []Snapshot{day(0, 3, "0abc"), day(1, 3, "1abcdef0"), day(2, 3, "2abc")}, Keep{Daily: 1, Snapshot: "1abc"}, "0abc, 1abcdef0"},
		{"a week can have two years", []Snapshot{day(90, 3, "31 December"), day(89, 3, "1 January"), day(93, 3, "28 December")}, Keep{Weekly: 9}, "1 January, 28 December"},
	} {
		isGone := map[string]bool{}
		for _, snapshot := range expired(row.snapshots, row.keep) {
			isGone[snapshot.ID] = true
		}
		var left []string
		for _, snapshot := range row.snapshots {
			if !isGone[snapshot.ID] {
				left = append(left, snapshot.ID)
			}
		}
		if text := strings.Join(left, ", "); text != row.left {
			t.Errorf("%s: %q is left, want %q", row.name, text, row.left)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	site := newSite(t)
	site.write(filepath.Join(site.repository.Secrets, "AWS_SECRET_ACCESS_KEY"), "c4n4ry-key\n")
	site.repository.URL = "rest:http://user:c4n4ry-url@127.0.0.1:1/shop"
	if err := site.repository.readSecrets(); err != nil {
		t.Fatal(err)
	}
	text := site.repository.secrets.redact("a c4n4ry-url, c4n4ry-key and " + password + " b")
	if text != "a ***, *** and *** b" {
		t.Error(text)
	}
	for url, message := range map[string]string{
		"rest:http://user:c4n4%ry-url@127.0.0.1:1/shop": "",
		"rest:http://user:c4n4%2Fry-u@127.0.0.1:1/shop": "http://user:c4n4%2Fry-u@127.0.0.1 c4n4/ry-u",
	} {
		site.repository.URL = url
		switch err := site.repository.readSecrets(); {
		case message == "" && (err == nil || strings.Contains(err.Error(), "ry-url")):
			t.Errorf("a URL that cannot be read: %v", err)
		case message != "" && (err != nil || strings.Contains(site.repository.secrets.redact(message), "ry-u")):
			t.Errorf("%v, %s", err, site.repository.secrets.redact(message))
		}
	}
	site.repository.URL = "rest:http://user:c4n4ry-url@127.0.0.1:1/shop"
	if err := site.repository.readSecrets(); err != nil {
		t.Fatal(err)
	}
	if environment := strings.Join(site.repository.secrets.environment, "\n"); !strings.Contains(environment, "AWS_SECRET_ACCESS_KEY=c4n4ry-key\n") || strings.Contains(environment, password) {
		t.Error("restic does not get the credentials, or gets the password as a variable")
	}
	if _, err := exec.LookPath("restic"); err == nil {
		site.fails(site.save(Keep{}))("does not answer")
	}
}

// Two clusters have an app of one name, and save to one repository.
func TestTwoOwnersOfOneRepository(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	mine, other := *site.repository, *site.repository
	mine.Owner, other.Owner = "mine", "other"
	site.repository = &other
	foreign := site.must(site.save(Keep{}))
	site.repository = &mine
	site.fails(site.verify())("all 1 snapshots of web/shop are of another cluster, or of an App that was deleted; make a backup first")
	if report := site.must(site.restore(RestoreOptions{})); !report.IsForeign || report.Snapshot != foreign.Snapshot {
		t.Errorf("a new cluster begins with the snapshots of the old one: %+v", report)
	}
	site.write(filepath.Join(site.root, "volumes/data/new"), "new")
	saved := site.must(site.save(Keep{}))
	site.repository = &other
	latest := site.must(site.save(Keep{Daily: 7}))
	// A policy that keeps one snapshot a day removes none of others.
	site.repository = &mine
	if verified := site.must(site.verify()); verified.Snapshot != saved.Snapshot || verified.Files != 6 {
		t.Errorf("%+v, want %s", verified, saved.Snapshot)
	}
	if report := site.must(site.restore(RestoreOptions{Replace: true})); report.IsForeign || report.Snapshot != saved.Snapshot {
		t.Errorf("%+v", report)
	}
	if report := site.must(site.restore(RestoreOptions{Replace: true, Snapshot: latest.Snapshot})); !report.IsForeign {
		t.Errorf("%+v", report)
	}
}
