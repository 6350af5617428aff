package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

const deleteWaitDefault = 5 * time.Minute

// deletion is what `roost delete` does.
type deletion struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	IsDeleted bool   `json:"deleted"`
	// Objects are those that Kubernetes deletes with the App or the Dunlin, and Kept what stays.
	Objects []string `json:"objects"`
	Kept    []string `json:"kept"`
	// isInBackground is true if the objects may still exist when the App is deleted.
	isInBackground bool
}

func (program *program) deleteCommand() *cobra.Command {
	namespace, isMeant, wait := "", false, time.Duration(0)
	command := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete an App or a Dunlin with its objects; its volumes and backups stay",
		Long: `Delete an App or a Dunlin with the objects that were rendered from it, and wait until its pods have ended. Without --yes, the command only lists what
would be deleted and what stays, and ends with exit code 1.

Volumes, the snapshots in a repository of backups, and Secrets that others have made are never deleted. With deletionPolicy: Orphan in the spec,
all rendered objects stay and continue to serve. You need the ClusterRole roost-identity-operator.`,
		Example: `  roost delete -n web shop          # lists what it would delete
  roost delete -n web shop --yes`,
		Args: exactlyOneName,
		RunE: func(_ *cobra.Command, names []string) error {
			if wait < 0 {
				return usageError{fmt.Errorf("--wait is %s; write a duration such as 5m, or 0 to wait for nothing", wait)}
			}
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			cluster.role = clusterRoles["operator"]
			ctx, cancel := program.interruptible()
			defer cancel()
			subject, err := cluster.find(ctx, namespace, names[0])
			if err != nil {
				return err
			}
			if isMeant {
				return program.delete(ctx, cluster, subject, wait)
			}
			if err := program.printDeletion(deletionOf(subject)); err != nil {
				return err
			}
			return &foundError{"nothing is deleted; repeat the command with --yes"}
		},
	}
	program.addNamespaceFlags(command, &namespace)
	command.Flags().BoolVar(&isMeant, "yes", false, "delete; without it, the command only lists what it would delete")
	command.Flags().DurationVar(&wait, "wait", deleteWaitDefault, "how long to wait until the objects are deleted; 0: do not wait")
	return command
}

func deletionOf(subject client.Object) deletion {
	made := deletion{Kind: kindOf(subject), Namespace: subject.GetNamespace(), Name: subject.GetName(), Objects: []string{}, Kept: []string{}}
	list := &made.Objects
	if policyOf(subject) == v1alpha1.DeletionPolicyOrphan {
		list = &made.Kept
	}
	for _, object := range statusOf(subject).Inventory {
		*list = append(*list, object.Kind+" "+object.Name)
	}
	slices.Sort(*list)
	made.Kept = append(made.Kept, dataOf(subject)...)
	return made
}

// dataOf describes what no deletion touches.
func dataOf(subject client.Object) []string {
	var kept []string
	var backup *v1alpha1.Backup
	hasVolumes := false
	switch object := subject.(type) {
	case *v1alpha1.App:
		backup = object.Spec.Backup
		hasVolumes = slices.ContainsFunc(object.Spec.Volumes, func(volume v1alpha1.Volume) bool { return volume.Size != nil })
	case *v1alpha1.Dunlin:
		backup = object.Spec.Backup
		hasVolumes = object.Spec.Storage != nil || object.Spec.NATS != nil && object.Spec.NATS.Servers != nil
	}
	if hasVolumes {
		kept = append(kept, fmt.Sprintf("its PersistentVolumeClaims: kubectl -n %s get persistentvolumeclaims -l %s=%s",
			subject.GetNamespace(), render.LabelApp, subject.GetName()))
	}
	if backup != nil && backup.Repository != nil {
		kept = append(kept, "the snapshots in its repository of backups")
	}
	return kept
}

func policyOf(subject client.Object) string {
	policy := ""
	switch object := subject.(type) {
	case *v1alpha1.App:
		policy = object.Spec.DeletionPolicy
	case *v1alpha1.Dunlin:
		policy = object.Spec.DeletionPolicy
	}
	return cmp.Or(policy, v1alpha1.DeletionPolicyDelete)
}

func (program *program) printDeletion(made deletion) error {
	if program.isJSON() {
		return program.printJSON(made)
	}
	verb := "deletes"
	if made.IsDeleted {
		verb = "deleted"
	}
	program.print("%s: %s %s/%s", verb, made.Kind, made.Namespace, made.Name)
	if made.isInBackground {
		verb = "deletes in the background"
	}
	for _, object := range made.Objects {
		program.print("%s: %s", verb, object)
	}
	for _, kept := range made.Kept {
		program.print("stays: %s", kept)
	}
	return nil
}

// delete deletes an App or a Dunlin. Kubernetes deletes its objects first, so the wait needs no right to read them.
func (program *program) delete(ctx context.Context, cluster *cluster, subject client.Object, wait time.Duration) error {
	made, title := deletionOf(subject), fmt.Sprintf("%s %s/%s", kindOf(subject), subject.GetNamespace(), subject.GetName())
	if made.isUnsettled(subject) {
		return fmt.Errorf("the operator has not applied the last change of %s, so its objects may be deleted in spite of deletionPolicy: Orphan; "+
			"wait until `roost status -n %s %s` shows it, and repeat the command", title, made.Namespace, made.Name)
	}
	uid := subject.GetUID()
	err := cluster.Delete(ctx, subject, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return cluster.explained(err)
	}
	if wait > 0 {
		if err := cluster.waitUntilGone(ctx, subject, wait); err != nil {
			return fmt.Errorf("%s is being deleted: %w", title, err)
		}
	}
	made.IsDeleted = wait > 0
	return program.printDeletion(made)
}

// isUnsettled reports whether the objects may still have an owner although the spec has the policy Orphan.
func (made deletion) isUnsettled(subject client.Object) bool {
	return policyOf(subject) == v1alpha1.DeletionPolicyOrphan && statusOf(subject).ObservedGeneration != subject.GetGeneration()
}

// waitUntilGone waits until an object does not exist, or is another one of the same name.
func (cluster *cluster) waitUntilGone(ctx context.Context, subject client.Object, wait time.Duration) error {
	pause := time.NewTicker(pollPause)
	defer pause.Stop()
	deadline := time.After(wait)
	for {
		current := newSubject(kindOf(subject), subject.GetNamespace(), subject.GetName())
		err := cluster.Get(ctx, client.ObjectKeyFromObject(current), current)
		if apierrors.IsNotFound(err) || err == nil && current.GetUID() != subject.GetUID() {
			return nil
		}
		if err != nil {
			return cluster.explained(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			if len(current.GetFinalizers()) == 0 {
				return fmt.Errorf("after %s, it is still there; check that an operator runs and that its --namespaces contains %s", wait, subject.GetNamespace())
			}
			return fmt.Errorf("after %s, it still has the finalizers %s; `kubectl -n %s get all -l %s=%s` shows what is left",
				wait, strings.Join(current.GetFinalizers(), ", "), subject.GetNamespace(), render.LabelApp, subject.GetName())
		case <-pause.C:
		}
	}
}
