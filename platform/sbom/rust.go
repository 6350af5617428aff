package sbom

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	// rustVersion matches the text that the compiler writes to each program.
	rustVersion = regexp.MustCompile(`rustc version ([0-9.]+[^ ]*) `)
	// crateInProgram matches the paths of source files, which a program contains for panic messages.
	crateInProgram = regexp.MustCompile(`registry/src/[^/\x00]+/([A-Za-z0-9_-]+)-([0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9.+_-]*)/`)
)

// rustCompiler returns the version of the linked standard library, or an empty string if the program is not written in Rust.
func rustCompiler(program []byte) string {
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return ""
	}
	section := file.Section(".comment")
	if section == nil {
		return ""
	}
	text, err := section.Data()
	if err != nil {
		return ""
	}
	found := rustVersion.FindSubmatch(text)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// crates returns the crates that Cargo links into a package of a workspace for a target, without those that run only in the compiler. A program
// contains no list of its crates, but the paths of many of them: each of these must be in the result.
func crates(workspace, crate, target string, program []byte) ([]Component, error) {
	command := exec.Command("cargo", "tree", "--locked", "--manifest-path", filepath.Join(workspace, "Cargo.toml"), "--package", crate,
		"--edges", "normal,no-proc-macro", "--target", target, "--prefix", "none", "--no-dedupe", "--format", "{p}|{l}")
	var problem bytes.Buffer
	command.Stderr = &problem
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", command, err, problem.String())
	}
	sums, err := lockedSums(filepath.Join(workspace, "Cargo.lock"))
	if err != nil {
		return nil, err
	}
	components := []Component{rustLibrary(program)}
	isListed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		name, version, license := splitTreeLine(strings.TrimSpace(line))
		if name == "" || isListed[name+"-"+version] {
			continue
		}
		isListed[name+"-"+version] = true
		component := library("pkg:cargo/"+name+"@"+escape(version), name, version)
		if license != "" {
			component.Licenses = []License{{Expression: license}}
		}
		if sum := sums[name+" "+version]; sum != "" {
			component.Hashes = []Hash{{Algorithm: "SHA-256", Content: sum}}
		}
		components = append(components, component)
		if bundled, has := bundledLibrary(name, version); has {
			components = append(components, bundled)
		}
	}
	for _, found := range crateInProgram.FindAllSubmatch(program, -1) {
		if crate := string(found[1]) + "-" + string(found[2]); !isListed[crate] {
			return nil, fmt.Errorf("the program has a path of the crate %s, which Cargo does not list: the program was built from other sources; compile it again", crate)
		}
	}
	return components, nil
}

func rustLibrary(program []byte) Component {
	version := rustCompiler(program)
	return library("pkg:generic/rust@"+version, "rust-std", version)
}

// splitTreeLine parses `NAME vVERSION (SOURCE)|LICENCE`. Old crates write A/B for A OR B.
func splitTreeLine(line string) (name, version, license string) {
	crate, license, _ := strings.Cut(line, "|")
	fields := strings.Fields(crate)
	if len(fields) < 2 {
		return "", "", ""
	}
	return fields[0], strings.TrimPrefix(fields[1], "v"), strings.ReplaceAll(license, "/", " OR ")
}

// bundledLibrary returns the C or C++ library in a crate such as librocksdb-sys 0.19.0+11.8.1 or zstd-sys 2.1.3+zstd.1.5.7.
func bundledLibrary(crate, version string) (Component, bool) {
	name, isBinding := strings.CutSuffix(crate, "-sys")
	_, bundled, isNamed := strings.Cut(version, "+")
	if !isBinding || !isNamed {
		return Component{}, false
	}
	name = strings.TrimPrefix(name, "lib")
	bundled = strings.TrimPrefix(bundled, name+".")
	return library("pkg:generic/"+name+"@"+escape(bundled), name, bundled), true
}
