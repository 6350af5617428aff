package command_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/command"
	"github.com/dunlin-project/dunlin/platform/render"
)

const database = `apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: { name: database, namespace: web }
spec:
  image: registry.example.com/database:1
  ports: [{ port: 5432 }]
  health: { tcp: true }
  volumes: [{ name: data, path: /data, size: 1Gi }]
  onNodeLoss: RestoreFromBackup
  backup:
    schedule: "15 3 * * *"
    repository: { claim: backups, file: backup.env }
`

// taskMachine runs the pods of backups in this test: the real program and the real restic, with folders for volumes.
type taskMachine struct {
	*site
	program string
	// data is the volume of the first claim, and moved that of the claim after the loss of a node.
	data, moved, repository string
	// storage is the volume of a Dunlin, movedStorage that after the loss of a node, and dunlin its program.
	storage, movedStorage, dunlin string
	// ledger has a folder for each host that the commands of the App ledger know, and their programs.
	ledger string
	// replicas that the StatefulSet had while a restore ran.
	replicasAtRestore []int32
	// interrupt replaces the program, if it is set. The pod is killed after it.
	interrupt func()
}

func newTaskMachine(site *site) *taskMachine {
	site.t.Helper()
	if _, err := exec.LookPath("restic"); err != nil {
		site.t.Skip("restic is not installed; `scripts/need restic` installs it")
	}
	machine := &taskMachine{site: site, program: filepath.Join(site.t.TempDir(), "roost-backup")}
	if out, err := exec.Command("go", "build", "-o", machine.program, "../cmd/roost-backup").CombinedOutput(); err != nil {
		site.t.Fatalf("%v: %s", err, out)
	}
	machine.data, machine.moved, machine.repository = site.t.TempDir(), site.t.TempDir(), site.t.TempDir()
	machine.storage, machine.movedStorage, machine.ledger = site.t.TempDir(), site.t.TempDir(), site.t.TempDir()
	return machine
}

// run acts as the controllers of workloads and of Jobs, and as the kubelet.
func (machine *taskMachine) run() {
	machine.inBackground(func(ctx context.Context) {
		if err := apiserver.KeepFinished(ctx, machine.admin, client.InNamespace("web"), client.MatchingLabels{render.LabelPart: "main"}); err != nil {
			machine.t.Error(err)
		}
	})
	seen := map[string]bool{}
	machine.forEach(&batchv1.JobList{}, func(ctx context.Context, job client.Object) error {
		if !seen[job.GetName()] {
			seen[job.GetName()] = true
			machine.runJob(ctx, machine.admin, job.(*batchv1.Job))
		}
		return nil
	}, client.MatchingLabels{render.LabelPart: render.PartBackup})
}

func (machine *taskMachine) runJob(ctx context.Context, admin client.Client, job *batchv1.Job) {
	t := machine.t
	template := job.Spec.Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "web", Name: job.Name + "-x", Labels: template.Labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: new(true)}},
	}, Spec: template.Spec}
	pod.Labels[batchv1.JobNameLabel] = job.Name
	pod.Spec.NodeName = nodeName
	if err := admin.Create(ctx, pod); err != nil {
		t.Error(err)
		return
	}
	if template.Labels[render.LabelTask] == render.TaskRestore {
		var sets appsv1.StatefulSetList
		if err := admin.List(ctx, &sets, client.InNamespace("web"), client.MatchingLabels{render.LabelApp: template.Labels[render.LabelApp]}); err != nil || len(sets.Items) == 0 {
			t.Error(err, len(sets.Items))
		}
		for _, set := range sets.Items {
			machine.replicasAtRestore = append(machine.replicasAtRestore, *set.Spec.Replicas+set.Status.Replicas)
		}
	}
	message, code := "", 137
	if machine.interrupt == nil {
		message, code = machine.execute(ctx, admin, pod)
	} else {
		machine.interrupt()
	}
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "backup", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Message: message, FinishedAt: metav1.Now(),
	}}}}
	if err := admin.Status().Update(ctx, pod); err != nil {
		t.Error(err)
	}
	status := apiserver.FinalJobStatus(code != 0)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(status, &job.Status); err != nil {
		t.Error(err)
	}
	if err := admin.Status().Update(ctx, job); err != nil {
		t.Error(err)
	}
}

