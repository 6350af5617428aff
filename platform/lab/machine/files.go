// Package machine has the files that make the parts of Kubernetes work in a machine of systemd-nspawn. `platform/lab/run` copies
// them into the machine; the stand-in for k3s in platform/machines has them in its program.
package machine

import "embed"

// Files are configurations of the parts, and manifests.
//
//go:embed kernel kubelet.yaml kube-proxy.yaml containerd.toml names.yaml ingress.yaml
var Files embed.FS
