package main

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"
)

const configPath = "/etc/rancher/k3s/config.yaml"

// config has the keys of /etc/rancher/k3s/config.yaml that the role writes. Like k3s, the stand-in refuses unknown keys.
type config struct {
	NodeName            string   `json:"node-name"`
	NodeIP              string   `json:"node-ip"`
	FlannelInterface    string   `json:"flannel-iface"`
	TokenFile           string   `json:"token-file"`
	KubeletArguments    []string `json:"kubelet-arg"`
	Server              string   `json:"server,omitempty"`
	AdvertiseAddress    string   `json:"advertise-address,omitempty"`
	WriteKubeconfigMode string   `json:"write-kubeconfig-mode,omitempty"`
	SecretsEncryption   bool     `json:"secrets-encryption,omitempty"`
	ClusterInit         bool     `json:"cluster-init,omitempty"`
	ControllerArguments []string `json:"kube-controller-manager-arg,omitempty"`
	TLSNames            []string `json:"tls-san,omitempty"`
	Disable             []string `json:"disable,omitempty"`
	StoragePath         string   `json:"default-local-storage-path,omitempty"`
	SnapshotSchedule    string   `json:"etcd-snapshot-schedule-cron,omitempty"`
	SnapshotRetention   int      `json:"etcd-snapshot-retention,omitempty"`
}

// commonKeys and serverKeys are the keys that the role always writes.
var (
	commonKeys = []string{"node-name", "node-ip", "flannel-iface", "token-file", "kubelet-arg"}
	serverKeys = []string{
		"advertise-address", "write-kubeconfig-mode", "secrets-encryption", "cluster-init", "kube-controller-manager-arg", "tls-san", "disable",
		"default-local-storage-path", "etcd-snapshot-schedule-cron", "etcd-snapshot-retention",
	}
	agentKeys = []string{"server"}
)

// readConfig returns the configuration of a role, server or agent, and its token.
func readConfig(role string) (config, string, error) {
	var found config
	text, err := readPrivate(configPath)
	if err != nil {
		return found, "", err
	}
	if err := yaml.UnmarshalStrict([]byte(text), &found); err != nil {
		return found, "", fmt.Errorf("flag provided but not defined: %w", err)
	}
	var given map[string]any
	if err := yaml.Unmarshal([]byte(text), &given); err != nil {
		return found, "", err
	}
	wanted, foreign := slices.Concat(commonKeys, serverKeys), agentKeys
	if role == "agent" {
		wanted, foreign = slices.Concat(commonKeys, agentKeys), serverKeys
	}
	for _, key := range wanted {
		if _, isThere := given[key]; !isThere {
			return found, "", fmt.Errorf("the stand-in expects %s in %s", key, configPath)
		}
	}
	for _, key := range foreign {
		if _, isThere := given[key]; isThere {
			return found, "", fmt.Errorf("flag provided but not defined: -%s", key)
		}
	}
	if err := found.checkAddress(); err != nil {
		return found, "", err
	}
	token, err := readPrivate(found.TokenFile)
	return found, strings.TrimSpace(token), err
}

func (found config) checkAddress() error {
	link, err := net.InterfaceByName(found.FlannelInterface)
	if err != nil {
		return fmt.Errorf("flannel-iface %s: %w", found.FlannelInterface, err)
	}
	addresses, err := link.Addrs()
	if err != nil {
		return err
	}
	for _, address := range addresses {
		if network, isNetwork := address.(*net.IPNet); isNetwork && network.IP.String() == found.NodeIP {
			return nil
		}
	}
	return fmt.Errorf("node-ip %s is not an address of flannel-iface %s", found.NodeIP, found.FlannelInterface)
}

// readPrivate returns the content of a file that only root may read.
func readPrivate(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if owner, isUnix := info.Sys().(*syscall.Stat_t); !isUnix || owner.Uid != 0 || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s can be read by others than root", path)
	}
	text, err := os.ReadFile(path)
	return string(text), err
}
