package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/machines"
	"github.com/dunlin-project/dunlin/platform/settings"
)

const (
	tokenVariable     = "K3S_TOKEN"
	playbookVariables = "K3S_"
	tunnelSecondsMax  = 20
	tunnelPause       = 100 * time.Millisecond
	reachSecondsMax   = 2
	machinesOfCluster = "k3s_server"
	agentsOfCluster   = "k3s_agent"
)

// inventory is the output of ansible-inventory.
type inventory struct {
	Meta struct {
		Hosts map[string]struct {
			Version string `json:"k3s_version"`
		} `json:"hostvars"`
	} `json:"_meta"`
	Servers struct{ Hosts []string } `json:"k3s_server"`
	Agents  struct{ Hosts []string } `json:"k3s_agent"`
}

func (run *bootstrap) inventory(ctx context.Context) (inventory, error) {
	var found inventory
	command := exec.CommandContext(ctx, "ansible-inventory", "-i", run.path(run.config.Inventory), "--list")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return found, errNoAnsible("ansible-inventory")
	}
	if err != nil {
		return found, fmt.Errorf("ansible-inventory: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(out, &found); err != nil {
		return found, fmt.Errorf("ansible-inventory: %w", err)
	}
	if len(found.Servers.Hosts) == 0 {
		return found, fmt.Errorf("%s has no host in the group %s; add one", run.config.Inventory, machinesOfCluster)
	}
	return found, nil
}

// errNoAnsible says how to install Ansible.
func errNoAnsible(name string) error {
	return fmt.Errorf("there is no %s in $PATH; run `python3 -m venv venv && venv/bin/pip install ansible-core==%s`, and add venv/bin to $PATH",
		name, machines.AnsibleVersion())
}

// missingMachines compares the inventory with the nodes of the cluster.
func (run *bootstrap) missingMachines(ctx context.Context) (string, error) {
	found, err := run.inventory(ctx)
	if err != nil {
		return "", err
	}
	names := slices.Concat(found.Servers.Hosts, found.Agents.Hosts)
	if run.cluster == nil {
		return "set up or check the nodes " + strings.Join(names, ", "), nil
	}
	var missing []string
	for _, name := range names {
		var node corev1.Node
		err := run.cluster.Get(ctx, client.ObjectKey{Name: name}, &node)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, "set up the node "+name)
		case err != nil:
			return "", run.cluster.explained(err)
		case !isReadyNode(&node):
			missing = append(missing, name+" is not ready")
		case node.Spec.Unschedulable:
			// The playbook uncordons nodes that a failed run of the playbook has cordoned.
			missing = append(missing, fmt.Sprintf("%s is cordoned; if the playbook did not cordon it, run `kubectl uncordon %s`", name, name))
		case node.Status.NodeInfo.KubeletVersion != found.Meta.Hosts[name].Version:
			missing = append(missing, fmt.Sprintf("%s: change k3s from %s to %s", name, node.Status.NodeInfo.KubeletVersion, found.Meta.Hosts[name].Version))
		}
	}
	return strings.Join(missing, "; "), nil
}

