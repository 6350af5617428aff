// Package crd contains the CustomResourceDefinitions of Roost, which controller-gen generates from the types.
package crd

import "embed"

// Files contains one CustomResourceDefinition in each file.
//
//go:embed *.yaml
var Files embed.FS