// execute runs the containers of the pod, with folders of this machine as its volumes.
func (machine *taskMachine) execute(ctx context.Context, admin client.Client, pod *corev1.Pod) (message string, code int) {
	t := machine.t
	root, keys, scratch := t.TempDir(), t.TempDir(), t.TempDir()
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.Secret != nil:
			var secret corev1.Secret
			if err := admin.Get(ctx, client.ObjectKey{Namespace: "web", Name: volume.Secret.SecretName}, &secret); err != nil {
				t.Error(err)
			}
			for key, value := range secret.Data {
				if err := os.WriteFile(filepath.Join(keys, key), value, 0o600); err != nil {
					t.Error(err)
				}
			}
		case volume.Ephemeral != nil && volume.Name == "dump":
			if err := os.Mkdir(filepath.Join(root, "dump"), 0o755); err != nil {
				t.Error(err)
			}
		case volume.PersistentVolumeClaim != nil && machine.volume(volume.PersistentVolumeClaim.ClaimName) != "":
			data := machine.volume(volume.PersistentVolumeClaim.ClaimName)
			if err := os.MkdirAll(filepath.Join(root, "volumes"), 0o755); err != nil {
				t.Error(err)
			}
			// A mount is a folder with its own entries. Here, the folder is moved in, and back at the end.
			mounted := filepath.Join(root, "volumes", strings.TrimPrefix(volume.Name, "volume-"))
			if err := os.Rename(data, mounted); err != nil {
				t.Error(err)
			}
			defer func() {
				if err := os.Rename(mounted, data); err != nil {
					t.Error(err)
				}
			}()
		}
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if message, code = machine.executeContainer(ctx, container, root, keys, scratch); code != 0 {
			break
		}
	}
	return message, code
}

func (machine *taskMachine) executeContainer(ctx context.Context, container corev1.Container, root, keys, scratch string) (message string, code int) {
	t := machine.t
	if container.Image == ledgerImage {
		return machine.executeLedger(ctx, container, root)
	}
	report := filepath.Join(t.TempDir(), "report")
	program, arguments := machine.program, slices.Clone(container.Command[1:])
	for index, argument := range arguments {
		switch {
		case argument == "--repository=/repository":
			arguments[index] = "--repository=" + machine.repository
		case argument == "--report=/dev/termination-log":
			arguments[index] = "--report=" + report
		}
	}
	arguments = append(arguments, "--root="+root, "--secrets="+keys)
	if slices.Contains(arguments, render.TaskVerify) {
		arguments = append(arguments, "--into="+scratch)
	}
	if container.Image == "registry.example.com/dunlin:0.1.0" {
		// That image contains nothing else.
		program = filepath.Join(root, filepath.Base(container.Command[0]))
		arguments = append(arguments, "--server="+machine.dunlin)
	}
	run := exec.CommandContext(ctx, program, arguments...)
	out, _ := run.CombinedOutput() // the exit code says whether it has failed
	machine.all.Write(out)
	text, err := os.ReadFile(report)
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(text), run.ProcessState.ExitCode()
}

func (machine *taskMachine) put(text string) {
	machine.t.Helper()
	if err := os.WriteFile(filepath.Join(machine.data, "rows"), []byte(text), 0o600); err != nil {
		machine.t.Fatal(err)
	}
}

func (machine *taskMachine) rows() string {
	machine.t.Helper()
	text, err := os.ReadFile(filepath.Join(machine.data, "rows"))
	if err != nil {
		machine.t.Fatal(err)
	}
	return string(text)
}

func (machine *taskMachine) backupFresh() string { return machine.condition("BackupFresh") }

func (machine *taskMachine) condition(kind string) string {
	machine.t.Helper()
	return machine.conditionOf("database", kind)
}

func (machine *taskMachine) conditionOf(name, kind string) string {
	machine.t.Helper()
	var app v1alpha1.App
	machine.get(name, &app)
	for _, condition := range app.Status.Conditions {
		if condition.Type == kind {
			return string(condition.Status) + " " + condition.Reason
		}
	}
	return "none"
}

