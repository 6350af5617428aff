package command_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/command"
)

const (
	bootstrapToken = "bootstrap-token-c4n4ry"
	bootstrapYAML  = `inventory: hosts.yml
playbook: site.yml
token: token.env
ssh: ops@203.0.113.11
kubeconfig: k3s.kubeconfig
operator: [CRD, DEPLOY]
identities: [{ name: ci, namespace: web, role: deployer }]
argocd: [argocd.yaml]
apps: [apps]
`
	argoCD = `apiVersion: v1
kind: Namespace
metadata: { name: argocd }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: argocd-cm, namespace: argocd }
data: { timeout.reconciliation: 60s }
`
	inventoryJSON = `{"_meta": {"hostvars": {"server1": {"k3s_version": "v1.36.3+k3s1"}, "worker1": {"k3s_version": "v1.36.3+k3s1"}}},
"k3s_server": {"hosts": ["server1"]}, "k3s_agent": {"hosts": ["worker1"]}}`
)

// stands writes a program that replaces another one in this test.
func (person *person) stands(name, script string) {
	person.t.Helper()
	person.write("bin/"+name, "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(filepath.Join(person.folder, "bin", name), 0o700); err != nil {
		person.t.Fatal(err)
	}
}

// bare is a user with a folder for bootstrap, a real API server without objects of Roost, and fake Ansible and SSH programs. Nodes appear when
// the playbook has run.
func bare(t *testing.T) *site {
	t.Helper()
	server := apiserver.ForTest(t)
	admin, err := client.NewWithWatch(server.Admin, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	site := &site{person: newPerson(t), server: server, admin: admin, log: &sharedBuffer{}}
	site.roost(command.ExitFine, "init", "@cluster/apps", "shop", "--namespace", "web", "--image", "registry.example.com/shop:1.4.2", "--host", "shop.example.com")
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	site.write("cluster/bootstrap.yaml", strings.NewReplacer("CRD", root+"/crd", "DEPLOY", root+"/deploy").Replace(bootstrapYAML))
	site.write("cluster/argocd.yaml", argoCD)
	site.write("cluster/roost.yaml", site.read("cluster/apps/roost.yaml"))
	site.write("cluster/token.env", "K3S_TOKEN="+bootstrapToken+"\nK3S_COPIES_PASSWORD="+bootstrapToken+"-copies\nOTHER=1\n")
	site.roost(command.ExitFine, "secrets", "encrypt", "@cluster/token.env")
	site.write("kubeconfig", site.kubeconfig(server.Admin))
	site.stands("ansible-inventory", "cat <<'END'\n"+inventoryJSON+"\nEND")
	site.stands("ansible-playbook", `echo "$*" >> "`+site.folder+`/plays"; [ "$K3S_TOKEN,$K3S_COPIES_PASSWORD,$OTHER" = `+bootstrapToken+`,`+bootstrapToken+`-copies, ] || exit 4; [ ! -e "`+site.folder+`/broken" ]`)
	site.stands("ssh", `echo "$*" >> "`+site.folder+`/ssh"; exec cat "`+site.folder+`/kubeconfig"`)
	t.Setenv("PATH", filepath.Join(site.folder, "bin")+":"+os.Getenv("PATH"))
	return site
}

// makeNodes acts as the kubelets once the playbook has run.
func (site *site) makeNodes(version string) {
	site.t.Helper()
	for _, name := range []string{"server1", "worker1"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := site.admin.Create(site.t.Context(), node); err != nil && !apierrors.IsAlreadyExists(err) {
			site.t.Fatal(err)
		}
		if err := site.admin.Get(site.t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
			site.t.Fatal(err)
		}
		node.Status.NodeInfo.KubeletVersion = version
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if err := site.admin.Status().Update(site.t.Context(), node); err != nil {
			site.t.Fatal(err)
		}
	}
}

// runOperatorPods makes the Deployment of the operator available.
func (site *site) runOperatorPods() {
	site.inBackground(func(ctx context.Context) {
		if err := apiserver.KeepFinished(ctx, site.admin, client.InNamespace("roost-system")); err != nil {
			site.t.Error(err)
		}
	})
}

// linesOf returns the number of lines that a fake program has written.
func (site *site) linesOf(name string) int {
	text, _ := os.ReadFile(filepath.Join(site.folder, name))
	return strings.Count(string(text), "\n")
}

func TestBootstrapTakesNoNameForAnOption(t *testing.T) {
	person := newPerson(t)
	for wrong, sentence := range map[string]string{
		"ssh: -oProxyCommand=touch-marker":     `ssh "-oProxyCommand=touch-marker" begins with -; write another name`,
		"ssh: ops@-oProxyCommand=touch-marker": `ssh "ops@-oProxyCommand=touch-marker" begins with -; write another name`,
		"inventory: --connection=local":        `inventory "--connection=local" begins with -; write another name`,
		"playbook: -eansible_connection=local": `playbook "-eansible_connection=local" begins with -; write another name`,
	} {
		key, _, _ := strings.Cut(wrong, ":")
		lines := strings.Split(bootstrapYAML, "\n")
		for number, line := range lines {
			if strings.HasPrefix(line, key+":") {
				lines[number] = wrong
			}
		}
		person.write("cluster/bootstrap.yaml", strings.Join(lines, "\n"))
		_, stderr := person.roost(command.ExitFailed, "bootstrap", "@cluster")
		contains(t, stderr, sentence)
	}
}

func (site *site) operatorDeployment() *appsv1.Deployment {
	site.t.Helper()
	var deployment appsv1.Deployment
	if err := site.admin.Get(site.t.Context(), client.ObjectKey{Namespace: "roost-system", Name: "roost-operator"}, &deployment); err != nil {
		site.t.Fatal(err)
	}
	return &deployment
}

func TestBootstrapFromBareMachines(t *testing.T) {
	site := bare(t)
	out, _ := site.roost(command.ExitFine, "bootstrap", "--plan", "@cluster")
	contains(t, out, "set up or check the nodes server1, worker1", "read the kubeconfig of ops@203.0.113.11", "cannot be reached yet")
	if site.linesOf("plays")+site.linesOf("ssh") != 0 {
		t.Error("the plan has run something")
	}

	// The playbook fails, and the next run begins there. Then the playbook succeeds, and the nodes are not ready.
	site.write("broken", "")
	_, stderr := site.roost(command.ExitFailed, "bootstrap", "@cluster")
	contains(t, stderr, "step 1 of 6, machines: ansible-playbook: exit status 1", "run the command again")
	if err := os.Remove(filepath.Join(site.folder, "broken")); err != nil {
		t.Fatal(err)
	}
	_, stderr = site.roost(command.ExitFailed, "bootstrap", "@cluster")
	contains(t, stderr, "still pending: set up the node server1; set up the node worker1")

	// The operator does not become available within --wait.
	site.makeNodes("v1.36.3+k3s1")
	_, stderr = site.roost(command.ExitFailed, "bootstrap", "--wait", "3s", "@cluster")
	contains(t, stderr, "step 3 of 6, operator: timed out after 3s waiting for the operator to become available")
	plays := site.linesOf("plays")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "roost-system", Name: "roost-operator-1", Labels: map[string]string{"app.kubernetes.io/name": "roost-operator"}}}
	pod.Spec = site.operatorDeployment().Spec.Template.Spec
	if err := site.admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	waiting := &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such host"}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Waiting: waiting}}}
	if err := site.admin.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	_, stderr = site.roost(command.ExitFailed, "bootstrap", "--wait", "1s", "@cluster")
	contains(t, stderr, "waiting for the operator to become available: roost-operator-1: ImagePullBackOff: no such host; fix the cause, or set a longer --wait")
	if err := site.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}

	site.runOperatorPods()
	site.runOperator()
	site.runControllers()
	out, _ = site.roost(command.ExitFine, "bootstrap", "@cluster")
	contains(t, out, "machines: already done", "connection: already done", "identities: done in", "argocd: done in", "apps: done in")
	if site.linesOf("plays") != plays {
		t.Error("the playbook has run, though all nodes were ready")
	}
	for _, place := range []string{"plays", "ssh"} {
		if strings.Contains(site.read(place), bootstrapToken) {
			t.Errorf("the token is in the arguments of %s", place)
		}
	}
	if strings.Contains(site.all.String(), bootstrapToken) {
		t.Error("the token was printed")
	}
	if info, err := os.Stat(filepath.Join(site.folder, "cluster/k3s.kubeconfig")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}

	// A second run changes nothing, and a later change is found.
	out, _ = site.roost(command.ExitFine, "bootstrap", "@cluster")
	if strings.Contains(out, "done in") {
		t.Errorf("a second run has done something:\n%s", out)
	}
	site.addsKeys()
	site.drifts()
}

