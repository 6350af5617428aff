package command_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/dunlin-project/dunlin/platform/command"
)

const realtime = `apiVersion: apps.roost.dev/v1alpha1
kind: Dunlin
metadata: { name: realtime, namespace: web }
spec:
  image: registry.example.com/dunlin:0.1.0
  keys: { file: keys.env }
  storage: { size: 1Gi }
  onNodeLoss: RestoreFromBackup
  backup:
    schedule: "15 3 * * *"
    repository: { claim: backups, file: backup.env }
`

// serveDunlin runs the server with the volume of the Dunlin until work returns. work gets the address and the log of the server.
func (machine *taskMachine) serveDunlin(backup string, work func(address string, log func() string)) {
	t := machine.t
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.json")
	text := fmt.Sprintf(`{"http_server": {"address": "127.0.0.1", "port": 0}, "http_api": {"key": "drill"}, "storage": {"path": %q%s},
		"channel": {"namespaces": [{"name": "chat", "history_size": 1000, "history_ttl": "24h", "durability": "disk"}]}}`, machine.storage+"/storage", backup)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log := func() string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	server := exec.Command(machine.dunlin, "serve", "--config", config)
	server.Env = []string{}
	server.Stdout, server.Stderr = file, file
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Process.Kill() //nolint:errcheck // it may have ended
		server.Wait()         //nolint:errcheck // it was killed
	}()
	listens := regexp.MustCompile(`"dunlin is listening","address":"([^"]+)"`)
	waitUntil(t, "the server listens", func() bool { return listens.MatchString(log()) })
	work("http://"+listens.FindStringSubmatch(log())[1], log)
}

// publish adds publications to the storage.
func (machine *taskMachine) publish(count int) {
	t := machine.t
	t.Helper()
	machine.serveDunlin("", func(address string, _ func() string) {
		for range count {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/api/publish", strings.NewReader(`{"channel": "chat:drill", "data": 1}`))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("X-API-Key", "drill")
			response, err := http.DefaultClient.Do(request)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatal(err, response)
			}
			response.Body.Close()
		}
	})
}

func (machine *taskMachine) publications() int {
	machine.t.Helper()
	export := exec.Command(machine.dunlin, "storage", "export", filepath.Join(machine.storage, "storage"))
	export.Env = []string{}
	out, err := export.Output()
	if err != nil {
		machine.t.Fatal(err)
	}
	return bytes.Count(out, []byte("\n"))
}

// saveDunlin makes the node back up its storage, and Roost save the backup.
func (machine *taskMachine) saveDunlin() {
	machine.t.Helper()
	machine.serveDunlin(fmt.Sprintf(`, "backup": {"path": %q, "interval": "1s"}`, machine.storage+"/backups"), func(_ string, log func() string) {
		waitUntil(machine.t, "the node has made a backup", func() bool { return strings.Contains(log(), `"backup made"`) })
	})
	out, _ := machine.roost(command.ExitFine, "backup", "-n", "web", "realtime")
	contains(machine.t, out, "Dunlin web/realtime: snapshot ", "its newest backup of the node is from 20")
}

// restoreDunlin saves the storage of a Dunlin, and restores it with its own program.
func (machine *taskMachine) restoreDunlin() {
	t := machine.t
	t.Helper()
	if machine.dunlin = os.Getenv("ROOST_TEST_SERVER"); machine.dunlin == "" {
		t.Run("a restore of a Dunlin", func(t *testing.T) { t.Skip("ROOST_TEST_SERVER names no server; `make test` sets it") })
		return
	}
	machine.write("realtime/roost.yaml", machine.read("apps/roost.yaml"))
	machine.write("realtime/realtime.yaml", realtime)
	machine.write("realtime/backup.env", "RESTIC_PASSWORD="+canary+"-repository\n")
	machine.write("realtime/keys.env", "api_key="+strings.Repeat("k", 32)+"\ntoken_hmac_secret_key="+strings.Repeat("t", 32)+"\n")
	machine.roost(command.ExitFine, "secrets", "encrypt", "@realtime/backup.env")
	machine.roost(command.ExitFine, "secrets", "encrypt", "@realtime/keys.env")
	machine.roost(command.ExitFine, "deploy", "@realtime/realtime.yaml")
	machine.publish(20)
	_, stderr := machine.roost(command.ExitFound, "backup", "-n", "web", "realtime")
	contains(t, stderr, "volumes/storage/backups contains no complete backup of the node")
	machine.saveDunlin()
	out, _ := machine.roost(command.ExitFine, "drill", "-n", "web", "realtime")
	contains(t, out, " restored and compared; its newest backup of the node is from 20")
	machine.publish(10)
	_, stderr = machine.roost(command.ExitFound, "restore", "-n", "web", "realtime")
	contains(t, stderr, "volumes/storage is not empty; repeat with --replace")
	if count := machine.publications(); count != 30 {
		t.Errorf("%d publications before the restore", count)
	}
	machine.replicasAtRestore = nil
	out, _ = machine.roost(command.ExitFine, "restore", "-n", "web", "realtime", "--replace")
	contains(t, out, "Dunlin web/realtime: snapshot ", "; data that was written after 20", " is lost")
	if count := machine.publications(); count != 20 {
		t.Errorf("%d publications after the restore", count)
	}
	if len(machine.replicasAtRestore) != 1 || machine.replicasAtRestore[0] != 0 {
		t.Errorf("pods while it restored: %v", machine.replicasAtRestore)
	}
	var set appsv1.StatefulSet
	waitUntil(t, "the node is back", func() bool {
		machine.get("realtime", &set)
		return *set.Spec.Replicas == 1
	})
	machine.publish(1)
	if count := machine.publications(); count != 21 {
		t.Errorf("%d publications after another one", count)
	}
	machine.loseNodeOfDunlin(20)
}
