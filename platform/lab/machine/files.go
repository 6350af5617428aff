// Package machine contains the configuration files for Kubernetes in a machine of systemd-nspawn. `platform/lab/run` copies them into the machine; the
// stand-in for k3s in platform/machines embeds them.
package machine

import "embed"

// Files contains configuration files and manifests.
//
//go:embed kernel kubelet.yaml kube-proxy.yaml containerd.toml names.yaml ingress.yaml
var Files embed.FS