// drifts checks that bootstrap finds differences from its folder.
func (site *site) drifts() {
	site.t.Helper()
	site.makeNodes("v1.35.0+k3s1")
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "argocd-cm"}}
	if err := site.admin.Delete(site.t.Context(), configMap); err != nil {
		site.t.Fatal(err)
	}
	site.write("cluster/apps/shop.yaml", strings.Replace(site.read("cluster/apps/shop.yaml"), "shop:1.4.2", "shop:1.5.0", 1))
	out, _ := site.roost(command.ExitFine, "bootstrap", "--plan", "@cluster")
	contains(site.t, out, "server1: change k3s from v1.35.0+k3s1 to v1.36.3+k3s1", "apply ConfigMap argocd-cm in argocd", "deploy App web/shop", "operator    nothing")
	site.roost(command.ExitFine, "identity", "revoke", "ci", "-n", "web", "--kubeconfig", filepath.Join(site.folder, "kubeconfig"))
	out, _ = site.roost(command.ExitFine, "bootstrap", "--plan", "@cluster")
	contains(site.t, out, "create ci (deployer in web)")
}

// addsKeys adds an age identity for a further namespace. Those that the Secret has stay.
func (site *site) addsKeys() {
	site.t.Helper()
	before := site.read("cluster/bootstrap.yaml")
	site.write("cluster/bootstrap.yaml", before+"ageIdentities: [keys/web.txt, keys/jobs.txt]\n")
	_, stderr := site.roost(command.ExitFailed, "bootstrap", "@cluster")
	contains(site.t, stderr, "ageIdentities: open ", "keys/web.txt: no such file or directory; `roost secrets keygen ")
	if err := os.Mkdir(filepath.Join(site.folder, "cluster/keys"), 0o700); err != nil {
		site.t.Fatal(err)
	}
	site.roost(command.ExitFine, "secrets", "keygen", "@cluster/keys/web.txt")
	site.write("cluster/keys/jobs.txt", "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p\n")
	_, stderr = site.roost(command.ExitFailed, "bootstrap", "@cluster")
	contains(site.t, stderr, "keys/jobs.txt is not a file of age identities")
	site.write("cluster/keys/jobs.txt", site.read("cluster/keys/web.txt"))
	out, _ := site.roost(command.ExitFine, "bootstrap", "--plan", "@cluster")
	contains(site.t, out, "apply web.txt in Secret roost-identity in roost-system, jobs.txt in Secret roost-identity in roost-system")
	site.roost(command.ExitFine, "bootstrap", "@cluster")
	var secret corev1.Secret
	if err := site.admin.Get(site.t.Context(), client.ObjectKey{Namespace: "roost-system", Name: "roost-identity"}, &secret); err != nil {
		site.t.Fatal(err)
	}
	if len(secret.Data) != 3 || string(secret.Data["jobs.txt"]) != site.read("cluster/keys/jobs.txt") || len(secret.Data["identity.txt"]) == 0 {
		site.t.Errorf("%d files", len(secret.Data))
	}
	site.addsNamespaces(before)
	site.write("cluster/bootstrap.yaml", before)
}

