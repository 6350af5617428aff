package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// minutesMax is what the README promises.
const minutesMax = 15

// The lines of the README run as they are written, on a cluster without anything of Roost.
func TestTheWalkOfTheReadme(t *testing.T) {
	site := newSite(t)
	if err := kubectl("get", "namespace", operatorNamespace).Run(); err == nil {
		t.Skip("the operator is installed already; `platform/lab/run` runs this proof first")
	}
	text, err := os.ReadFile(filepath.Join(platformFolder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n```bash\n")
	script, _, isThere := strings.Cut(rest, "\n```\n")
	if !isThere {
		t.Fatal("the README has no lines for bash")
	}
	for _, folder := range []string{"crd", "deploy"} {
		if err := os.CopyFS(filepath.Join(site.folder, folder), os.DirFS(filepath.Join(platformFolder, folder))); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("bash", "-euo", "pipefail", "-x", "-c", script)
	command.Dir = site.folder
	host, _, _ := strings.Cut(ingressAddress, ":")
	command.Env = append(os.Environ(), "HOME="+site.home, "INGRESS="+host)
	began := time.Now()
	out, err := command.CombinedOutput()
	took := time.Since(began)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	site.figure("from an empty cluster to a Dunlin and an app and back in %.0f s (%d minutes are allowed)", took.Seconds(), minutesMax)
	if took > minutesMax*time.Minute {
		t.Errorf("%v", took)
	}
	site.must(kubectl("-n", namespace, "delete", "app", "shop", "--wait"))
	site.must(kubectl("-n", namespace, "delete", "dunlin", "realtime", "--wait"))
	site.must(kubectl("-n", namespace, "delete", "persistentvolumeclaims", "--all", "--wait"))
}
