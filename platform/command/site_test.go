package command_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/command"
)

const (
	quickStart = "../docs/quick-start.md"
	publicKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHN0YW5kLWluLWtleS1vZi10aGUtdGVzdHMtMDAw me@example.com"
	// certManager stands for the manifests of cert-manager: the kind of issuers, and a webhook.
	certManager = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: clusterissuers.cert-manager.io }
spec:
  group: cert-manager.io
  names: { kind: ClusterIssuer, listKind: ClusterIssuerList, plural: clusterissuers, singular: clusterissuer }
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } }
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: { name: cert-manager-webhook }
webhooks:
- name: webhook.cert-manager.io
  clientConfig: { url: "ADDRESS/validate", caBundle: CA }
  rules: [{ apiGroups: [cert-manager.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [clusterissuers] }]
  admissionReviewVersions: [v1]
  sideEffects: None
`
)

var (
	sumOfAMD64 = strings.Repeat("a1", 32)
	sumOfARM64 = strings.Repeat("b2", 32)
)

// downloads stands for GitHub. Lists of checksums have other files as well.
func downloads(t *testing.T, manifests string) string {
	t.Helper()
	files := map[string]string{
		"/k3s-io/k3s/releases/download/v1.36.3+k3s1/sha256sum-amd64.txt":               strings.Repeat("0", 64) + "  k3s-airgap-images-amd64.tar\n" + sumOfAMD64 + "  k3s\n",
		"/k3s-io/k3s/releases/download/v1.36.3+k3s1/sha256sum-arm64.txt":               sumOfARM64 + "  k3s-arm64\n",
		"/k3s-io/k3s/releases/download/v1.30.0+k3s1/sha256sum-amd64.txt":               strings.Repeat("x", 64<<10),
		"/k3s-io/k3s/releases/download/v1.30.1+k3s1/sha256sum-amd64.txt":               strings.Repeat("x", 64<<10+1),
		"/cert-manager/cert-manager/releases/download/v1.21.2/cert-manager.yaml":       manifests,
		"/empty/k3s-io/k3s/releases/download/v1.36.3+k3s1/sha256sum-amd64.txt":         sumOfAMD64 + "  k3s\n",
		"/empty/k3s-io/k3s/releases/download/v1.36.3+k3s1/sha256sum-arm64.txt":         sumOfARM64 + "  k3s-arm64\n",
		"/empty/cert-manager/cert-manager/releases/download/v1.21.2/cert-manager.yaml": "<html>",
	}
	listening := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		text, isThere := files[request.URL.Path]
		if !isThere {
			http.NotFound(writer, request)
			return
		}
		_, _ = io.WriteString(writer, text)
	}))
	t.Cleanup(listening.Close)
	return listening.URL
}

// logsIn gives the user an SSH key.
func (person *person) logsIn() { person.write("home/.ssh/id_ed25519.pub", publicKey+"\n") }

// initSite makes a site of two machines.
func (person *person) initSite(downloads string, more ...string) {
	person.t.Helper()
	person.logsIn()
	person.roost(command.ExitFine, append([]string{"init", "@site", "--machines", "203.0.113.11=10.78.0.11,203.0.113.12=10.78.0.12", "--domain", "example.com",
		"--email", "ops@example.com", "--downloads", downloads}, more...)...)
}

// TestTheFilesOfASite checks them with the commands that read them.
func TestTheFilesOfASite(t *testing.T) {
	person := newPerson(t)
	address := downloads(t, certManager)
	person.initSite(address, "--image", "registry.example.com/shop:1.4.2", "--registry", "registry.example.net/team")
	out, _ := person.roost(command.ExitFine, "validate", "@site/apps")
	contains(t, out, "1 manifest, no problem")
	out, _ = person.roost(command.ExitFine, "render", "@site/apps")
	contains(t, out, "cert-manager.io/cluster-issuer: letsencrypt", "traefik.ingress.kubernetes.io/router.entrypoints: websecure", "host: shop.example.com")
	out, _ = person.roost(command.ExitFine, "secrets", "check", "@site")
	contains(t, out, "token.env: encrypted for 1 recipient, decrypted")
	person.stands("ansible-inventory", "cat <<'END'\n"+inventoryJSON+"\nEND")
	t.Setenv("PATH", filepath.Join(person.folder, "bin")+":"+os.Getenv("PATH"))
	out, _ = person.roost(command.ExitFine, "up", "--plan", "@site")
	contains(t, out, "set up or check the nodes server1, worker1", "read the kubeconfig of ops@203.0.113.11")
	contains(t, person.read("site/roost/operator.yaml"), "image: registry.example.net/team/roost-operator:", "--backup-image=registry.example.net/team/roost-backup:", "--https-entry-point=websecure")
	contains(t, person.read("site/issuer.yaml"), `email: "ops@example.com"`)
	contains(t, person.read("site/.gitignore"), "k3s.kubeconfig\nweb.txt\n")
	person.hasAnIdentityOfItsOwn()
	if person.read("site/cert-manager.yaml") != certManager {
		t.Error("cert-manager.yaml is not what was downloaded")
	}
	for _, name := range []string{"roost/machines/roles/k3s/tasks/main.yml", "roost/machines/tasks/private_interface.yml", "roost/machines/ansible.cfg", "roost/crd/apps.roost.dev_apps.yaml", "roost/roles.yaml", "roost/namespace.yaml"} {
		person.read("site/" + name)
	}
	if text := person.all.String(); strings.Contains(text, "AGE-SECRET-KEY") {
		t.Error("a key was printed")
	}
}

// hasAnIdentityOfItsOwn checks that the operator of a new site can decrypt the settings of apps, and not the token.
func (person *person) hasAnIdentityOfItsOwn() {
	t := person.t
	t.Helper()
	if info, err := os.Stat(filepath.Join(person.folder, "site/web.txt")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	person.write("site/apps/shop.env", "TOKEN="+canary+"\n")
	person.roost(command.ExitFine, "secrets", "encrypt", "@site/apps/shop.env")
	out, _ := person.roost(command.ExitFine, "secrets", "check", "--identity", "@site/web.txt", "@site/apps/shop.env")
	contains(t, out, "shop.env: encrypted for 2 recipients, decrypted")
	out, stderr := person.roost(command.ExitFound, "secrets", "check", "--identity", "@site/web.txt", "@site/token.env")
	contains(t, out+stderr, "token.env")
}

// TestFilesThatExistAreKept has a folder with files of its own. Private files of the site are in .gitignore all the same.
func TestFilesThatExistAreKept(t *testing.T) {
	for _, row := range []struct{ before, after string }{
		{"", "k3s.kubeconfig\nweb.txt\n"},
		{"notes", "notes\nk3s.kubeconfig\nweb.txt\n"},
		{"# web.txt k3s.kubeconfig\n", "# web.txt k3s.kubeconfig\nk3s.kubeconfig\nweb.txt\n"},
		{"/k3s.kubeconfig\n", "/k3s.kubeconfig\nweb.txt\n"},
		{"web.txt\nk3s.kubeconfig\n", "web.txt\nk3s.kubeconfig\n"},
	} {
		person := newPerson(t)
		person.write("site/.gitignore", row.before)
		person.write("site/issuer.yaml", "mine\n")
		person.roost(command.ExitFine, "secrets", "keygen", "@site/web.txt")
		identity := person.read("site/web.txt")
		person.initSite(downloads(t, certManager))
		if text := person.read("site/.gitignore"); text != row.after {
			t.Errorf("%q became %q", row.before, text)
		}
		contains(t, person.all.String(), "kept "+filepath.Join(person.folder, "site/issuer.yaml")+", which existed", "kept "+filepath.Join(person.folder, "site/web.txt"))
		if person.read("site/issuer.yaml") != "mine\n" || person.read("site/web.txt") != identity {
			t.Error("a file was changed")
		}
		person.hasAnIdentityOfItsOwn()
	}
	person := newPerson(t)
	person.write("site/web.txt", canary+"\n")
	person.logsIn()
	_, stderr := person.roost(command.ExitFailed, "init", "@site", "--machines", "203.0.113.11=10.78.0.11", "--domain", "example.com", "--email", "ops@example.com",
		"--downloads", downloads(t, certManager))
	contains(t, stderr, "web.txt is not a file of age identities; move it away")
	if strings.Contains(person.all.String(), canary) {
		t.Error("a key was printed")
	}
}

// TestAnsibleTakesTheFilesOfASite has Ansible itself read them, and find the program of each architecture.
func TestAnsibleTakesTheFilesOfASite(t *testing.T) {
	folder := os.Getenv("ROOST_TEST_ANSIBLE")
	if folder == "" {
		t.Skip("ROOST_TEST_ANSIBLE is not set; platform/test sets it")
	}
	person := newPerson(t)
	address := downloads(t, certManager)
	person.initSite(address)
	person.write("programs.yml", fmt.Sprintf(`- hosts: all
  gather_facts: false
  connection: local
  tasks:
  - ansible.builtin.set_fact: { architecture: "{{ machine }}", cacheable: true }
  - ansible.builtin.assert:
      quiet: true
      that:
      - k3s_binary_url == '%s/k3s-io/k3s/releases/download/v1.36.3%%2Bk3s1/' ~ program
      - k3s_binary_sha256 == sum
      - private_address == ('10.78.0.11' if inventory_hostname in groups['k3s_server'] else '10.78.0.12')
      - private_interface is not defined
`, address))
	ansible := func(arguments ...string) {
		t.Helper()
		run := exec.Command(filepath.Join(folder, "ansible-playbook"), append([]string{"-i", filepath.Join(person.folder, "site/hosts.yml")}, arguments...)...)
		run.Env = append(os.Environ(), "ANSIBLE_HOME="+t.TempDir(), "ANSIBLE_CONFIG="+filepath.Join(person.folder, "site/roost/machines/ansible.cfg"))
		if text, err := run.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", arguments, err, text)
		}
	}
	ansible("--syntax-check", filepath.Join(person.folder, "site/roost/machines/site.yml"))
	programs := filepath.Join(person.folder, "programs.yml")
	ansible(programs, "-e", "machine=x86_64 program=k3s sum="+sumOfAMD64)
	ansible(programs, "-e", "machine=aarch64 program=k3s-arm64 sum="+sumOfARM64)
}

// TestAnswersThatAreWrong has each with its remedy, as a flag. Nothing is written.
func TestAnswersThatAreWrong(t *testing.T) {
	person := newPerson(t)
	person.logsIn()
	address := downloads(t, certManager)
	person.write("private", "-----BEGIN OPENSSH PRIVATE KEY-----\n"+canary+"\n")
	person.write("damaged.pub", "ssh-ed25519 AAA me@example.com\n")
	right := []string{"--machines", "203.0.113.11=10.78.0.11", "--domain", "example.com", "--email", "ops@example.com", "--downloads", address}
	for _, row := range []struct {
		code                  int
		flag, value, sentence string
	}{
		{command.ExitFound, "--machines", " ", "--machines: there is no machine; write PUBLIC=PRIVATE, such as 203.0.113.11=10.78.0.11"},
		{command.ExitFound, "--machines", "203.0.113.11", `--machines[0]: "203.0.113.11" has no private address; write PUBLIC=PRIVATE, such as 203.0.113.11=10.78.0.11`},
		{command.ExitFound, "--machines", "203.0.113.11=10.78.0.11,203.0.113.12=10.78.0", `--machines[1]: "10.78.0" is not an IPv4 address; write one such as 203.0.113.11`},
		{command.ExitFound, "--machines", "server=10.78.0.11", `--machines[0]: "server" is not an IPv4 address; write one such as 203.0.113.11`},
		{command.ExitFound, "--machines", "2001:db8::1=10.78.0.11", `--machines[0]: "2001:db8::1" is not an IPv4 address; write one such as 203.0.113.11`},
		{command.ExitFound, "--machines", "127.0.0.1=10.78.0.11", `--machines[0]: "127.0.0.1" is not the address of a machine; write the one to which SSH connects`},
		{command.ExitFound, "--machines", "10.78.0.11=10.78.0.11", `--machines[0]: "10.78.0.11" is both addresses, and the firewall trusts the private network; write the address of another interface`},
		{command.ExitFound, "--machines", "203.0.113.11=203.0.113.12", `--machines[0]: "203.0.113.12" is not a private address; write the one on the network between the machines, such as 10.78.0.11`},
		{command.ExitFound, "--machines", "203.0.113.11=10.42.0.11", `--machines[0]: "10.42.0.11" is in 10.42.0.0/16, which k3s gives to pods; use another private network`},
		{command.ExitFound, "--machines", "203.0.113.11=10.43.255.1", `--machines[0]: "10.43.255.1" is in 10.43.0.0/16, which k3s gives to Services; use another private network`},
		{command.ExitFound, "--machines", "203.0.113.11=10.78.0.11 203.0.113.12=10.78.0.11", `--machines[1]: "10.78.0.11" is an address of --machines[0] as well; each machine has its own`},
		{command.ExitFound, "--domain", "example", `--domain: "example" is not a domain; write one such as example.com, in small letters`},
		{command.ExitFound, "--domain", "203.0.113.11", `--domain: "203.0.113.11" is not a domain; write one such as example.com, in small letters`},
		{command.ExitFound, "--domain", "Example.com", `--domain: "Example.com" is not a domain; write one such as example.com, in small letters`},
		{command.ExitFound, "--domain", "*.example.com", `--domain: "*.example.com" is not a domain; write one such as example.com, in small letters`},
		{command.ExitFound, "--email", "ops", `--email: "ops" is not an e-mail address; write one such as ops@example.com`},
		{command.ExitFound, "--email", "ops@localhost", `--email: "ops@localhost" is not an e-mail address; write one such as ops@example.com`},
		{command.ExitFound, "--email", "Ops <ops@example.com>", `--email: "Ops <ops@example.com>" is not an e-mail address; write one such as ops@example.com`},
		{command.ExitFound, "--image", "registry.example.com/shop", `--image: "registry.example.com/shop" has no tag and no digest, which means the tag latest; name a version or a digest`},
		{command.ExitFound, "--registry", "https://registry.example.com", `is not the name of an image; write registry/name:tag or registry/name@sha256:digest`},
		{command.ExitFound, "--k3s-version", "v1.36.3", `--k3s-version: "v1.36.3" is not a release of k3s; write one such as v1.36.3+k3s1`},
		{command.ExitFound, "--downloads", "http://mirror.example.com", `--downloads: "http://mirror.example.com" is not an address of HTTPS, so the checksums that it gives could be of anybody; write one such as https://github.com`},
		{command.ExitFailed, "--k3s-version", "v1.29.0+k3s1", "/v1.29.0%2Bk3s1/sha256sum-amd64.txt answers 404 Not Found; correct --k3s-version, or name a mirror with --downloads"},
		{command.ExitFailed, "--k3s-version", "v1.30.0+k3s1", "/v1.30.0%2Bk3s1/sha256sum-amd64.txt has no line of k3s; correct --downloads"},
		{command.ExitFailed, "--k3s-version", "v1.30.1+k3s1", "/v1.30.1%2Bk3s1/sha256sum-amd64.txt has more than 65536 bytes; correct --k3s-version"},
		{command.ExitFailed, "--downloads", address + "/empty", "cert-manager.yaml has no manifests; correct --downloads"},
		{command.ExitFailed, "--ssh-key", "@private", "private is not a file with one public key; name one such as ~/.ssh/id_ed25519.pub"},
		{command.ExitFailed, "--ssh-key", "@damaged.pub", "damaged.pub is damaged: "},
		{command.ExitFailed, "--ssh-key", "@nowhere.pub", "--ssh-key: open "},
		{command.ExitUsage, "--kind", "app", "--kind belongs to a manifest; name a folder and the app, or remove the flag"},
	} {
		out, stderr := person.roost(row.code, append(append([]string{"init", "@site"}, right...), row.flag, row.value)...)
		contains(t, out+stderr, row.sentence)
		if _, err := os.Stat(filepath.Join(person.folder, "site")); err == nil {
			t.Fatalf("%s %s: the site is written", row.flag, row.value)
		}
	}
	_, stderr := person.roost(command.ExitUsage, "init", "@apps", "shop", "--domain", "example.com")
	contains(t, stderr, "--domain belongs to a site; name only its folder")
	if err := os.Remove(filepath.Join(person.folder, "home/.ssh/id_ed25519.pub")); err != nil {
		t.Fatal(err)
	}
	_, stderr = person.roost(command.ExitFailed, append([]string{"init", "@site"}, right...)...)
	contains(t, stderr, "--ssh-key: there is none of ", "id_rsa.pub; make one with `ssh-keygen -t ed25519`, and give the machines its public key")
	if strings.Contains(person.all.String(), canary) {
		t.Error("a private key was printed")
	}
}