// addsNamespaces has the operator manage more namespaces. It is not started before each of them has an age identity, and files that the Secret has are
// not needed on this machine.
func (site *site) addsNamespaces(bootstrapYAML string) {
	t := site.t
	t.Helper()
	deploy := func(namespaces string) {
		for _, name := range []string{"namespace.yaml", "operator.yaml", "roles.yaml"} {
			text, err := os.ReadFile(filepath.Join("../deploy", name))
			if err != nil {
				t.Fatal(err)
			}
			site.write("cluster/deploy/"+name, strings.Replace(string(text), "[--namespaces=web,", `["--namespaces=`+namespaces+`",`, 1))
		}
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	yaml := strings.Replace(bootstrapYAML, root+"/deploy", "deploy", 1)
	site.write("cluster/bootstrap.yaml", yaml)
	deploy("web,more")
	for _, option := range []string{"--plan", "--wait=1m"} {
		_, stderr := site.roost(command.ExitFailed, "bootstrap", option, "@cluster")
		contains(t, stderr, "operator: the operator would manage 2 namespaces without an age identity for more; add NAMESPACE.txt for each to ageIdentities")
	}
	if arguments := site.argumentsOfOperator(); !strings.Contains(arguments, "--namespaces=web ") {
		t.Errorf("the operator was changed: %s", arguments)
	}
	site.write("cluster/bootstrap.yaml", yaml+"ageIdentities: [keys/web.txt, keys/jobs.txt, keys/more.txt]\n")
	site.roost(command.ExitFine, "secrets", "keygen", "@cluster/keys/more.txt")
	for _, name := range []string{"web.txt", "jobs.txt"} {
		if err := os.Remove(filepath.Join(site.folder, "cluster/keys", name)); err != nil {
			t.Fatal(err)
		}
	}
	site.roost(command.ExitFine, "bootstrap", "@cluster")
	if arguments := site.argumentsOfOperator(); !strings.Contains(arguments, "--namespaces=web,more ") {
		t.Errorf("the operator has %s", arguments)
	}
	site.write("cluster/bootstrap.yaml", bootstrapYAML)
	site.roost(command.ExitFine, "bootstrap", "@cluster")
}

func (site *site) argumentsOfOperator() string {
	site.t.Helper()
	var deployment appsv1.Deployment
	if err := site.admin.Get(site.t.Context(), client.ObjectKey{Namespace: "roost-system", Name: "roost-operator"}, &deployment); err != nil {
		site.t.Fatal(err)
	}
	return strings.Join(deployment.Spec.Template.Spec.Containers[0].Args, " ") + " "
}

func TestBootstrapFilesThatAreWrong(t *testing.T) {
	person := newPerson(t)
	for _, row := range [][2]string{
		{"inventory: hosts.yml\n", "has no "},
		{"invntory: hosts.yml\n", "unknown field"},
		{strings.Replace(bootstrapYAML, "apps: [apps]", "apps: []", 1), "has no operator or no apps"},
		{strings.Replace(bootstrapYAML, "inventory:", "inventory: !hosts", 1), "inventory: the value begins with !"},
	} {
		person.write("cluster/bootstrap.yaml", row[0])
		_, stderr := person.roost(command.ExitFailed, "bootstrap", "--plan", "@cluster")
		contains(t, stderr, row[1], "roost help up")
	}
	for identity, sentence := range map[string]string{
		"{ name: C I, namespace: web, role: deployer }":   `bootstrap.yaml: identities[0].name: "C I" is not the name of an access identity; use a-z, 0-9 and -`,
		"{ name: ci, namespace: Web, role: deployer }":    `bootstrap.yaml: identities[0].namespace: "Web" is not the name of a namespace; use a-z, 0-9 and -`,
		"{ name: ci, namespace: web, role: deploy-role }": `bootstrap.yaml: identities[0].role: "deploy-role" is not a role; write deployer, reader, runner, debugger or operator`,
	} {
		before, _, _ := strings.Cut(bootstrapYAML, "identities:")
		person.write("cluster/bootstrap.yaml", before+"identities: ["+identity+"]\napps: [apps]\n")
		_, stderr := person.roost(command.ExitFailed, "bootstrap", "--plan", "@cluster")
		contains(t, stderr, sentence)
	}
	person.write("cluster/bootstrap.yaml", bootstrapYAML+"ageIdentities: [web.txt, keys/jobs.key]\n")
	_, stderr := person.roost(command.ExitFailed, "bootstrap", "--plan", "@cluster")
	contains(t, stderr, `bootstrap.yaml: ageIdentities[1]: "keys/jobs.key" is not named after a namespace; write NAMESPACE.txt`)
	person.write("cluster/bootstrap.yaml", bootstrapYAML+"ageIdentities: [new/web.txt, jobs.txt, old/web.txt]\n")
	_, stderr = person.roost(command.ExitFailed, "bootstrap", "--plan", "@cluster")
	contains(t, stderr, `bootstrap.yaml: ageIdentities[2]: "old/web.txt" has the same name as "new/web.txt", and the Secret has one file of each name; remove one of them`)
	_, stderr = person.roost(command.ExitFailed, "bootstrap", "@nowhere")
	contains(t, stderr, "roost help up")
	person.roost(command.ExitUsage, "bootstrap")
}
