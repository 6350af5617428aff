package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"crypto/x509"

	"github.com/dunlin-project/dunlin/platform/lab/certificates"
	"github.com/dunlin-project/dunlin/platform/lab/machine"
)

const (
	etcdFolder      = serverFolder + "/db/etcd"
	etcdClients     = "http://127.0.0.1:2382"
	etcdPeers       = "http://127.0.0.1:2383"
	manifestsFolder = serverFolder + "/manifests"
	// manifestPause is the interval at which the folder of manifests is checked.
	manifestPause = 2 * time.Second
)

func isAddress(name string) bool { return net.ParseIP(name) != nil }

// isServing reports whether a server or an agent runs on this machine.
func isServing() bool {
	for _, unit := range []string{"k3s", "k3s-agent"} {
		number, err := os.ReadFile("/run/" + unit + ".pid")
		if err != nil {
			continue
		}
		if _, err := os.Stat("/proc/" + string(number)); err == nil {
			return true
		}
	}
	return false
}

// running marks this process until it ends. The file is on a file system that a restart of the machine clears.
func running(unit string) (func(), error) {
	path := "/run/" + unit + ".pid"
	return func() { _ = os.Remove(path) }, os.WriteFile(path, []byte(fmt.Sprint(os.Getpid())), 0o600)
}

func writeOnce(authority certificates.Authority, name string, template *x509.Certificate) error {
	if _, err := os.Stat(filepath.Join(tlsFolder, name+".pem")); err == nil {
		return nil
	}
	return authority.Write(tlsFolder, name, template)
}

func serve() error {
	config, token, err := readConfig("server")
	if err != nil {
		return err
	}
	if len(token) < 16 {
		return errors.New("the token has less than 16 characters")
	}
	end, err := running("k3s")
	if err != nil {
		return err
	}
	defer end()
	if err := os.MkdirAll(tlsFolder, 0o700); err != nil {
		return err
	}
	parts := newParts()
	if err := startEtcd(parts); err != nil {
		return err
	}
	found, err := loadBootstrap(token)
	if err != nil {
		return err
	}
	if err := found.write(config, token); err != nil {
		return err
	}
	if err := startServer(parts, config); err != nil {
		return err
	}
	if err := remember("server starts"); err != nil {
		return err
	}
	failed := make(chan error, 2)
	admission, err := newAdmission(found, token)
	if err != nil {
		return err
	}
	go func() { failed <- admission.listen(config.NodeIP) }()
	go func() { failed <- deployManifests() }()
	if err := notifyReady(); err != nil {
		return err
	}
	if err := startNode(parts, config, config.NodeIP, token); err != nil {
		return err
	}
	return untilAsked(failed)
}

func startEtcd(parts *parts) error {
	err := parts.start("etcd", "--data-dir="+etcdFolder, "--listen-client-urls="+etcdClients, "--advertise-client-urls="+etcdClients,
		"--listen-peer-urls="+etcdPeers, "--initial-advertise-peer-urls="+etcdPeers, "--initial-cluster=default="+etcdPeers)
	if err != nil {
		return err
	}
	return waitUntil("etcd serves", func() error {
		_, err := output("", "etcdctl", "--endpoints="+etcdClients, "endpoint", "health")
		return err
	})
}

func startServer(parts *parts, config config) error {
	err := parts.start("kube-apiserver", "--etcd-servers="+etcdClients, "--advertise-address="+config.AdvertiseAddress,
		"--secure-port=6443", "--tls-cert-file="+tlsFolder+"/serving-kube-apiserver.pem",
		"--tls-private-key-file="+tlsFolder+"/serving-kube-apiserver-key.pem", "--client-ca-file="+tlsFolder+"/server-ca.crt",
		"--kubelet-client-certificate="+tlsFolder+"/client-kube-apiserver.pem",
		"--kubelet-client-key="+tlsFolder+"/client-kube-apiserver-key.pem", "--kubelet-certificate-authority="+tlsFolder+"/server-ca.crt",
		"--kubelet-preferred-address-types=InternalIP", "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file="+tlsFolder+"/service.key", "--service-account-key-file="+tlsFolder+"/service.key",
		"--service-cluster-ip-range=10.43.0.0/16", "--service-node-port-range=80-32767", "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--encryption-provider-config="+serverFolder+"/cred/encryption-config.yaml")
	if err != nil {
		return err
	}
	mode, err := parseMode(config.WriteKubeconfigMode)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(serverFolder + "/cred/admin.kubeconfig")
	if err != nil {
		return err
	}
	if err := errors.Join(writeFile(kubeconfigPath, text), os.Chmod(kubeconfigPath, mode)); err != nil {
		return err
	}
	err = waitUntil("the API server is ready", func() error {
		_, err := output("", "kubectl", "get", "--raw", "/readyz")
		return err
	})
	if err != nil {
		return err
	}
	controllers := []string{"--kubeconfig=" + serverFolder + "/cred/controller-manager.kubeconfig",
		"--root-ca-file=" + tlsFolder + "/server-ca.crt", "--service-account-private-key-file=" + tlsFolder + "/service.key",
		"--use-service-account-credentials", "--leader-elect=false", "--allocate-node-cidrs", "--cluster-cidr=10.42.0.0/16",
		"--service-cluster-ip-range=10.43.0.0/16"}
	for _, argument := range config.ControllerArguments {
		controllers = append(controllers, "--"+argument)
	}
	if err := parts.start("kube-controller-manager", controllers...); err != nil {
		return err
	}
	return parts.start("kube-scheduler", "--kubeconfig="+serverFolder+"/cred/scheduler.kubeconfig", "--leader-elect=false")
}

func parseMode(text string) (os.FileMode, error) {
	var mode os.FileMode
	_, err := fmt.Sscanf(text, "%o", &mode)
	return mode, err
}

// deployManifests applies the initial objects of the cluster, and the files of the folder of manifests, whenever they change.
func deployManifests() error {
	applied := map[string]string{}
	for ; ; time.Sleep(manifestPause) {
		for name, text := range manifests() {
			if applied[name] == text {
				continue
			}
			if _, err := output(text, "kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
				fmt.Fprintf(os.Stderr, "level=error msg=%q\n", fmt.Sprintf("manifest %s: %v", name, err))
				continue
			}
			applied[name] = text
		}
	}
}

// manifests returns the manifests by name. The file for Traefik holds settings of its chart, and not an object that the API server knows.
func manifests() map[string]string {
	found := map[string]string{"storage": storageClass}
	for _, name := range []string{"names.yaml", "ingress.yaml"} {
		found[name] = ownAddresses(name)
	}
	settings := ""
	files, _ := filepath.Glob(manifestsFolder + "/*.yaml")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if strings.Contains(string(text), "kind: HelmChartConfig") {
			settings = string(text)
			continue
		}
		found[file] = string(text)
	}
	text, err := traefik(settings)
	if err != nil {
		fmt.Fprintf(os.Stderr, "level=error msg=%q\n", "HelmChartConfig traefik: "+err.Error())
	} else {
		found["traefik"] = text
	}
	return found
}

// ownAddresses is a file of the lab with the addresses of k3s.
func ownAddresses(name string) string {
	text, err := machine.Files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return strings.NewReplacer("10.96.0.", "10.43.0.", "10.244.0.0/16", "10.42.0.0/16").Replace(string(text))
}

const storageClass = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local-path
  annotations: { storageclass.kubernetes.io/is-default-class: "true" }
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
`
