// Package crd has the CustomResourceDefinitions of Roost, which controller-gen writes from the types.
package crd

import "embed"

// Files are one CustomResourceDefinition each.
//
//go:embed *.yaml
var Files embed.FS