// TestBackupDrillAndRestore has steps that build on one another.
func TestBackupDrillAndRestore(t *testing.T) {
	site := newSite(t)
	machine := newTaskMachine(site)
	site.runOperator()
	site.newKubelet()
	machine.run()
	site.write("database/roost.yaml", site.read("apps/roost.yaml"))
	site.write("database/database.yaml", database)
	site.write("database/backup.env", "RESTIC_PASSWORD="+canary+"-repository\n")
	_, stderr := site.roost(command.ExitFound, "deploy", "@database/database.yaml")
	contains(t, stderr, "backup.env has no encrypted RESTIC_PASSWORD")
	site.roost(command.ExitFine, "secrets", "encrypt", "@database/backup.env")
	site.roost(command.ExitFine, "deploy", "@database/database.yaml")
	if fresh := machine.backupFresh(); fresh != "False BackupNever" {
		t.Error(fresh)
	}
	machine.put("one")
	// Random bytes, which restic does not compress: their pack is the largest.
	blob := make([]byte, 1<<20)
	rand.Read(blob) //nolint:errcheck // it never fails
	if err := os.WriteFile(filepath.Join(machine.data, "blob"), blob, 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := site.roost(command.ExitFine, "backup", "-n", "web", "database")
	contains(t, out, "App web/database: snapshot ", ": 2 files, 1048579 bytes; the repository is new")
	if fresh := machine.backupFresh(); fresh != "False RestoreNever" {
		t.Error(fresh)
	}
	out, _ = site.roost(command.ExitFine, "drill", "-n", "web", "database")
	contains(t, out, ": 2 files, 1048579 bytes restored and compared")
	if fresh := machine.backupFresh(); fresh != "True BackupRecent" {
		t.Error(fresh)
	}
	machine.restoreAndReplace()
	machine.interruptAndComplete()
	machine.failAndRecover()
	machine.loseNode()
	for _, row := range []struct {
		code                int
		arguments, sentence string
	}{
		{command.ExitUsage, "backup", "name one App"},
		{command.ExitFailed, "restore -n web none", "there is no App and no Dunlin none"},
		{command.ExitFailed, "drill -n web database --kubeconfig none", "name a file with --kubeconfig"},
	} {
		_, stderr := site.roost(row.code, strings.Fields(row.arguments)...)
		contains(t, stderr, row.sentence)
	}
	machine.restoreDunlin()
	machine.restoreDump()
	if strings.Contains(site.all.String(), canary) {
		t.Error("a secret was printed")
	}
}

func (machine *taskMachine) restoreAndReplace() {
	t := machine.t
	t.Helper()
	machine.put("two")
	_, stderr := machine.roost(command.ExitFound, "restore", "-n", "web", "database")
	contains(t, stderr, "volumes/data is not empty; repeat with --replace", " ago). Data that was written after it is lost")
	if rows := machine.rows(); rows != "two" {
		t.Errorf("%q", rows)
	}
	out, _ := machine.roost(command.ExitFine, "restore", "-n", "web", "database", "--replace", "-o", "json")
	var ended v1alpha1.Operation
	if err := json.Unmarshal([]byte(out), &ended); err != nil || ended.Phase != v1alpha1.OperationSucceeded || ended.Taken == nil || !strings.Contains(ended.Message, "is lost") {
		t.Errorf("%v: %s", err, out)
	}
	if rows := machine.rows(); rows != "one" {
		t.Errorf("%q", rows)
	}
	if !slices.Equal(machine.replicasAtRestore, []int32{0, 0}) {
		t.Errorf("pods while it restored: %v", machine.replicasAtRestore)
	}
	waitUntil(t, "the pods are back, and backups go on", func() bool {
		var set appsv1.StatefulSet
		var cron batchv1.CronJob
		machine.get("database", &set)
		machine.get("database-backup", &cron)
		return *set.Spec.Replicas == 1 && (cron.Spec.Suspend == nil || !*cron.Spec.Suspend)
	})
	waitUntil(t, "the Jobs are gone", func() bool {
		var jobs batchv1.JobList
		err := machine.admin.List(t.Context(), &jobs, client.InNamespace("web"), client.MatchingLabels{render.LabelApp: "database"})
		return err == nil && len(jobs.Items) == 0
	})
	waitUntil(t, "the app serves", func() bool {
		return machine.condition("Ready") == "True AsDesired" && machine.condition("Degraded") == "False AsDesired"
	})
	out, _ = machine.roost(command.ExitFine, "status", "-n", "web", "database")
	contains(t, out, "BackupFresh        True  BackupRecent", "last verified restore  20", "last operation         restore Succeeded: snapshot ")
}

// interruptAndComplete kills a restore after the old files were moved away, and before the new files are moved in.
func (machine *taskMachine) interruptAndComplete() {
	t := machine.t
	t.Helper()
	machine.put("three")
	machine.interrupt = func() {
		staged := filepath.Join(machine.data, ".roost-restore/volumes/data")
		if err := os.MkdirAll(staged, 0o700); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"rows", "blob"} {
			if err := os.WriteFile(filepath.Join(staged, name), []byte("completed"), 0o600); err != nil {
				t.Error(err)
			}
		}
		record := `{"folders":["volumes/data"],"report":{"kind":"restore","snapshot":"1f2e3d4c","taken":"2026-05-04T10:00:00Z","files":2}}`
		if err := os.WriteFile(filepath.Join(machine.data, ".roost-restore.json"), []byte(record), 0o600); err != nil {
			t.Error(err)
		}
	}
	machine.roost(command.ExitFound, "restore", "-n", "web", "database", "--replace")
	machine.interrupt = nil
	waitUntil(t, "the status says so", func() bool { return machine.condition("Degraded") == "True RestoreUnfinished" })
	_, stderr := machine.roost(command.ExitFound, "backup", "-n", "web", "database")
	contains(t, stderr, "the volumes may hold parts of two states; complete it with `roost restore` first")
	var set appsv1.StatefulSet
	var cron batchv1.CronJob
	machine.get("database", &set)
	machine.get("database-backup", &cron)
	if *set.Spec.Replicas != 0 || cron.Spec.Suspend == nil || !*cron.Spec.Suspend {
		t.Errorf("%d replicas, and the CronJob: %+v", *set.Spec.Replicas, cron.Spec.Suspend)
	}
	out, _ := machine.roost(command.ExitFine, "restore", "-n", "web", "database")
	contains(t, out, "snapshot 1f2e3d4c of 2026-05-04T10:00:00Z")
	if rows := machine.rows(); rows != "completed" {
		t.Errorf("%q", rows)
	}
	waitUntil(t, "the pods are back, and backups go on", func() bool {
		machine.get("database", &set)
		machine.get("database-backup", &cron)
		return *set.Spec.Replicas == 1 && (cron.Spec.Suspend == nil || !*cron.Spec.Suspend)
	})
}

