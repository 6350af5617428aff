package sbom

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/image"
)

// written is the list that platform/images writes beside an image, and the image.
func written(t *testing.T, name string, arguments ...string) (Document, *image.Layout) {
	t.Helper()
	output := t.TempDir()
	if text, err := exec.Command("../images", append([]string{output}, arguments...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	layout, err := image.ReadLayout(filepath.Join(output, name+".tar"))
	must(t, err)
	text, err := os.ReadFile(filepath.Join(output, name+".cdx.json"))
	must(t, err)
	var document Document
	must(t, json.Unmarshal(text, &document))
	if document.Metadata.Component.Version != layout.Entry.Digest {
		t.Errorf("the list is about %s, the image is %s", document.Metadata.Component.Version, layout.Entry.Digest)
	}
	return document, layout
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// contents are the image's files.
func contents(t *testing.T, layout *image.Layout) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	must(t, layout.EachFile(func(path string, content []byte) error {
		files[path] = content
		return nil
	}))
	return files
}

func (document Document) withPrefix(prefix string) []string {
	var found []string
	for _, component := range document.Components {
		if strings.HasPrefix(component.PackageURL, prefix) {
			found = append(found, component.Name+" "+component.Version)
		}
	}
	slices.Sort(found)
	return found
}

func TestTheOperatorsModulesAreThoseOfGoVersion(t *testing.T) {
	document, layout := written(t, "roost-operator", "operator")
	program := filepath.Join(t.TempDir(), "roost-operator")
	must(t, os.WriteFile(program, contents(t, layout)["/usr/bin/roost-operator"], 0o755))
	output, err := exec.Command("go", "version", "-m", program).Output()
	must(t, err)
	want := map[string]bool{}
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		switch {
		case fields[0] == "dep" || fields[0] == "mod":
			want[fields[1]+" "+fields[2]] = true
		case strings.HasPrefix(fields[1], "go1."):
			want["stdlib "+strings.TrimPrefix(fields[1], "go")] = true
		}
	}
	got, all := document.withPrefix("pkg:golang/"), slices.Sorted(maps.Keys(want))
	if len(all) < 50 || !slices.Equal(got, all) {
		t.Errorf("%d modules: %q\nwant %d: %q", len(got), got, len(all), all)
	}
	if debian := document.withPrefix("pkg:deb/"); len(debian) != 1 || !strings.HasPrefix(debian[0], "ca-certificates ") {
		t.Errorf("%q", debian)
	}
	t.Logf("%d components", len(document.Components))
}

func TestDunlinsCratesAndLibraries(t *testing.T) {
	server := os.Getenv("ROOST_TEST_SERVER")
	if server == "" {
		t.Skip("ROOST_TEST_SERVER is not set; platform/test sets it")
	}
	document, layout := written(t, "dunlin", "dunlin", server)
	lock, err := lockedSums("../../Cargo.lock")
	must(t, err)
	crates := document.withPrefix("pkg:cargo/")
	for _, crate := range []string{"dunlin", "dunlin-bench", "dunlin-engine", "tokio", "rustls", "librocksdb-sys", "zstd-sys", "aws-lc-sys"} {
		if !slices.ContainsFunc(crates, func(line string) bool { return strings.HasPrefix(line, crate+" ") }) {
			t.Errorf("the crate %s is not listed", crate)
		}
	}
	for _, crate := range crates {
		// What only tests, the simulator and the compiler use.
		if name, _, _ := strings.Cut(crate, " "); slices.Contains([]string{"proptest", "loom", "dunlin-sim", "serde_derive", "cc", "bindgen"}, name) {
			t.Errorf("%s is listed, which no server has", crate)
		}
		if !strings.HasPrefix(crate, "dunlin") && lock[crate] == "" {
			t.Errorf("%s is not in Cargo.lock", crate)
		}
	}
	for _, bundled := range []string{"rocksdb ", "zstd ", "rust-std "} {
		if !slices.ContainsFunc(document.withPrefix("pkg:generic/"), func(line string) bool { return strings.HasPrefix(line, bundled) }) {
			t.Errorf("%sis not listed among %q", bundled, document.withPrefix("pkg:generic/"))
		}
	}
	// Each file has its row, or the row of its package.
	for path := range contents(t, layout) {
		isLibrary := strings.Contains(path, ".so") || strings.HasSuffix(path, ".crt")
		if isListed := slices.ContainsFunc(document.Components, func(one Component) bool { return one.Name == path }); isListed == isLibrary {
			t.Errorf("%s: listed as a file is %t", path, isListed)
		}
	}
	t.Logf("%d components, %d crates; Debian: %q", len(document.Components), len(crates), document.withPrefix("pkg:deb/"))
}

func TestProgramsOfARelease(t *testing.T) {
	server := os.Getenv("ROOST_TEST_SERVER")
	if server == "" {
		t.Skip("ROOST_TEST_SERVER is not set; platform/test sets it")
	}
	programs := []string{server, filepath.Join(filepath.Dir(server), "dunlin-bench")}
	document, err := OfPrograms("dunlin", "1.2.3+a", programs, Workspace{Folder: "../.."})
	must(t, err)
	if subject := document.Metadata.Component; subject.PackageURL != "pkg:generic/dunlin@1.2.3%2Ba" || subject.Type != "application" {
		t.Errorf("%+v", subject)
	}
	for _, want := range []string{"pkg:cargo/dunlin@", "pkg:cargo/dunlin-bench@", "pkg:cargo/hdrhistogram@", "pkg:cargo/rustls@", "pkg:generic/rocksdb@", "file:dunlin-bench"} {
		if !slices.ContainsFunc(document.Components, func(one Component) bool { return strings.HasPrefix(one.Reference, want) }) {
			t.Errorf("%s is not listed", want)
		}
	}
	slices.Reverse(programs)
	again, err := OfPrograms("dunlin", "1.2.3+a", programs, Workspace{Folder: "../.."})
	must(t, err)
	first, err := document.JSON()
	must(t, err)
	if second, err := again.JSON(); err != nil || string(first) != string(second) {
		t.Errorf("the order of the programs changes the document: %v", err)
	}
}

// TestAGoProgramOfARelease lists the modules of this test.
func TestAGoProgramOfARelease(t *testing.T) {
	program, err := os.Executable()
	must(t, err)
	document, err := OfPrograms("roost", "1.2.3", []string{program}, Workspace{})
	must(t, err)
	if subject := document.Metadata.Component; subject.PackageURL != "pkg:generic/roost@1.2.3" {
		t.Errorf("%+v", subject)
	}
	for _, want := range []string{"pkg:golang/stdlib@", "pkg:golang/github.com/dunlin-project/dunlin/platform@", "file:" + filepath.Base(program)} {
		if !slices.ContainsFunc(document.Components, func(one Component) bool { return strings.HasPrefix(one.Reference, want) }) {
			t.Errorf("%s is not listed", want)
		}
	}
}

// TestARustProgramNeedsItsWorkspace has the server without the folder from which its crates are listed.
func TestARustProgramNeedsItsWorkspace(t *testing.T) {
	server := os.Getenv("ROOST_TEST_SERVER")
	if server == "" {
		t.Skip("ROOST_TEST_SERVER is not set; platform/test sets it")
	}
	_, err := OfPrograms("dunlin", "1.2.3", []string{server}, Workspace{})
	if err == nil || err.Error() != server+": was compiled from Rust; set --workspace to the folder with its Cargo.lock" {
		t.Error(err)
	}
	content, err := os.ReadFile(server)
	must(t, err)
	_, err = partsOf("/usr/bin/dunlin", content, &image.Platform{Architecture: "amd64"}, Workspace{})
	if err == nil || err.Error() != "/usr/bin/dunlin is compiled from Rust; give --workspace, from which its crates are listed" {
		t.Error(err)
	}
}

func TestOnlyRustProgramsHaveCrates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dunlin")
	must(t, os.WriteFile(file, []byte("#!/bin/sh"), 0o755))
	_, err := OfPrograms("dunlin", "1.2.3", []string{file}, Workspace{Folder: "../.."})
	if err == nil || !strings.Contains(err.Error(), "is not a program that was compiled from Rust or Go") {
		t.Error(err)
	}
}

