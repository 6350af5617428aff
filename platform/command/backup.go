package command

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	operationWaitDefault  = time.Hour
	operationIDCharacters = 8
)

// operationQuery is the command line of `roost backup`, `drill` and `restore`.
type operationQuery struct {
	namespace string
	wait      time.Duration
	operation v1alpha1.Operation
}

// operationNames are the names of the commands.
var operationNames = map[string]string{render.TaskSave: "backup", render.TaskVerify: "drill", render.TaskRestore: "restore"}

func (program *program) backupCommand() *cobra.Command {
	return program.operationCommand(render.TaskSave, &cobra.Command{
		Use:   "backup NAME",
		Short: "Save the volumes of an App, or the storage of a Dunlin, now",
		Long: `Save the volumes of an App, the dump that its command writes, or the newest backup of a Dunlin to its repository now, and wait for the result.

The operator runs the backup in the same way as a scheduled one. Exit code 1 means that the backup failed. A backup counts only after a
verified restore: see roost drill.`,
	})
}

func (program *program) drillCommand() *cobra.Command {
	return program.operationCommand(render.TaskVerify, &cobra.Command{
		Use:   "drill NAME",
		Short: "Verify now that the newest backup of an App or a Dunlin can be restored",
		Long: `Check the repository of an App or a Dunlin, restore its newest snapshot into an empty volume, compare each file with its checksum from the time of
the backup, and delete the volume. The pods keep running. With spec.backup.restoreCommand, the dump is then loaded into a copy of the App with
empty volumes.

Exit code 1 means that the backup cannot be restored.`,
	})
}

func (program *program) restoreCommand() *cobra.Command {
	return program.operationCommand(render.TaskRestore, &cobra.Command{
		Use:   "restore NAME",
		Short: "Restore the volumes of an App's first pod, its dump, or the storage of a Dunlin, from a backup",
		Long: `Stop the pods of an App or a Dunlin, restore a snapshot into the volumes of its first pod, and start the pods again. For a Dunlin, a new storage
is created from the newest backup in the snapshot. If a Dunlin runs its own NATS servers, its streams are restored into them, and get a new epoch.

Data that was written after the snapshot is lost; the command prints the time of the snapshot. Volumes that contain files are replaced only with
--replace, and only after the snapshot was restored beside them and compared. If that fails, the pods start with the previous content of the
volumes. The volumes need space for both states at the same time.

With spec.backup.restoreCommand, the dump is restored and compared, and then loaded into the App, whose pods keep running; this needs --replace.
If the restore is interrupted while it replaces files, the pods stay stopped, and no backup is made, until roost restore completes it.

Exit code 1 means that the restore failed.`,
		Example: `  roost restore -n web shop --replace
  roost restore -n web shop --replace --snapshot 1f2e3d4c`,
	})
}

func (program *program) operationCommand(kind string, command *cobra.Command) *cobra.Command {
	query := operationQuery{}
	query.operation.Kind = kind
	command.Args = exactlyOneName
	command.RunE = func(_ *cobra.Command, names []string) error {
		cluster, err := program.connect()
		if err != nil {
			return err
		}
		return program.operate(cluster, names[0], query)
	}
	program.addNamespaceFlags(command, &query.namespace)
	command.Flags().DurationVar(&query.wait, "wait", operationWaitDefault, "how long to wait for the operation to end; 0: do not wait")
	if kind == render.TaskRestore {
		command.Flags().StringVar(&query.operation.Snapshot, "snapshot", "latest", "latest, or the prefix of a snapshot ID")
		command.Flags().BoolVar(&query.operation.Replace, "replace", false, "replace the content of the volumes")
	}
	return command
}

