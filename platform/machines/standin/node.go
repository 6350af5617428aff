package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dunlin-project/dunlin/platform/lab/machine"
)

const (
	containerdSocket = "/run/k3s/containerd/containerd.sock"
	containerdFolder = agentFolder + "/containerd"
	cniFolder        = agentFolder + "/etc/cni/net.d"
	imagesFolder     = agentFolder + "/images"
	routePause       = 2 * time.Second
	joinSeconds      = 10
)

// join makes this machine an agent.
func join() error {
	config, token, err := readConfig("agent")
	if err != nil {
		return err
	}
	end, err := running("k3s-agent")
	if err != nil {
		return err
	}
	defer end()
	if err := remember("agent starts"); err != nil {
		return err
	}
	address, isFull := strings.CutSuffix(strings.TrimPrefix(config.Server, "https://"), ":6443")
	if !isFull {
		return fmt.Errorf("the stand-in expects a server such as https://10.0.0.1:6443, not %s", config.Server)
	}
	if err := startNode(newParts(), config, address, token); err != nil {
		return err
	}
	return untilAsked(nil)
}

// startNode joins the cluster of the server at an address, and starts the parts of a node.
func startNode(parts *parts, config config, address, token string) error {
	if err := admitted(config, address, token); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, `level=info msg="joined"`)
	if err := startContainerd(parts); err != nil {
		return err
	}
	if err := startKubelet(parts, config); err != nil {
		return err
	}
	connection, err := clientcmd.BuildConfigFromFlags("", agentFolder+"/kubeproxy.kubeconfig")
	if err != nil {
		return err
	}
	cluster, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return err
	}
	if err := joinNetwork(cluster, config.NodeName); err != nil {
		return err
	}
	if err := masquerade(); err != nil {
		return err
	}
	go keepRoutes(cluster, config.NodeName)
	proxy := strings.NewReplacer("/opt/lab/proxy.kubeconfig", agentFolder+"/kubeproxy.kubeconfig").Replace(ownAddresses("kube-proxy.yaml"))
	// Port 80 listens on all addresses of the node, as with servicelb.
	if err := writeFile(agentFolder+"/etc/kube-proxy.yaml", []byte(proxy+"nodePortAddresses: [0.0.0.0/0]\n")); err != nil {
		return err
	}
	// The rules of k3s remain after it stops. Those of a restarted kube-proxy do not: with Debian's nft 1.0.6, the maps of its nftables are
	// empty after its first pass, until the next change.
	return parts.startOnce("kube-proxy", "--config="+agentFolder+"/etc/kube-proxy.yaml", "--hostname-override="+config.NodeName)
}

// admitted requests certificates from the server until it returns them, and logs each other response once.
func admitted(config config, address, token string) error {
	password, err := os.ReadFile(passwordPath)
	if os.IsNotExist(err) {
		password = []byte(rand.Text())
		err = writeFile(passwordPath, password)
	}
	if err != nil {
		return err
	}
	asked := joining{config.NodeName, config.NodeIP, string(password), defaultStoragePath}
	said := ""
	for {
		answer, err := ask(asked, address, token)
		if err == nil {
			return keep(answer, address)
		}
		if said != err.Error() {
			said = err.Error()
			fmt.Fprintf(os.Stderr, "level=error msg=%q\n", "Failed to validate connection to cluster at "+address+": "+said)
		}
		time.Sleep(routePause)
	}
}

// ask verifies the server with the certificate of its authority. It takes that certificate from the server the first time, as k3s does with a
// token without the checksum of the authority.
func ask(asked joining, address, token string) (joined, error) {
	var answer joined
	authority, err := os.ReadFile(agentFolder + "/server-ca.crt")
	if err != nil {
		if authority, err = call(nil, http.MethodGet, "https://"+address+":"+joinPort+"/cacerts", "", nil); err != nil {
			return answer, err
		}
	}
	body, err := json.Marshal(asked)
	if err != nil {
		return answer, err
	}
	text, err := call(authority, http.MethodPost, "https://"+address+":"+joinPort+"/join", token, body)
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(text, &answer)
}

func call(authority []byte, method, url, token string, body []byte) ([]byte, error) {
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, InsecureSkipVerify: authority == nil}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: joinSeconds * time.Second}
	request, err := http.NewRequestWithContext(context.Background(), method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.SetBasicAuth("node", token)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
	}
	return text, err
}

// keep writes certificates that do not exist yet, and the kubeconfigs.
func keep(answer joined, address string) error {
	for name, content := range answer.Files {
		path := filepath.Join(agentFolder, name)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := writeFile(path, content); err != nil {
			return err
		}
	}
	for name, client := range map[string]string{"kubelet": "client-kubelet", "kubeproxy": "client-kube-proxy"} {
		text, err := connection(answer.Files["server-ca.crt"], "https://"+address+":6443", agentFolder, client)
		if err != nil {
			return err
		}
		if err := writeFile(agentFolder+"/"+name+".kubeconfig", text); err != nil {
			return err
		}
	}
	return makeFolders(defaultStoragePath)
}

