package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// folder holds a program, a file, a link, and a folder that all may write to.
func folder(t *testing.T, modified time.Time) string {
	t.Helper()
	root := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The first bytes of a program for Linux suffice here.
	head := make([]byte, 64<<10)
	file, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.ReadFull(file, head); err != nil {
		t.Fatal(err)
	}
	must(t, os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755))
	must(t, os.Mkdir(filepath.Join(root, "tmp"), 0o755))
	must(t, os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky))
	must(t, os.WriteFile(filepath.Join(root, "usr/bin/a"), sectionless(head), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "notes"), []byte("notes\n"), 0o644))
	must(t, os.Symlink("notes", filepath.Join(root, "link")))
	must(t, os.Chtimes(filepath.Join(root, "notes"), modified, modified))
	return root
}

// sectionless is the head of an ELF file without references to what follows it.
func sectionless(head []byte) []byte {
	copy(head[40:48], make([]byte, 8)) // the offset of the section headers
	copy(head[60:64], make([]byte, 4)) // their number, and the index of their names
	return head
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, root string) (string, []byte) {
	t.Helper()
	config, err := parseDockerfile(small)
	must(t, err)
	var out bytes.Buffer
	digest, err := WriteArchive(&out, Source{Name: "registry.example.com/team/a:1.2.3", Root: root, Config: config, Created: time.Unix(0, 0)})
	must(t, err)
	return digest, out.Bytes()
}

func TestTheSameFilesGiveTheSameBytes(t *testing.T) {
	root := folder(t, time.Unix(1_700_000_000, 0))
	digest, first := write(t, root)
	again, second := write(t, folder(t, time.Now()))
	if digest != again || !bytes.Equal(first, second) {
		t.Errorf("%s and %s", digest, again)
	}
	must(t, os.WriteFile(filepath.Join(root, "notes"), []byte("other notes\n"), 0o644))
	if other, _ := write(t, root); other == digest {
		t.Error("other files have the same digest")
	}
}

func TestAnArchiveHasWhatItsDigestsSay(t *testing.T) {
	digest, archive := write(t, folder(t, time.Now()))
	layout, err := readLayout(bytes.NewReader(archive))
	must(t, err)
	if layout.Entry.Digest != digest || layout.Entry.Annotations["io.containerd.image.name"] != "registry.example.com/team/a:1.2.3" {
		t.Errorf("%+v, want %s", layout.Entry, digest)
	}
	text, err := layout.Blob(layout.Manifest.Config.Digest)
	must(t, err)
	var config configuration
	must(t, json.Unmarshal(text, &config))
	if config.OS != "linux" || config.Config.User != "65532:65532" || config.Config.Entrypoint[0] != "/usr/bin/a" {
		t.Errorf("%s", text)
	}
	compressed, err := layout.Blob(layout.Manifest.Layers[0].Digest)
	must(t, err)
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	must(t, err)
	plain, err := io.ReadAll(reader)
	must(t, err)
	if diffID := digestOf(plain); config.RootFS.DiffIDs[0] != diffID {
		t.Errorf("%s, want %s", config.RootFS.DiffIDs, diffID)
	}
	var entries []string
	files := tar.NewReader(bytes.NewReader(plain))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		entries = append(entries, header.FileInfo().Mode().String()+" "+header.Name)
		if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%+v", header)
		}
	}
	want := "Lrw-rw-rw- link, -rw-r--r-- notes, dtrwxrwxrwx tmp/, drwxr-xr-x usr/, drwxr-xr-x usr/bin/, -rwxr-xr-x usr/bin/a"
	if got := strings.ReplaceAll(strings.Join(entries, ", "), "Lrwxrwxrwx", "Lrw-rw-rw-"); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestADamagedArchiveIsRefused(t *testing.T) {
	_, archive := write(t, folder(t, time.Now()))
	damaged := bytes.Replace(archive, []byte(`"linux"`), []byte(`"linus"`), 1)
	if _, err := readLayout(bytes.NewReader(damaged)); err == nil || !strings.Contains(err.Error(), "the archive is damaged") {
		t.Error(err)
	}
	if _, err := readLayout(bytes.NewReader(nil)); err == nil || !strings.Contains(err.Error(), "index.json lists 0 manifests") {
		t.Error(err)
	}
}

func TestWhatAnImageMayNotHave(t *testing.T) {
	config, err := parseDockerfile(small)
	must(t, err)
	for name, wrong := range map[string]struct {
		change  func(root string) error
		image   string
		message string
	}{
		"a name without a tag":      {image: "registry.example.com:5000/a", message: "has no tag"},
		"a name without a registry": {image: "team/a:1", message: "has no registry"},
		"a set-user-ID program": {change: func(root string) error {
			return os.Chmod(filepath.Join(root, "usr/bin/a"), 0o755|os.ModeSetuid)
		}, message: "is set-user-ID"},
		"a program that others cannot run": {change: func(root string) error {
			return os.Chmod(filepath.Join(root, "usr/bin/a"), 0o700)
		}, message: "must be able to run"},
		"a script": {change: func(root string) error {
			return os.WriteFile(filepath.Join(root, "usr/bin/a"), []byte("#!/bin/sh\n"), 0o755)
		}, message: "not a Linux program"},
		"no program": {change: func(root string) error { return os.Remove(filepath.Join(root, "usr/bin/a")) }, message: "no such file"},
	} {
		root := folder(t, time.Now())
		if wrong.change != nil {
			must(t, wrong.change(root))
		}
		if wrong.image == "" {
			wrong.image = "registry.example.com/a:1"
		}
		_, err := WriteArchive(io.Discard, Source{Name: wrong.image, Root: root, Config: config})
		if err == nil || !strings.Contains(err.Error(), wrong.message) {
			t.Errorf("%s: %v, want %q", name, err, wrong.message)
		}
	}
}
