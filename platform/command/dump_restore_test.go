package command_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/command"
)

const (
	ledgerImage = "registry.example.com/ledger:1"
	ledger      = `apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: { name: ledger, namespace: web }
spec:
  image: ` + ledgerImage + `
  ports: [{ port: 5432 }]
  health: { tcp: true }
  volumes: [{ name: data, path: /data, size: 1Gi }]
  backup:
    schedule: "15 3 * * *"
    repository: { claim: backups, file: backup.env }
    command: [ledger-dump, ledger, /backup/dump/rows]
`
	restoreCommand = "    restoreCommand: [ledger-load, $(ROOST_RESTORE_HOST)]\n"
)

// ledgerPrograms are the programs of the image. The database of a host is a folder with its name.
var ledgerPrograms = map[string]string{
	"ledger-dump": "#!/bin/sh\ncat \"$LEDGER/$1/rows\" >\"$2\"\n",
	"ledger-load": "#!/bin/sh\nif [ -e \"$LEDGER/full\" ]; then head -c 2 >\"$LEDGER/$1/rows\"; echo 'the disk is full' >&2; exit 1; fi\ncat >\"$LEDGER/$1/rows\"\n",
}

// executeLedger runs a container of the image of the App ledger. Like the kubelet, it expands variables in the words of a command.
func (machine *taskMachine) executeLedger(ctx context.Context, container corev1.Container, root string) (message string, code int) {
	t := machine.t
	if container.RestartPolicy != nil {
		// The copy of the app is a database without rows, which exists while the rest of the pod runs.
		if err := os.MkdirAll(filepath.Join(machine.ledger, "127.0.0.1"), 0o755); err != nil {
			t.Error(err)
		}
		return "", 0
	}
	report := filepath.Join(t.TempDir(), "report")
	words := slices.Clone(container.Command)
	for index := range words {
		words[index] = strings.ReplaceAll(words[index], "/backup/", root+"/")
		words[index] = strings.ReplaceAll(words[index], "/dev/termination-log", report)
		for _, variable := range container.Env {
			words[index] = strings.ReplaceAll(words[index], "$("+variable.Name+")", variable.Value)
		}
	}
	if strings.HasSuffix(words[0], "roost-backup") {
		words = slices.Insert(words, 2, "--root="+root)
	} else {
		words[0] = filepath.Join(machine.ledger, words[0])
	}
	run := exec.CommandContext(ctx, words[0], words[1:]...)
	run.Env = []string{"LEDGER=" + machine.ledger, "PATH=" + machine.ledger + ":" + os.Getenv("PATH")}
	out, _ := run.CombinedOutput() // the exit code says whether it has failed
	machine.all.Write(out)
	text, err := os.ReadFile(report)
	if err != nil {
		// Kubernetes has stored the end of the log by then.
		text = out
	}
	return string(text), run.ProcessState.ExitCode()
}

func (machine *taskMachine) ledgerRows(host string) string {
	machine.t.Helper()
	text, err := os.ReadFile(filepath.Join(machine.ledger, host, "rows"))
	if err != nil {
		machine.t.Fatal(err)
	}
	return string(text)
}

func (machine *taskMachine) putLedger(name, text string) {
	machine.t.Helper()
	path := filepath.Join(machine.ledger, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		machine.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		machine.t.Fatal(err)
	}
}

// expectLedger checks a condition of the App.
func (machine *taskMachine) expectLedger(kind, expected string) {
	machine.t.Helper()
	if found := machine.conditionOf("ledger", kind); found != expected {
		machine.t.Errorf("%s is %s instead of %s", kind, found, expected)
	}
}

