package command_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/command"
)

const canaryCount = 20

// canaryToken is unique for each value. platform/test searches for its beginning in all output and files of the tests.
func canaryToken(index int) string { return fmt.Sprintf("c4n4ry-%02d-5e7a91d0", index) }

// canaryFile has 20 secrets in all forms of the dialect.
func canaryFile(round string) string {
	forms := []string{
		"%s", "'%s'", `"%s"`, "%s # a comment", "'postgres://shop:%s@db:5432/shop?sslmode=require'", `'{"password": "%s"}'`,
		"'-----BEGIN KEY-----\n%s\n-----END KEY-----\n'", "'two\nlines %s'", "'$HOME/%s'", `'\$%s\.'`, "'ünïcödé-%s'", "a=b=%s==", "'%s%%20'", "'Bearer %s'",
		"'<%s>'", "'&%s;'", "'\"%s\"'", "\"'%s'\"", strings.Repeat("x", 3000) + "%s", "%s/" + strings.Repeat("y", 3000),
	}
	text := "LOG_LEVEL=info\n"
	for index, form := range forms {
		text += fmt.Sprintf("SECRET_%02d="+form+"\n", index, canaryToken(index)+round)
	}
	return text
}

// canaryForms returns the encodings in which a token may appear.
func canaryForms(index int) []string {
	token := canaryToken(index)
	forms := []string{token, url.QueryEscape(token), hex.EncodeToString([]byte(token))}
	for offset := range 3 {
		// The base64 encoding of a longer text contains the token in one of three forms. The ends depend on the adjacent text.
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + token))
		forms = append(forms, strings.TrimRight(text, "=")[4:len(strings.TrimRight(text, "="))-2])
	}
	return forms
}

// foundCanaries names the canaries that a text contains.
func foundCanaries(text string) []string {
	var found []string
	for index := range canaryCount {
		for _, form := range canaryForms(index) {
			if strings.Contains(text, form) {
				found = append(found, form)
				break
			}
		}
	}
	return found
}

// TestSecretsStayInSecrets passes 20 canaries through all commands and the operator, one of them in a mounted file as well, and searches for them
// in the output, the logs, the objects in the API server and the remaining files.
func TestSecretsStayInSecrets(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	site := newSite(t)
	site.variables["XDG_RUNTIME_DIR"] = memoryFolder(t)
	site.runOperator()
	site.runControllers()
	site.write("apps/shop.yaml", app+"  files: [{ file: tls.key, path: /etc/shop/tls.key }]\n")
	site.encryptCanaries("-one")
	for _, line := range []string{
		"secrets check @apps", "validate @apps", "render @apps", "render -o json @apps", "deploy @apps/shop.yaml", "status -n web", "status -n web shop -o json",
	} {
		site.roost(command.ExitFine, strings.Fields(line)...)
	}
	site.editor("s/nothing/else/")
	for _, file := range []string{"@apps/shop.env", "@apps/tls.key"} {
		site.roost(command.ExitFine, "secrets", "edit", file)
		site.roost(command.ExitFine, "secrets", "rotate", file)
	}
	site.failWithCanaries()
	site.encryptCanaries("-two")
	site.roost(command.ExitFine, "deploy", "@apps/shop.yaml")
	site.roost(command.ExitFine, "rollback", "-n", "web", "shop")
	site.refuseSecrets()
	// All folders of the test are in one.
	site.lookForCanaries(filepath.Dir(site.folder))
}

// The editor gets its text in memoryFolder. No file may remain there.
func memoryFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "canaries-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The removal fails if a file remains.
		if err := os.Remove(folder); err != nil {
			t.Error(err)
		}
	})
	return folder
}

func (site *site) encryptCanaries(round string, recipient ...string) {
	site.t.Helper()
	site.write("apps/shop.env", canaryFile(round))
	site.write("apps/tls.key", canaryToken(0)+round+"\n")
	var recipients []string
	for _, name := range recipient {
		recipients = append(recipients, "--recipient", name)
	}
	site.roost(command.ExitFine, append([]string{"secrets", "encrypt", "@apps/shop.env", "--plain", "^LOG_"}, recipients...)...)
	site.roost(command.ExitFine, append([]string{"secrets", "encrypt", "@apps/tls.key"}, recipients...)...)
}

