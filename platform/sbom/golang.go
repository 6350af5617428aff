package sbom

import (
	"bytes"
	"debug/buildinfo"
	"net/url"
	"runtime/debug"
	"strings"
)

// goModules returns the modules in the build information of a Go program, and the standard library.
func goModules(program []byte) ([]Component, bool) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, false
	}
	components := []Component{library("pkg:golang/stdlib@"+strings.TrimPrefix(info.GoVersion, "go"), "stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, module := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if module.Replace != nil {
			module = module.Replace
		}
		component := library("pkg:golang/"+module.Path+"@"+escape(module.Version), module.Path, module.Version)
		if module.Sum != "" {
			// The checksum of the Go checksum database. It is a hash of a list of hashes, not of a file.
			component.Properties = []Property{{Name: "golang:h1", Value: module.Sum}}
		}
		components = append(components, component)
	}
	return components, true
}

// escape escapes a version for a package URL, where a plus sign means a space.
func escape(version string) string { return url.QueryEscape(version) }

func library(packageURL, name, version string) Component {
	return Component{Type: "library", Reference: packageURL, PackageURL: packageURL, Name: name, Version: version}
}