// restoreDump saves the dump of a database, verifies it, and restores it while the app runs.
func (machine *taskMachine) restoreDump() {
	t := machine.t
	t.Helper()
	for name, text := range ledgerPrograms {
		machine.putLedger(name, text)
	}
	machine.putLedger("ledger/rows", "the first rows")
	machine.write("database/ledger.yaml", ledger)
	machine.roost(command.ExitFine, "deploy", "@database/ledger.yaml")
	_, stderr := machine.roost(command.ExitFound, "restore", "-n", "web", "ledger", "--replace")
	contains(t, stderr, "only a program of the app can read; set spec.backup.restoreCommand")
	machine.write("database/ledger.yaml", ledger+restoreCommand)
	machine.roost(command.ExitFine, "deploy", "@database/ledger.yaml")

	machine.roost(command.ExitFine, "backup", "-n", "web", "ledger")
	machine.expectLedger("BackupFresh", "False RestoreNever")
	machine.putLedger("full", "")
	_, stderr = machine.roost(command.ExitFound, "drill", "-n", "web", "ledger")
	contains(t, stderr, "spec.backup.restoreCommand failed: exit status 1: the disk is full")
	machine.expectLedger("BackupFresh", "False RestoreFailed")
	machine.expectLedger("Degraded", "False AsDesired")
	if rows := machine.ledgerRows("ledger"); rows != "the first rows" {
		t.Errorf("a drill has written %q", rows)
	}
	if err := os.Remove(filepath.Join(machine.ledger, "full")); err != nil {
		t.Fatal(err)
	}
	out, _ := machine.roost(command.ExitFine, "drill", "-n", "web", "ledger")
	contains(t, out, ": 1 files, 14 bytes restored, compared, and loaded into a copy of the app")
	machine.expectLedger("BackupFresh", "True BackupRecent")
	if rows := machine.ledgerRows("127.0.0.1"); rows != "the first rows" {
		t.Errorf("the copy has %q", rows)
	}
	machine.failToLoad()
	machine.putLedger("ledger/rows", "later rows")
	machine.replicasAtRestore = nil
	out, _ = machine.roost(command.ExitFine, "restore", "-n", "web", "ledger", "--replace")
	contains(t, out, ": 1 files, 14 bytes; data that was written after ", " is lost")
	if rows := machine.ledgerRows("ledger"); rows != "the first rows" {
		t.Errorf("restored: %q", rows)
	}
	// FinishWorkloads reports one pod.
	if !slices.Equal(machine.replicasAtRestore, []int32{2}) {
		t.Errorf("pods while it restored, and those that are asked for: %v", machine.replicasAtRestore)
	}
	waitUntil(t, "backups go on", func() bool {
		var cron batchv1.CronJob
		machine.get("ledger-backup", &cron)
		return machine.conditionOf("ledger", "Degraded") == "False AsDesired" && (cron.Spec.Suspend == nil || !*cron.Spec.Suspend)
	})
	machine.roost(command.ExitFine, "backup", "-n", "web", "ledger")
}

// failToLoad makes restores fail before a dump is loaded, and while it is loaded.
func (machine *taskMachine) failToLoad() {
	t := machine.t
	t.Helper()
	_, stderr := machine.roost(command.ExitFound, "restore", "-n", "web", "ledger")
	contains(t, stderr, "which the operator cannot check; repeat with --replace")
	away := machine.repository + "-away"
	if err := os.Rename(machine.repository, away); err != nil {
		t.Fatal(err)
	}
	_, stderr = machine.roost(command.ExitFound, "restore", "-n", "web", "ledger", "--replace")
	contains(t, stderr, "there is no repository yet")
	machine.expectLedger("Degraded", "False AsDesired")
	if err := os.Rename(away, machine.repository); err != nil {
		t.Fatal(err)
	}
	machine.putLedger("full", "")
	_, stderr = machine.roost(command.ExitFound, "restore", "-n", "web", "ledger", "--replace")
	contains(t, stderr, "the disk is full")
	if rows := machine.ledgerRows("ledger"); rows != "th" {
		t.Errorf("a part of the dump: %q", rows)
	}
	waitUntil(t, "the status says so", func() bool { return machine.conditionOf("ledger", "Degraded") == "True RestoreUnfinished" })
	_, stderr = machine.roost(command.ExitFound, "backup", "-n", "web", "ledger")
	contains(t, stderr, "the app may have only a part of the dump; repeat `roost restore` first")
	// A store that is down gives no information about an earlier load.
	if err := os.Rename(machine.repository, away); err != nil {
		t.Fatal(err)
	}
	machine.roost(command.ExitFound, "restore", "-n", "web", "ledger", "--replace")
	if err := os.Rename(away, machine.repository); err != nil {
		t.Fatal(err)
	}
	var app v1alpha1.App
	var set appsv1.StatefulSet
	machine.get("ledger", &app)
	machine.get("ledger", &set)
	if !app.Status.Backup.LoadUnfinished || app.Status.Backup.RestoreUnfinished || *set.Spec.Replicas != 1 {
		t.Errorf("%+v, %d replicas", app.Status.Backup, *set.Spec.Replicas)
	}
	if err := os.Remove(filepath.Join(machine.ledger, "full")); err != nil {
		t.Fatal(err)
	}
}
