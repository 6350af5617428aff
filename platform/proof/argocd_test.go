package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/ports"
)

const (
	// syncedMax bounds the wait for Argo CD on a busy machine.
	syncedMax = 5 * time.Minute
	argoText  = "app.kubernetes.io/part-of"
)

// argoCD is a real Argo CD without its user interface: the application controller and the server of repositories.
type argoCD struct {
	*team
	server     *apiserver.Server
	repository string
	// address of the repository.
	address string
	logs    []string
}

// TestArgoCD has a real Argo CD sync the sample repository.
func TestArgoCD(t *testing.T) {
	programs := os.Getenv("ROOST_TEST_ARGOCD_PROGRAMS")
	if os.Getenv("ROOST_TEST_WHOLE") == "" || programs == "" {
		t.Skip("ROOST_TEST_WHOLE and ROOST_TEST_ARGOCD_PROGRAMS are not both set; `make gitops` sets them")
	}
	argo := newArgoCD(t)
	argo.runControllers()
	argo.collectGarbage()
	argo.push("1.4.2", "LOG_LEVEL=info\nTOKEN=one\n")
	argo.start(programs)
	begin := time.Now()
	argo.apply()
	argo.waitUntil("Synced", "Healthy", "registry.example.com/shop:1.4.2 b25l")
	t.Logf("synced and serving %s after the Application was made", time.Since(begin).Round(time.Millisecond))

	begin = time.Now()
	argo.push("2.0.0", "LOG_LEVEL=info\nTOKEN=two\n")
	argo.waitUntil("Synced", "Healthy", "registry.example.com/shop:2.0.0 dHdv")
	t.Logf("another image and secret serve %s after the push; Argo CD looks every 5 s", time.Since(begin).Round(time.Millisecond))
	argo.onlyNewestFiles()

	begin = time.Now()
	app := argo.app()
	before := app.DeepCopy()
	if err := unstructured.SetNestedField(app.Object, "registry.example.com/shop:by-hand", "spec", "image"); err != nil {
		t.Fatal(err)
	}
	if err := argo.admin.Patch(t.Context(), app, client.MergeFrom(before), client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	argo.wait("a change by hand is undone", func() bool {
		image, _, _ := unstructured.NestedString(argo.app().Object, "spec", "image")
		return image == "registry.example.com/shop:2.0.0"
	})
	t.Logf("a change by hand is undone after %s", time.Since(begin).Round(time.Millisecond))
	argo.pushForbidden()
}

func newArgoCD(t *testing.T) *argoCD {
	t.Helper()
	team, server := newTeamOn(t)
	argo := &argoCD{team: team, server: server, repository: filepath.Join(t.TempDir(), "deployments.git")}
	argo.git("", "init", "-q", "--bare", "-b", "main", argo.repository)
	argo.git("", "-C", argo.folder, "init", "-q", "-b", "main")
	execPath := strings.TrimSpace(argo.git("", "--exec-path"))
	served := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(execPath, "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(argo.repository), "GIT_HTTP_EXPORT_ALL=1", "HOME=" + argo.home},
	})
	t.Cleanup(served.Close)
	argo.address = served.URL + "/deployments.git"
	argo.installDefinitions()
	argo.configure()
	return argo
}

// collectGarbage does the part of Kubernetes' garbage collector: Argo CD deletes with the finalizer foregroundDeletion.
func (argo *argoCD) collectGarbage() {
	argo.inBackground(func(ctx context.Context) {
		for ctx.Err() == nil {
			var files corev1.ConfigMapList
			if err := argo.admin.List(ctx, &files, client.InNamespace("web")); err != nil && ctx.Err() == nil {
				argo.t.Error(err)
			}
			for index := range files.Items {
				leaving := &files.Items[index]
				if leaving.DeletionTimestamp == nil {
					continue
				}
				leaving.Finalizers = nil
				if err := argo.admin.Update(ctx, leaving); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
					argo.t.Error(err)
				}
			}
			time.Sleep(50 * time.Millisecond) // between two looks
		}
	})
}

func (argo *argoCD) git(folder string, arguments ...string) string {
	argo.t.Helper()
	call := exec.Command("git", arguments...)
	call.Dir = folder
	call.Env = append(os.Environ(), "HOME="+argo.home, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=team", "GIT_AUTHOR_EMAIL=team@example.com",
		"GIT_COMMITTER_NAME=team", "GIT_COMMITTER_EMAIL=team@example.com")
	output, err := call.CombinedOutput()
	if err != nil {
		argo.t.Fatalf("git %v: %v: %s", arguments, err, output)
	}
	return string(output)
}