// operate requests an operation from the operator, and waits for its end.
func (program *program) operate(cluster *cluster, name string, query operationQuery) error {
	ctx := context.Background()
	subject, err := cluster.withRepository(ctx, query.namespace, name)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("%s %s/%s", kindOf(subject), subject.GetNamespace(), subject.GetName())
	status := statusOf(subject).Backup
	if status != nil && !status.Operation.IsEnded() {
		return fmt.Errorf("a %s is already running; wait until it ends: `roost status -n %s %s` shows its state",
			operationNames[status.Operation.Kind], subject.GetNamespace(), subject.GetName())
	}
	query.operation.ID = strings.ToLower(rand.Text()[:operationIDCharacters])
	if query.operation.Kind == render.TaskRestore {
		program.note("%s", lossOf(status, query.operation.Snapshot, time.Now()))
	}
	if err := cluster.ask(ctx, subject, query.operation); err != nil {
		return err
	}
	if query.wait == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, query.wait)
	defer cancel()
	ended, err := program.follow(ctx, cluster, subject, query.operation.ID)
	if err != nil {
		return err
	}
	if program.isJSON() {
		err = program.printJSON(ended)
	} else if ended.Phase == v1alpha1.OperationSucceeded {
		program.print("%s: %s", title, ended.Message)
	}
	if err == nil && ended.Phase != v1alpha1.OperationSucceeded {
		err = &foundError{fmt.Sprintf("%s: the %s failed: %s", title, operationNames[ended.Kind], ended.Message)}
	}
	return err
}

// withRepository returns an App or a Dunlin that has a repository.
func (cluster *cluster) withRepository(ctx context.Context, namespace, name string) (client.Object, error) {
	subject, err := cluster.find(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	var spec *v1alpha1.Backup
	switch subject := subject.(type) {
	case *v1alpha1.App:
		spec = subject.Spec.Backup
	case *v1alpha1.Dunlin:
		spec = subject.Spec.Backup
	}
	if spec == nil || spec.Repository == nil {
		return nil, fmt.Errorf("the %s %s has no repository; set spec.backup.repository", kindOf(subject), name)
	}
	return subject, nil
}

// lossOf describes the data that a restore of a snapshot loses, before the restore starts. Only the time of the newest snapshot is known at this
// point.
func lossOf(status *v1alpha1.BackupStatus, snapshot string, now time.Time) string {
	if status == nil || status.LastBackup == nil {
		return "no backup is known. Data that was written after the snapshot is lost; the time of the snapshot is printed when it is restored"
	}
	newest := fmt.Sprintf("%s of %s", status.LastSnapshot, status.LastBackup.UTC().Format(time.RFC3339))
	since := now.Sub(status.LastBackup.Time).Round(time.Second)
	if snapshot == "latest" || strings.HasPrefix(status.LastSnapshot, snapshot) {
		return fmt.Sprintf("the newest known snapshot is %s (%s ago). Data that was written after it is lost", newest, since)
	}
	return fmt.Sprintf("the newest known snapshot is %s (%s ago). Data that was written after snapshot %s is lost; "+
		"the time of snapshot %s is printed when it is restored", newest, since, snapshot, snapshot)
}

// ask writes the operation to an annotation, and changes nothing else in the object.
func (cluster *cluster) ask(ctx context.Context, subject client.Object, operation v1alpha1.Operation) error {
	text, err := json.Marshal(operation)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": subject.GetUID(), "annotations": map[string]string{render.AnnotationOperation: string(text)},
	}})
	if err != nil {
		return err
	}
	return cluster.explained(cluster.Patch(ctx, subject.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, patch)))
}

// follow prints each phase until the operation has ended.
func (program *program) follow(ctx context.Context, cluster *cluster, subject client.Object, id string) (*v1alpha1.Operation, error) {
	pause := time.NewTicker(pollPause)
	defer pause.Stop()
	last := ""
	for {
		current := newSubject(kindOf(subject), subject.GetNamespace(), subject.GetName())
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(current), current); err != nil && ctx.Err() == nil {
			return nil, cluster.explained(err)
		}
		if status := statusOf(current).Backup; status != nil && status.Operation != nil && status.Operation.ID == id {
			if status.Operation.IsEnded() {
				return status.Operation, nil
			}
			if text := strings.TrimSuffix(status.Operation.Phase+": "+status.Operation.Message, ": "); text != last {
				last = text
				program.note("%s", text)
			}
		}
		select {
		case <-ctx.Done():
			if last == "" {
				return nil, errors.New("timed out, and the operator has not started the operation; check that the operator runs")
			}
			return nil, fmt.Errorf("timed out while the operation runs: %s. The operator continues it; `roost status` shows the result", last)
		case <-pause.C:
		}
	}
}
