// Package deploy contains the manifests of the operator itself.
package deploy

import "embed"

// Files contains operator.yaml, roles.yaml and namespace.yaml.
//
//go:embed *.yaml
var Files embed.FS
