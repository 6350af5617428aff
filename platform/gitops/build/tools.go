//go:build tools

// Package build is a module that compiles Argo CD. `go install` refuses to, because the module of Argo CD replaces others.
package build

import (
	_ "github.com/argoproj/argo-cd/v3/cmd"
	_ "sigs.k8s.io/kustomize/kustomize/v5"
)