// push commits another image and other settings.
func (argo *argoCD) push(image, settings string) {
	argo.t.Helper()
	argo.commit(image, settings)
	argo.pushAll()
}

func (argo *argoCD) pushAll() {
	argo.t.Helper()
	argo.git(argo.folder, "add", "-A")
	argo.git(argo.folder, "commit", "-q", "-m", "release")
	argo.git(argo.folder, "push", "-q", argo.repository, "main")
}

func (argo *argoCD) installDefinitions() {
	argo.t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("ROOST_TEST_ARGOCD"), "*-crd.yaml"))
	if err != nil || len(files) == 0 {
		argo.t.Fatalf("ROOST_TEST_ARGOCD has no definitions: %v", err)
	}
	for _, file := range files {
		for _, definition := range documents(argo.t, file) {
			argo.mustCreate(definition)
		}
	}
}

func (argo *argoCD) mustCreate(object client.Object) {
	argo.t.Helper()
	if err := argo.admin.Create(argo.t.Context(), object); err != nil {
		argo.t.Fatalf("%s: %v", object.GetName(), err)
	}
}

// configure makes what Argo CD's own manifests make, with our settings, and registers the cluster with the rights of rights.yaml.
func (argo *argoCD) configure() {
	t := argo.t
	t.Helper()
	argo.mustCreate(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "argocd"}})
	part := map[string]string{argoText: "argocd"}
	for _, name := range []string{"argocd-cmd-params-cm", "argocd-rbac-cm", "argocd-ssh-known-hosts-cm", "argocd-tls-certs-cm", "argocd-gpg-keys-cm"} {
		argo.mustCreate(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: name, Labels: part}})
	}
	argo.mustCreate(documents(t, argoFolder+"/argocd-cm.yaml")[0])
	argo.mustCreate(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "argocd-secret", Labels: part},
		Data:       map[string][]byte{"server.secretkey": []byte("of the test")},
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "argocd-application-controller"}}
	argo.mustCreate(account)
	request := &authenticationv1.TokenRequest{}
	if err := argo.admin.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{
		"bearerToken": request.Status.Token, "tlsClientConfig": map[string]any{"caData": argo.server.Admin.CAData},
	})
	if err != nil {
		t.Fatal(err)
	}
	argo.mustCreate(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "cluster", Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"}},
		Data: map[string][]byte{
			"name": []byte("here"), "server": []byte(argo.server.Admin.Host), "namespaces": []byte("web"), "clusterResources": []byte("false"),
			"config": config,
		},
	})
}

// apply makes the project and the Application, with the addresses of the test.
func (argo *argoCD) apply() {
	argo.t.Helper()
	for _, name := range []string{"project.yaml", "application.yaml"} {
		for _, object := range documents(argo.t, filepath.Join(argoFolder, name)) {
			text, err := json.Marshal(object.Object)
			if err != nil {
				argo.t.Fatal(err)
			}
			replaced := strings.NewReplacer("https://git.example.com/team/deployments.git", argo.address,
				"https://kubernetes.default.svc", argo.server.Admin.Host).Replace(string(text))
			fresh := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte(replaced), &fresh.Object); err != nil {
				argo.t.Fatal(err)
			}
			argo.createWhenServed(fresh)
		}
	}
}