// TestAnExistingSite keeps its files. What comes with the program is written again where it is missing.
func TestAnExistingSite(t *testing.T) {
	person := newPerson(t)
	person.initSite(downloads(t, certManager))
	token, inventory := person.read("site/token.env"), person.read("site/hosts.yml")
	if err := os.RemoveAll(filepath.Join(person.folder, "site/roost/crd")); err != nil {
		t.Fatal(err)
	}
	out, stderr := person.roost(command.ExitFine, "init", "@site")
	if out != "wrote "+filepath.Join(person.folder, "site/roost")+"\n" {
		t.Error(out)
	}
	contains(t, stderr, "registry.example.com is a placeholder for a registry with Roost's images", "--registry REGISTRY`")
	contains(t, stderr, "site/roost: ", " files existed and are kept; after an upgrade of roost, delete the folder")
	person.read("site/roost/crd/apps.roost.dev_apps.yaml")
	out, _ = person.roost(command.ExitFound, "init", "@site", "--registry", "https://registry.example.net")
	contains(t, out, "--registry: ", "is not the name of an image")
	_, stderr = person.roost(command.ExitFailed, "init", "@site", "--registry", "registry.example.net")
	contains(t, stderr, "--registry: "+filepath.Join(person.folder, "site/roost/operator.yaml")+" exists and would be kept; delete "+filepath.Join(person.folder, "site/roost")+" first")
	if err := os.RemoveAll(filepath.Join(person.folder, "site/roost")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		person.roost(command.ExitFine, "init", "@site", "--registry", "registry.example.net")
	}
	contains(t, person.read("site/roost/operator.yaml"), "image: registry.example.net/roost-operator:")
	if person.read("site/token.env") != token || person.read("site/hosts.yml") != inventory {
		t.Error("a file of the site was changed")
	}
	_, stderr = person.roost(command.ExitUsage, "init", "@site", "--registry", "registry.example.net", "--domain", "example.org")
	contains(t, stderr, "--domain: ", "bootstrap.yaml exists, so nothing is asked; change the files, or name another folder")
}

