// Package deploy has the manifests of the operator itself.
package deploy

import "embed"

// Files are operator.yaml, roles.yaml and namespace.yaml.
//
//go:embed *.yaml
var Files embed.FS