// start runs redis, the server of repositories and the application controller. The first of the folders has argocd.
func (argo *argoCD) start(programs string) {
	t := argo.t
	t.Helper()
	kubeconfig, err := apiserver.Kubeconfig(argo.server.Admin)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	// Argo CD reads its own objects in the namespace of the kubeconfig.
	text := strings.Replace(string(kubeconfig), "    user: test\n", "    namespace: argocd\n    user: test\n", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := ports.Free(5)
	if err != nil {
		t.Fatal(err)
	}
	port := func(index int) string { return fmt.Sprint(free[index]) }
	redis, repositories := "127.0.0.1:"+port(0), "127.0.0.1:"+port(1)
	argo.run("redis-server", nil, "--port", port(0), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	variables := []string{
		"KUBECONFIG=" + file, "PATH=" + programs + ":" + os.Getenv("PATH"), "HOME=" + argo.home, "TMPDIR=" + t.TempDir(),
		"ARGOCD_GPG_ENABLED=false", "ARGOCD_GPG_DATA_PATH=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1",
	}
	program := filepath.Join(filepath.SplitList(programs)[0], "argocd")
	argo.run(program, append(variables, "ARGOCD_BINARY_NAME=argocd-repo-server"), "--disable-tls", "--redis", redis,
		"--address", "127.0.0.1", "--port", port(1), "--metrics-address", "127.0.0.1", "--metrics-port", port(2),
		"--logformat", "text", "--revision-cache-expiration", "5s")
	argo.run(program, append(variables, "ARGOCD_BINARY_NAME=argocd-application-controller"), "--redis", redis, "--repo-server", repositories,
		"--repo-server-plaintext", "--app-resync", "5", "--app-resync-jitter", "0", "--metrics-port", port(3), "--namespace", "argocd",
		"--logformat", "text")
}

// run starts a program that ends with the test.
func (argo *argoCD) run(program string, variables []string, arguments ...string) {
	t := argo.t
	t.Helper()
	log, err := os.Create(filepath.Join(argo.home, fmt.Sprintf("log-%d", len(argo.logs))))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	argo.logs = append(argo.logs, log.Name())
	ctx, cancel := context.WithCancel(context.Background())
	started := exec.CommandContext(ctx, program, arguments...)
	started.Env, started.Stdout, started.Stderr = variables, log, log
	started.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	failed, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		// The kernel kills the process when the thread that started it exits, so the thread waits for the process.
		runtime.LockOSThread()
		err := started.Start()
		failed <- err
		if err == nil {
			_ = started.Wait()
		}
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func (argo *argoCD) application() *unstructured.Unstructured {
	argo.t.Helper()
	found := &unstructured.Unstructured{}
	found.SetAPIVersion("argoproj.io/v1alpha1")
	found.SetKind("Application")
	if err := argo.admin.Get(argo.t.Context(), types.NamespacedName{Namespace: "argocd", Name: "web"}, found); err != nil {
		argo.t.Fatal(err)
	}
	return found
}

// waitUntil Argo CD reports the state, and the pods are made with what is expected.
func (argo *argoCD) waitUntil(sync, health, serving string) {
	argo.t.Helper()
	argo.wait(sync+" and "+health+" with "+serving, func() bool {
		status := argo.application().Object
		found, _, _ := unstructured.NestedString(status, "status", "sync", "status")
		shown, _, _ := unstructured.NestedString(status, "status", "health", "status")
		return found == sync && shown == health && argo.serving() == serving
	})
}

func (argo *argoCD) wait(what string, holds func() bool) {
	argo.t.Helper()
	for deadline := time.Now().Add(syncedMax); !holds(); {
		if time.Now().After(deadline) {
			argo.t.Fatalf("in vain: %s\n%s%s", what, argo.described(), argo.logsEnd())
		}
		time.Sleep(100 * time.Millisecond) // between two looks
	}
}

func (argo *argoCD) described() string {
	text, err := json.MarshalIndent(argo.application().Object["status"], "", " ")
	if err != nil {
		argo.t.Fatal(err)
	}
	return string(text)
}

func (argo *argoCD) logsEnd() string {
	const bytesMax = 3000
	all := ""
	for _, name := range argo.logs {
		text, err := os.ReadFile(name)
		if err != nil {
			argo.t.Fatal(err)
		}
		all += "\n" + string(text[max(0, len(text)-bytesMax):])
	}
	return all
}

// onlyNewestFiles is that Argo CD has deleted the ConfigMap of the commit before.
func (argo *argoCD) onlyNewestFiles() {
	argo.t.Helper()
	argo.wait("the files of the commit before are deleted", func() bool {
		var files corev1.ConfigMapList
		if err := argo.admin.List(argo.t.Context(), &files, client.InNamespace("web"), client.HasLabels{"apps.roost.dev/files-of"}); err != nil {
			argo.t.Fatal(err)
		}
		return len(files.Items) == 1 && files.Items[0].Name == argo.app().GetAnnotations()["apps.roost.dev/files"]
	})
}

// pushForbidden has a Secret in the repository. The settings of argocd-cm.yaml leave it out.
func (argo *argoCD) pushForbidden() {
	argo.t.Helper()
	argo.write("apps/kustomization.yaml", "resources: [shop.yaml, secret.yaml]\n")
	argo.write("apps/secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: { name: smuggled, namespace: web }\n")
	argo.pushAll()
	argo.wait("a Secret is refused", func() bool {
		return strings.Contains(argo.described(), "Resource /Secret smuggled is excluded in the settings")
	})
	err := argo.admin.Get(argo.t.Context(), types.NamespacedName{Namespace: "web", Name: "smuggled"}, &corev1.Secret{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		argo.t.Errorf("the Secret of the repository: %v", err)
	}
}
