// K3s is a stand-in for k3s in tests of the playbook. It checks arguments, files, keys and tokens as k3s would, and starts the parts of
// Kubernetes that k3s contains: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy and containerd, with
// CoreDNS and Traefik as pods. The programs are in /opt/parts.
//
//	k3s server [--cluster-reset --cluster-reset-restore-path FILE] | agent | kubectl ... | --version
//	k3s token rotate | certificate rotate | etcd-snapshot save --name NAME
//
// It differs from k3s in these points: agents join at port 9345 instead of the API server's port; routes instead of VXLAN connect the pod
// networks; the ingress controller is reached by node ports instead of pods of servicelb; volumes are created in advance. Each start, and
// each call of kubectl that changes something, is a line of /var/lib/rancher/k3s/calls.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// version is set when the program is linked.
var version = "v0.0.0+k3s1"

const (
	stateFolder    = "/var/lib/rancher/k3s"
	serverFolder   = stateFolder + "/server"
	tlsFolder      = serverFolder + "/tls"
	agentFolder    = stateFolder + "/agent"
	partsFolder    = "/opt/parts"
	kubeconfigPath = "/etc/rancher/k3s/k3s.yaml"
	passwordPath   = "/etc/rancher/node/password"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "level=fatal msg=%q\n", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return errors.New("the stand-in needs a command")
	}
	rest := arguments[1:]
	switch arguments[0] {
	case "--version":
		fmt.Printf("k3s version %s (stand-in)\n", version)
		return nil
	case "kubectl":
		return kubectl(rest)
	case "server":
		if len(rest) > 0 {
			return reset(rest)
		}
		return serve()
	case "agent":
		if len(rest) == 0 {
			return join()
		}
	case "token":
		return rotateToken(rest)
	case "certificate":
		return rotateCertificates(rest)
	case "etcd-snapshot":
		return saveSnapshot(rest)
	}
	return fmt.Errorf("unknown arguments: %s", strings.Join(arguments, " "))
}

// remember adds a line to the list of calls.
func remember(text string) error {
	if err := os.MkdirAll(stateFolder, 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(stateFolder+"/calls", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s %s\n", version, text)
	return errors.Join(err, file.Close())
}

// kubectl replaces this process.
func kubectl(arguments []string) error {
	if _, err := os.Stat(kubeconfigPath); err != nil {
		return err
	}
	for _, verb := range []string{"delete", "drain", "uncordon"} {
		if len(arguments) > 0 && arguments[0] == verb {
			if err := remember("kubectl " + strings.Join(arguments, " ")); err != nil {
				return err
			}
		}
	}
	environment := append(os.Environ(), "KUBECONFIG="+kubeconfigPath)
	return syscall.Exec(partsFolder+"/kubectl", append([]string{"kubectl"}, arguments...), environment)
}

// notifyReady reports to systemd that the unit has started.
func notifyReady() error {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return nil
	}
	socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	return syscall.Sendto(socket, []byte("READY=1"), 0, &syscall.SockaddrUnix{Name: strings.Replace(address, "@", "\x00", 1)})
}

// untilAsked returns when systemd stops the unit, or when a part of the cluster cannot run.
func untilAsked(failed <-chan error) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-failed:
		return err
	case <-asked:
		return nil
	}
}
