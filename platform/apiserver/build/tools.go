//go:build tools

// Package build is a module that compiles kube-apiserver as Kubernetes releases it. `go install` refuses to, because the
// module of Kubernetes replaces its parts.
package build

import _ "k8s.io/kubernetes/cmd/kube-apiserver/app"