func startContainerd(parts *parts) error {
	text := strings.NewReplacer("/opt/machine/cni", cniFolder, "/usr/lib/cni", partsFolder+"/cni").Replace(ownAddresses("containerd.toml"))
	file := agentFolder + "/etc/containerd/config.toml"
	if err := errors.Join(writeFile(file, []byte(text)), os.MkdirAll(cniFolder, 0o700)); err != nil {
		return err
	}
	err := parts.start("containerd", "--config="+file, "--address="+containerdSocket, "--root="+containerdFolder, "--state=/run/k3s/containerd/state")
	if err != nil {
		return err
	}
	err = waitUntil("containerd serves", func() error {
		_, err := ctr("version")
		return err
	})
	if err != nil {
		return err
	}
	return importImages()
}

func ctr(arguments ...string) (string, error) {
	return output("", "ctr", append([]string{"--address=" + containerdSocket, "--namespace=k8s.io"}, arguments...)...)
}

// importImages handles the folder of images as k3s does. A list records which files containerd has imported.
func importImages() error {
	list := containerdFolder + "/imported"
	before, _ := os.ReadFile(list)
	names := strings.Fields(string(before))
	files, err := filepath.Glob(imagesFolder + "/*.tar")
	if err != nil {
		return err
	}
	for _, file := range files {
		if slices.Contains(names, file) {
			continue
		}
		if _, err := ctr("images", "import", file); err != nil {
			return err
		}
		names = append(names, file)
		if err := writeFile(list, []byte(strings.Join(names, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

func startKubelet(parts *parts, config config) error {
	if err := hideKernel(); err != nil {
		return err
	}
	text := strings.NewReplacer("/opt/lab/ca.pem", agentFolder+"/server-ca.crt", "/run/containerd/containerd.sock", containerdSocket).
		Replace(ownAddresses("kubelet.yaml"))
	file := agentFolder + "/etc/kubelet.yaml"
	if err := writeFile(file, []byte(text)); err != nil {
		return err
	}
	arguments := []string{
		"--config=" + file, "--kubeconfig=" + agentFolder + "/kubelet.kubeconfig", "--hostname-override=" + config.NodeName,
		"--node-ip=" + config.NodeIP, "--tls-cert-file=" + agentFolder + "/serving-kubelet.pem",
		"--tls-private-key-file=" + agentFolder + "/serving-kubelet-key.pem",
	}
	for _, argument := range config.KubeletArguments {
		arguments = append(arguments, "--"+argument)
	}
	return parts.start("kubelet", arguments...)
}

// hideKernel prevents the kubelet from setting values of the kernel, which the machine shares with its host.
func hideKernel() error {
	if exec.Command("mountpoint", "-q", "/proc/sys/kernel/panic").Run() == nil {
		return nil
	}
	script, err := machine.Files.ReadFile("kernel")
	if err != nil {
		return err
	}
	command := exec.Command("/bin/sh", "-s")
	command.Stdin = bytes.NewReader(script)
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("settings of the kernel: %w: %s", err, out)
	}
	return nil
}

const bridgeConfig = `{
  "cniVersion": "0.4.0", "name": "cbr0",
  "plugins": [{ "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": %q }]], "routes": [{ "dst": "0.0.0.0/0" }] } }]
}
`

// joinNetwork waits for the node's part of the pod network.
func joinNetwork(cluster *kubernetes.Clientset, name string) error {
	return waitUntil("the node has a network of pods", func() error {
		node, err := cluster.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node.Spec.PodCIDR == "" {
			return errors.New("spec.podCIDR is empty")
		}
		return writeFile(cniFolder+"/10-bridge.conflist", fmt.Appendf(nil, bridgeConfig, node.Spec.PodCIDR))
	})
}

// masquerade replaces the source address of outgoing connections of pods with that of their node, as flannel does.
func masquerade() error {
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(`add table ip k3s-pods
flush table ip k3s-pods
table ip k3s-pods {
  chain outside {
    type nat hook postrouting priority srcnat;
    ip saddr 10.42.0.0/16 ip daddr != 10.42.0.0/16 masquerade
  }
}
`)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

// keepRoutes adds routes to the pods of other nodes, each through the node's private address.
func keepRoutes(cluster *kubernetes.Clientset, own string) {
	set := map[string]string{}
	for ; ; time.Sleep(routePause) {
		nodes, err := cluster.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, node := range nodes.Items {
			address := internalAddress(node)
			if node.Name == own || node.Spec.PodCIDR == "" || address == "" || set[node.Spec.PodCIDR] == address {
				continue
			}
			if exec.Command("ip", "route", "replace", node.Spec.PodCIDR, "via", address).Run() == nil {
				set[node.Spec.PodCIDR] = address
			}
		}
	}
}

func internalAddress(node corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}
