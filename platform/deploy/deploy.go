// Package deploy contains the manifests of the operator itself.
package deploy

import (
	"embed"
	"io/fs"
)

// Files contains operator.yaml, roles.yaml and namespace.yaml.
//
//go:embed *.yaml
var Files embed.FS

//go:embed machines/operator.yaml
var ofMachines embed.FS

// OfMachines returns the manifest of the operator for a cluster of the playbook.
func OfMachines() ([]byte, error) { return fs.ReadFile(ofMachines, "machines/operator.yaml") }
