package command_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/dunlin-project/dunlin/platform/command"
	"github.com/dunlin-project/dunlin/platform/dunlintest"
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

// serveDunlin runs the server with the volume of the Dunlin until work returns.
func (machine *taskMachine) serveDunlin(backup string, work func(server *dunlintest.Server)) {
	machine.t.Helper()
	server := dunlintest.Start(machine.t, func(port int) string {
		return fmt.Sprintf(`{"http_server": {"address": "127.0.0.1", "port": %d}, "http_api": {"key": %q}, "storage": {"path": %q%s},
		"channel": {"namespaces": [{"name": "chat", "history_size": 1000, "history_ttl": "24h", "durability": "disk"}]}}`,
			port, dunlintest.Key, machine.storage+"/storage", backup)
	})
	defer server.Kill()
	work(server)
}

// publish adds publications to the storage.
func (machine *taskMachine) publish(count int) {
	machine.t.Helper()
	machine.serveDunlin("", func(server *dunlintest.Server) { server.Publish("chat:drill", 1, count) })
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
	machine.serveDunlin(fmt.Sprintf(`, "backup": {"path": %q, "interval": "1s"}`, machine.storage+"/backups"), func(server *dunlintest.Server) {
		waitUntil(machine.t, "the node has made a backup", func() bool { return strings.Contains(server.Log(), `"backup made"`) })
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