// TestQuestionsAreAskedAgain has a wrong answer, and then no more.
func TestQuestionsAreAskedAgain(t *testing.T) {
	person := newPerson(t)
	person.logsIn()
	person.input = "203.0.113.11\n203.0.113.11=10.78.0.11\nexample.com\n"
	_, stderr := person.roost(command.ExitUsage, "init", "@site")
	if strings.Count(stderr, "Machines, the server first") != 2 {
		t.Error(stderr)
	}
	contains(t, stderr, `--machines[0]: "203.0.113.11" has no private address`, "--email is missing; set it, or answer the question")
}

// webhook stands for that of cert-manager. It answers from the third question on.
func webhook(t *testing.T) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	asked := &atomic.Int32{}
	listening := httptest.NewTLSServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		const silent = 2
		var review struct{ Request struct{ UID string } }
		if asked.Add(1) <= silent || json.NewDecoder(request.Body).Decode(&review) != nil {
			http.Error(writer, "starting", http.StatusServiceUnavailable)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(writer, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": %q, "allowed": true}}`, review.Request.UID)
	}))
	t.Cleanup(listening.Close)
	return listening, asked
}

// TestTheQuickStart runs the commands of the page as written, on a real API server: from three answers to an app that serves. Ansible, SSH, GitHub and
// cert-manager are stand-ins.
func TestTheQuickStart(t *testing.T) {
	var lines []string
	for line := range strings.Lines(blocks(t, quickStart, "bash")[0]) {
		if words, _, _ := strings.Cut(line, " #"); strings.HasPrefix(words, "roost ") {
			lines = append(lines, strings.TrimSpace(words))
		}
	}
	if len(lines) != 3 {
		t.Fatalf("%q", lines)
	}
	server := apiserver.ForTest(t)
	admin, err := client.NewWithWatch(server.Admin, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	site := &site{person: newPerson(t), server: server, admin: admin, log: &sharedBuffer{}}
	hook, asked := webhook(t)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	address := downloads(t, strings.NewReplacer("ADDRESS", hook.URL, "CA", ca).Replace(certManager))
	site.logsIn()
	site.write("kubeconfig", site.kubeconfig(server.Admin))
	site.stands("ansible-inventory", "cat <<'END'\n"+inventoryJSON+"\nEND")
	site.stands("ansible-playbook", `echo "$*" >> "`+site.folder+`/plays"; [ ${#K3S_TOKEN} = 64 ] && [ "$ANSIBLE_CONFIG" = site/roost/machines/ansible.cfg ]`)
	site.stands("ssh", `echo "$*" >> "`+site.folder+`/ssh"; [ "$1" = -N ] || exec cat "`+site.folder+`/kubeconfig"`)
	t.Setenv("PATH", filepath.Join(site.folder, "bin")+":"+os.Getenv("PATH"))
	t.Chdir(site.folder)
	site.makeNodes("v1.36.3+k3s1")
	site.runOperatorPods()
	site.runControllers()
	site.inBackground(func(ctx context.Context) {
		if err := apiserver.WaitForInstall(ctx, site.admin); err == nil {
			site.operate(ctx)
		}
	})

	site.input = "203.0.113.11=10.78.0.11, 203.0.113.12=10.78.0.12\nexample.com\nops@example.com\n"
	site.roost(command.ExitFine, append(strings.Fields(lines[0])[1:], "--downloads", address)...)
	out, stderr := site.roost(command.ExitFine, strings.Fields(lines[1])[1:]...)
	contains(t, out, "machines: done in", "operator: done in", "apps: done in", "`roost status --site site -A` shows the apps")
	contains(t, stderr, "[1/5] machines: set up or check the nodes server1, worker1\n", "[5/5] apps: deploy App web/shop\n", "[5/5] apps: done in")
	if asked.Load() < 3 || site.linesOf("plays") != 1 {
		t.Errorf("the webhook was asked %d times, %d plays", asked.Load(), site.linesOf("plays"))
	}
	var secret corev1.Secret
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: "roost-system", Name: "roost-identity"}, &secret); err != nil || len(secret.Data) != 1 || string(secret.Data["web.txt"]) != site.read("site/web.txt") {
		t.Errorf("the operator has %d files: %v", len(secret.Data), err)
	}
	out, _ = site.roost(command.ExitFine, strings.Fields(lines[2])[1:]...)
	contains(t, out, "shop", "all objects match the spec")
	out, _ = site.roost(command.ExitFine, "up", "site")
	if strings.Contains(out, "done in") {
		t.Errorf("a second run has done something:\n%s", out)
	}
	site.throughSSH()
}

