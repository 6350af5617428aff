package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The image of the operator, as platform/images writes it: from this tree, and from a copy elsewhere.
func TestTheOperatorsImage(t *testing.T) {
	elsewhere := t.TempDir()
	must(t, os.CopyFS(filepath.Join(elsewhere, "platform"), os.DirFS("..")))
	must(t, os.CopyFS(filepath.Join(elsewhere, "packaging"), os.DirFS("../../packaging")))
	outputs := []string{t.TempDir(), t.TempDir()}
	for index, program := range []string{"../images", filepath.Join(elsewhere, "platform/images")} {
		if text, err := exec.Command(program, outputs[index], "operator").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	first, err := os.ReadFile(filepath.Join(outputs[0], "roost-operator.tar"))
	must(t, err)
	second, err := os.ReadFile(filepath.Join(outputs[1], "roost-operator.tar"))
	must(t, err)
	if !bytes.Equal(first, second) {
		t.Error("a build in another folder has other bytes")
	}
	layout, err := readLayout(bytes.NewReader(first))
	must(t, err)
	root := t.TempDir()
	files := extract(t, layout, root)
	want := []string{"etc/group", "etc/nsswitch.conf", "etc/passwd", "etc/ssl/certs/ca-certificates.crt", "usr/bin/roost-operator"}
	if !slices.Equal(files, want) {
		t.Errorf("%q\nwant %q", files, want)
	}
	program, err := elf.Open(filepath.Join(root, "usr/bin/roost-operator"))
	must(t, err)
	defer program.Close()
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("the operator loads shared libraries, which the image lacks")
		}
	}
	t.Logf("%d KiB compressed", len(first)>>10)
	if os.Getuid() != 0 {
		t.Skip("only root can run the program in the image's files")
	}
	must(t, os.Chmod(root, 0o755))
	run := exec.Command("/usr/bin/roost-operator")
	run.Dir, run.Env = "/", []string{}
	run.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	if text, err := run.CombinedOutput(); err == nil || !strings.Contains(string(text), "--namespaces is missing") {
		t.Errorf("%v: %s", err, text)
	}
}

// extract writes the files of the only layer, and names them. None may be writable but for root.
func extract(t *testing.T, layout *Layout, root string) []string {
	t.Helper()
	compressed, err := layout.Blob(layout.Manifest.Layers[0].Digest)
	must(t, err)
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	must(t, err)
	var files []string
	archive := tar.NewReader(reader)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		path := filepath.Join(root, header.Name)
		if header.Typeflag == tar.TypeDir {
			if header.Mode&0o022 != 0 && header.Name != "tmp/" {
				t.Errorf("%s has the mode %o", header.Name, header.Mode)
			}
			must(t, os.Mkdir(path, 0o755))
			continue
		}
		if header.Mode&0o022 != 0 || header.Typeflag != tar.TypeReg {
			t.Errorf("%s has the mode %o and the type %c", header.Name, header.Mode, header.Typeflag)
		}
		content, err := io.ReadAll(archive)
		must(t, err)
		must(t, os.WriteFile(path, content, os.FileMode(header.Mode)))
		files = append(files, header.Name)
	}
}