// failAndRecover truncates a pack, and begins a new repository.
func (machine *taskMachine) failAndRecover() {
	t := machine.t
	t.Helper()
	packs, err := filepath.Glob(filepath.Join(machine.repository, "web/database/data/*/*"))
	if err != nil || len(packs) == 0 {
		t.Fatal(err, packs)
	}
	for _, pack := range packs {
		// Restic retries reading a pack of folders.
		if info, err := os.Stat(pack); err != nil || info.Size() < 1<<20 {
			continue
		}
		if err := os.Chmod(pack, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(pack, 50); err != nil {
			t.Fatal(err)
		}
	}
	_, stderr := machine.roost(command.ExitFound, "drill", "-n", "web", "database")
	contains(t, stderr, "App web/database: the drill failed: ", "the repository is damaged: pack ", "unexpected file size: got 50")
	if fresh := machine.backupFresh(); fresh != "False RestoreFailed" {
		t.Error(fresh)
	}
	machine.expectAlert("RestoreFailed", true)
	machine.expectAlert("BackupFailed", false)
	if err := os.RemoveAll(filepath.Join(machine.repository, "web")); err != nil {
		t.Fatal(err)
	}
	machine.roost(command.ExitFine, "backup", "-n", "web", "database")
	if fresh := machine.backupFresh(); fresh != "False RestoreNever" {
		t.Errorf("nothing of the new repository is verified: %s", fresh)
	}
	machine.roost(command.ExitFine, "drill", "-n", "web", "database")
	if fresh := machine.backupFresh(); fresh != "True BackupRecent" {
		t.Error(fresh)
	}
	machine.expectAlert("RestoreFailed", false)
}