// tunnelling stands for ssh: it leads from the near address of -L to the API server.
const tunnelling = `exec python3 -c '
import socket, socketserver, sys, threading
class Tunnel(socketserver.BaseRequestHandler):
    def handle(self):
        far = socket.create_connection(("HOST", PORT))
        threading.Thread(target=copy, args=(far, self.request), daemon=True).start()
        copy(self.request, far)
def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
near = sys.argv[1 + sys.argv.index("-L")].split(":")
socketserver.ThreadingTCPServer.daemon_threads = True
socketserver.ThreadingTCPServer((near[0], int(near[1])), Tunnel).serve_forever()
' "$@"`

// throughSSH has an API server that only a tunnel reaches, and one without its kubeconfig.
func (site *site) throughSSH() {
	t := site.t
	t.Helper()
	_, stderr := site.roost(command.ExitUsage, "status", "--site", "site", "--kubeconfig", "kubeconfig")
	contains(t, stderr, "--site and --kubeconfig are mutually exclusive; remove one of them")
	site.write("site/k3s.kubeconfig", strings.Replace(site.read("kubeconfig"), site.server.Admin.Host, "https://127.0.0.1:1", 1))
	_, stderr = site.roost(command.ExitFailed, "status", "--site", "site")
	contains(t, stderr, "the SSH tunnel to ops@203.0.113.11 closed; check that `ssh ops@203.0.113.11` works without a password")
	contains(t, site.read("ssh"), ":127.0.0.1:1 ops@203.0.113.11")
	site.stands("ssh", "echo 'Host key verification failed.' >&2; exit 255")
	_, stderr = site.roost(command.ExitFailed, "status", "--site", "site")
	contains(t, stderr, "the SSH tunnel to ops@203.0.113.11 closed: Host key verification failed; check that")
	far, err := url.Parse(site.server.Admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	site.stands("ssh", strings.NewReplacer("HOST", far.Hostname(), "PORT", far.Port()).Replace(tunnelling))
	out, _ := site.roost(command.ExitFine, "status", "--site", "site", "-A")
	contains(t, out, "shop", "all objects match the spec")
	site.roost(command.ExitFine, "deploy", "--site", "site", "site/apps")
	out, _ = site.roost(command.ExitFine, "identity", "create", "--site", "site", "-n", "web", "ann", "--role", "reader")
	contains(t, out, "https://127.0.0.1:1\n")
	if err := os.Remove(filepath.Join(site.folder, "site/k3s.kubeconfig")); err != nil {
		t.Fatal(err)
	}
	_, stderr = site.roost(command.ExitFailed, "status", "--site", "site")
	contains(t, stderr, "site/k3s.kubeconfig does not exist; `roost up site` writes it")
}
