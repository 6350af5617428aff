package sbom

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// debianPackage returns the package of a file that was copied from this machine. It returns none if the file on this machine has different content, or
// belongs to no package.
func debianPackage(path string, content []byte) (Component, bool, error) {
	here, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(here, content) {
		return Component{}, false, nil
	}
	name := ownerOf(path)
	if name == "" {
		return Component{}, false, nil
	}
	text, err := exec.Command("dpkg-query", "--show", "--showformat", "${Package}|${Version}|${Architecture}|${source:Package}|${source:Version}", name).Output()
	if err != nil {
		return Component{}, false, fmt.Errorf("dpkg-query --show %s: %w", name, err)
	}
	fields := strings.Split(string(text), "|")
	if len(fields) != 5 {
		return Component{}, false, fmt.Errorf("dpkg-query --show %s: %q has not five fields", name, text)
	}
	packageURL := fmt.Sprintf("pkg:deb/%s/%s@%s?arch=%s", distribution(), fields[0], escape(fields[1]), fields[2])
	component := library(packageURL, fields[0], fields[1])
	component.Properties = []Property{{Name: "debian:source", Value: fields[3] + " " + fields[4]}}
	return component, true, nil
}

// ownerOf returns the package that contains a path, or the file that the path links to. dpkg distinguishes /usr/lib and /lib.
func ownerOf(path string) string {
	// Written by the package's program from its certificates.
	if path == "/etc/ssl/certs/ca-certificates.crt" {
		return "ca-certificates"
	}
	candidates := []string{path}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		candidates = append(candidates, target, strings.TrimPrefix(target, "/usr"))
	}
	for _, candidate := range candidates {
		text, err := exec.Command("dpkg-query", "--search", candidate).Output()
		if name, _, isFound := strings.Cut(string(text), ": /"); err == nil && isFound && !strings.Contains(name, ",") {
			return name
		}
	}
	return ""
}

// distribution returns debian, ubuntu or another distribution that uses Debian packages.
func distribution() string {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "debian"
	}
	for line := range strings.Lines(string(text)) {
		if name, isID := strings.CutPrefix(strings.TrimSpace(line), "ID="); isID {
			return strings.Trim(name, `"`)
		}
	}
	return "debian"
}