func isReadyNode(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

// makeMachines runs the playbook, and connects. The token and the secrets of the snapshot store are passed only in its environment.
func (run *bootstrap) makeMachines(ctx context.Context) error {
	identities, err := run.identities()
	if err != nil {
		return err
	}
	file, isOpaque, err := readSettings(run.path(run.config.Token), run.config.Token, identities)
	if err != nil {
		return err
	}
	merged, err := settings.Merge([]settings.File{file}, nil)
	if err != nil {
		return err
	}
	if isOpaque || merged.Secret[tokenVariable] == "" {
		return fmt.Errorf("%s has no encrypted %s that can be decrypted; set it with `roost secrets edit`, and name the age identity with --identity", run.config.Token, tokenVariable)
	}
	playbook := run.path(run.config.Playbook)
	command := exec.CommandContext(ctx, "ansible-playbook", "-i", run.path(run.config.Inventory), playbook)
	command.Env = os.Environ()
	// Ansible looks for its settings only in the present folder.
	if settings := filepath.Join(filepath.Dir(playbook), "ansible.cfg"); run.Variable("ANSIBLE_CONFIG") == "" && isFile(settings) {
		command.Env = append(command.Env, "ANSIBLE_CONFIG="+settings)
	}
	for name, value := range merged.Secret {
		if strings.HasPrefix(name, playbookVariables) {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	command.Stdout, command.Stderr = run.Err, run.Err
	if err := command.Run(); errors.Is(err, exec.ErrNotFound) {
		return errNoAnsible("ansible-playbook")
	} else if err != nil {
		return fmt.Errorf("ansible-playbook: %w; its output above names the machine and the cause", err)
	}
	return run.makeConnection(ctx)
}

func (run *bootstrap) missingConnection(context.Context) (string, error) {
	if run.cluster == nil {
		return "read the kubeconfig of " + run.config.SSH + ", and connect through an SSH tunnel", nil
	}
	return "", nil
}

// makeConnection reads the kubeconfig of the server again, because its certificates may have changed.
func (run *bootstrap) makeConnection(ctx context.Context) error {
	command := exec.CommandContext(ctx, "ssh", run.config.SSH, "sudo", "cat", "/etc/rancher/k3s/k3s.yaml")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	text, err := command.Output()
	if err != nil {
		return fmt.Errorf("ssh %s: %w: %s", run.config.SSH, err, strings.TrimSpace(stderr.String()))
	}
	if err := writePrivate(run.kubeconfig, text); err != nil {
		return err
	}
	return run.connectAgain(ctx)
}

func writePrivate(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Chmod(0o600), file.Close())
}

// connectAgain uses the existing kubeconfig. If the API server has a loopback address at which nothing answers, the connection goes through SSH.
func (run *bootstrap) connectAgain(ctx context.Context) error {
	run.cluster = nil
	if err := run.reach(ctx); err != nil {
		return err
	}
	connected, err := run.connect()
	if err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := connected.List(ctx, &nodes); err != nil {
		return connected.explained(err)
	}
	run.cluster = connected
	return nil
}

// reach opens a tunnel through SSH, if the API server has a loopback address at which nothing answers. The connection then leads to the tunnel.
func (run *bootstrap) reach(ctx context.Context) error {
	run.tunnelled = ""
	connection, err := run.restConfig()
	if err != nil {
		return err
	}
	host, err := url.Parse(connection.Host)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host.Hostname()); ip != nil && ip.IsLoopback() && !answers(host.Host) {
		near, err := freeAddress()
		if err != nil {
			return err
		}
		if err := run.openTunnel(ctx, near, host.Host); err != nil {
			return err
		}
		host.Host = near
		run.tunnelled = host.String()
	}
	return nil
}

// freeAddress returns a loopback address at which nothing listens: that of the API server may be taken by another site's tunnel.
func freeAddress() (string, error) {
	listening, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listening.Addr().String(), listening.Close()
}

func answers(address string) bool {
	connection, err := net.DialTimeout("tcp", address, reachSecondsMax*time.Second)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// openTunnel leads from a local address, near, to one of the server. ssh asks nothing: it cannot read from a terminal that is not its own.
func (run *bootstrap) openTunnel(ctx context.Context, near, far string) error {
	run.tunnel()
	command := exec.Command("ssh", "-N", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-L", near+":"+far, run.config.SSH)
	command.SysProcAttr = apart()
	var stderr bytes.Buffer
	// A connection that ssh shares with others holds its output open.
	command.Stderr, command.WaitDelay = &stderr, time.Second
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	run.tunnel = func() {
		_ = command.Process.Kill()
		<-ended
	}
	deadline := time.After(tunnelSecondsMax * time.Second)
	pause := time.NewTicker(tunnelPause)
	defer pause.Stop()
	for !answers(near) {
		select {
		case <-ended:
			said := strings.TrimRight(": "+strings.TrimSpace(stderr.String()), ": .")
			return fmt.Errorf("the SSH tunnel to %s closed%s; check that `ssh %s` works without a password", run.config.SSH, said, run.config.SSH)
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("the SSH tunnel to %s timed out after %d s; check that `ssh %s` works without a password", run.config.SSH, tunnelSecondsMax, run.config.SSH)
		case <-pause.C:
		}
	}
	return nil
}