// A list of crates that a program contradicts is refused.
func TestAProgramOfOtherSourcesIsRefused(t *testing.T) {
	program := []byte("/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde-0.0.1/src/lib.rs")
	_, err := crates("../..", "dunlin", "x86_64-unknown-linux-gnu", program)
	if err == nil || !strings.Contains(err.Error(), "the crate serde-0.0.1, which Cargo does not list") {
		t.Error(err)
	}
}

func TestAFileOfNoPackageIsListedItself(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings")
	must(t, os.WriteFile(file, []byte("a"), 0o644))
	for name, row := range map[string]struct{ path, content string }{
		"a file of nobody":                 {file, "a"},
		"a file that is not here":          {"/does/not/exist", "a"},
		"a package's file, but other text": {"/etc/debian_version", "other"},
	} {
		if _, isDebian, err := debianPackage(row.path, []byte(row.content)); isDebian || err != nil {
			t.Errorf("%s: %t, %v", name, isDebian, err)
		}
		parts, err := partsOf(row.path, []byte(row.content), &image.Platform{Architecture: "amd64"}, Workspace{})
		if err != nil || len(parts) != 1 || parts[0].Type != "file" || parts[0].Name != row.path {
			t.Errorf("%s: %+v, %v", name, parts, err)
		}
	}
}

func TestLinesOfCargo(t *testing.T) {
	for line, want := range map[string][3]string{
		"serde v1.0.229|MIT OR Apache-2.0":              {"serde", "1.0.229", "MIT OR Apache-2.0"},
		"dunlin v0.1.0 (/src/crates/server)|Apache-2.0": {"dunlin", "0.1.0", "Apache-2.0"},
		"libc v0.2.9 (*)|MIT/Apache-2.0":                {"libc", "0.2.9", "MIT OR Apache-2.0"},
		"toml v1.2.1+spec-1.1.0|":                       {"toml", "1.2.1+spec-1.1.0", ""},
		"":                                              {},
	} {
		name, version, license := splitTreeLine(line)
		if got := [3]string{name, version, license}; got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	for crate, want := range map[string]string{
		"librocksdb-sys 0.19.0+11.8.1": "rocksdb 11.8.1", "zstd-sys 2.1.3+zstd.1.5.7": "zstd 1.5.7", "aws-lc-sys 0.47.0": "", "toml 1.2.1+spec-1.1.0": "",
	} {
		name, version, _ := strings.Cut(crate, " ")
		bundled, has := bundledLibrary(name, version)
		if got := strings.TrimSpace(bundled.Name + " " + bundled.Version); got != want || has != (want != "") {
			t.Errorf("%s: %q, want %q", crate, got, want)
		}
	}
	if url := library("pkg:cargo/a@"+escape("1.0.0+b"), "a", "1.0.0+b").PackageURL; url != "pkg:cargo/a@1.0.0%2Bb" {
		t.Error(url)
	}
}