// failWithCanaries makes commands fail on files whose values are canaries.
func (site *site) failWithCanaries() {
	site.t.Helper()
	good := site.read("apps/shop.env")
	for _, text := range []string{
		"SECRET=`" + canaryToken(0) + "`\n", "SECRET=\"" + canaryToken(1) + "\n", "SECRET=#" + canaryToken(2) + "\n", canaryToken(3) + "\n",
		"SECRET=1\nSECRET=" + canaryToken(4) + "\n", "SECRET = " + canaryToken(5) + "\n",
	} {
		site.write("apps/shop.env", text)
		site.roost(command.ExitFailed, "secrets", "encrypt", "@apps/shop.env")
		site.roost(command.ExitFound, "validate", "@apps")
		site.roost(command.ExitFound, "secrets", "check", "@apps")
	}
	site.write("apps/shop.env", "DB_PASSWORD="+canaryToken(6)+"\n")
	site.roost(command.ExitFound, "secrets", "check", "@apps")
	site.write("apps/shop.env", strings.Replace(good, "SECRET_01=", "SECRET_99=", 1))
	site.roost(command.ExitFound, "deploy", "@apps/shop.yaml")
	other, err := age.GenerateX25519Identity()
	if err != nil {
		site.t.Fatal(err)
	}
	site.encryptCanaries("-other", other.Recipient().String())
	home := site.variables["HOME"]
	site.variables["HOME"] = filepath.Join(site.folder, "elsewhere")
	site.roost(command.ExitFound, "deploy", "@apps/shop.yaml")
	site.variables["HOME"] = home
}

// refuseSecrets makes the API server refuse Secrets, with their content in its response.
func (site *site) refuseSecrets() {
	t := site.t
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-secrets"}}
	fail := admissionregistrationv1.Fail
	policy.Spec.FailurePolicy = &fail
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
		},
	}}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{
		Expression: "false", MessageExpression: "'refused with ' + string(object.data['SECRET_00'])",
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-secrets"}}
	binding.Spec.PolicyName = policy.Name
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	for kind, object := range map[string]client.Object{"ValidatingAdmissionPolicy": policy, "ValidatingAdmissionPolicyBinding": binding} {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		made := &unstructured.Unstructured{}
		if err := json.Unmarshal(text, &made.Object); err != nil {
			t.Fatal(err)
		}
		made.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
		if err := site.admin.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
	}
	probe := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "probe"}, Data: map[string][]byte{"SECRET_00": []byte("probe")}}
	waitUntil(t, "the policy is in force", func() bool {
		err := site.admin.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "refused with "+base64.StdEncoding.EncodeToString([]byte("probe")))
	})
	site.encryptCanaries("-refused")
	out, _ := site.roost(command.ExitFound, "deploy", "@apps/shop.yaml")
	contains(t, out, "WriteRefused: the API server refuses Secret/shop-env-")
}

func (site *site) lookForCanaries(folder string) {
	t := site.t
	t.Helper()
	expectNone := func(where, text string) {
		t.Helper()
		if found := foundCanaries(text); len(found) > 0 {
			t.Errorf("%s has %v", where, found)
		}
	}
	if site.all.Len() < 5000 || !strings.Contains(site.log.text(), "refuses Secret/") {
		t.Errorf("%d bytes were printed; the log of the operator: %s", site.all.Len(), site.log.text())
	}
	expectNone("what was printed", site.all.String())
	expectNone("the log of the operator", site.log.text())
	objects, secrets := site.everyObject()
	for name, text := range objects {
		expectNone(name, text)
	}
	if found := foundCanaries(secrets); len(found) != canaryCount {
		t.Errorf("the Secrets have %d of the canaries, so the search is wrong", len(found))
	}
	files := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			// The database of the API server contains the Secrets unencrypted.
			if err == nil && entry.Name() == "etcd" {
				return fs.SkipDir
			}
			return err
		}
		text, err := os.ReadFile(path)
		files++
		expectNone(path, string(text))
		return err
	})
	if err != nil || files < 10 {
		t.Errorf("%d files, %v", files, err)
	}
	t.Logf("%d canaries are in none of %d bytes of output, %d objects, %d files", canaryCount, site.all.Len(), len(objects), files)
}

// everyObject returns every object of the API server as text by its name, and all Secrets as one text.
func (site *site) everyObject() (objects map[string]string, secrets string) {
	t := site.t
	t.Helper()
	discovered, err := discovery.NewDiscoveryClientForConfig(site.server.Admin)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := discovered.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	objects = map[string]string{}
	for _, resources := range lists {
		version, err := schema.ParseGroupVersion(resources.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range resources.APIResources {
			if !strings.Contains(strings.Join(resource.Verbs, " "), "list") {
				continue
			}
			var list unstructured.UnstructuredList
			list.SetGroupVersionKind(version.WithKind(resource.Kind + "List"))
			if err := site.admin.List(t.Context(), &list); err != nil {
				t.Fatalf("%s: %v", resource.Name, err)
			}
			for _, object := range list.Items {
				text, err := json.Marshal(object.Object)
				if err != nil {
					t.Fatal(err)
				}
				if resource.Kind == "Secret" {
					secrets += string(text)
					continue
				}
				objects[resource.Kind+"/"+object.GetName()] = string(text)
			}
		}
	}
	if len(objects) < 50 {
		t.Errorf("%d objects", len(objects))
	}
	return objects, secrets
}
