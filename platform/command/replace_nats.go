package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

const replacePause = 200 * time.Millisecond

func (program *program) replaceNATSCommand() *cobra.Command {
	var wait time.Duration
	namespace := ""
	command := &cobra.Command{
		Use:   "replace-nats NAME POD",
		Short: "Give a NATS server of a Dunlin an empty volume, after the loss of its machine",
		Long: `Give a NATS server of a Dunlin an empty volume, after the loss of the machine that has its volume. The server starts on another machine, and
copies the streams from the other servers, which serve meanwhile.

The command requires that all other servers are ready, because a majority must have the streams, and that the machine is gone or not ready.
Make sure that the machine is off and stays off. The old volume is kept. The command needs administrator rights, and can be run again after a
failure.`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 2 {
				return usageError{fmt.Errorf("there are %d arguments; name a Dunlin, and the pod of its NATS server", len(arguments))}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, arguments []string) error {
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			cluster.role = "cluster-admin"
			ctx, cancel := program.interruptible()
			defer cancel()
			run := &natsReplacement{program, cluster, namespace, arguments[0], arguments[1]}
			return run.run(ctx, wait)
		},
	}
	program.addNamespaceFlags(command, &namespace)
	command.Flags().DurationVar(&wait, "wait", waitDefault, "how long to wait until the server has the streams")
	return command
}

// natsReplacement is a run of the command.
type natsReplacement struct {
	*program
	cluster              *cluster
	namespace, name, pod string
}

func (run *natsReplacement) run(ctx context.Context, wait time.Duration) error {
	if err := run.checkServers(ctx); err != nil {
		return err
	}
	claim, volume, err := run.lostVolume(ctx)
	if err != nil {
		return run.cluster.explained(err)
	}
	if claim != nil && claim.DeletionTimestamp == nil {
		if err := run.release(ctx, claim, volume); err != nil {
			return run.cluster.explained(err)
		}
	}
	gone, err := run.deletePod(ctx)
	if err != nil {
		return run.cluster.explained(err)
	}
	return run.untilReady(ctx, gone, wait)
}

// checkServers returns an error unless the other servers are ready, and so have a majority.
func (run *natsReplacement) checkServers(ctx context.Context) error {
	var dunlin v1alpha1.Dunlin
	if err := run.cluster.Get(ctx, client.ObjectKey{Namespace: run.namespace, Name: run.name}, &dunlin); err != nil {
		return run.cluster.explained(err)
	}
	if dunlin.Spec.NATS == nil || dunlin.Spec.NATS.Servers == nil || *dunlin.Spec.NATS.Servers < 3 {
		return fmt.Errorf("%s has fewer than three NATS servers of its own, so no other server has the streams. Start the machine again", run.name)
	}
	var names []string
	for index := range *dunlin.Spec.NATS.Servers {
		names = append(names, fmt.Sprintf("%s-%d", render.NATSName(run.name), index))
	}
	if !slices.Contains(names, run.pod) {
		return fmt.Errorf("%s is not a NATS server of %s; its NATS servers are %s", run.pod, run.name, strings.Join(names, ", "))
	}
	for _, name := range names {
		var pod corev1.Pod
		err := run.cluster.Get(ctx, client.ObjectKey{Namespace: run.namespace, Name: name}, &pod)
		if client.IgnoreNotFound(err) != nil {
			return run.cluster.explained(err)
		}
		if name != run.pod && (err != nil || !isReadyPod(&pod)) {
			return fmt.Errorf("%s is not ready, and %s may be needed for the streams; nothing was changed. Wait until all other servers are ready", name, run.pod)
		}
	}
	return nil
}

// lostVolume returns the claim of the pod and its volume, or nil if an earlier run has deleted the claim. It returns an error unless the volume
// is on one machine that is gone or not ready.
func (run *natsReplacement) lostVolume(ctx context.Context) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	err := run.cluster.Get(ctx, client.ObjectKey{Namespace: run.namespace, Name: "data-" + run.pod}, claim)
	if apierrors.IsNotFound(err) || err == nil && claim.Spec.VolumeName == "" {
		return nil, nil, nil
	}
	if err == nil {
		err = run.cluster.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume)
	}
	if err != nil {
		return nil, nil, err
	}
	host := render.HostOfVolume(volume)
	if host == "" {
		return nil, nil, fmt.Errorf("volume %s of %s is not local to one machine: Kubernetes can attach it to another one. Nothing was changed", volume.Name, run.pod)
	}
	var nodes corev1.NodeList
	if err := run.cluster.List(ctx, &nodes, client.MatchingLabels{corev1.LabelHostname: host}); err != nil {
		return nil, nil, err
	}
	for index := range nodes.Items {
		if isReadyNode(&nodes.Items[index]) {
			return nil, nil, fmt.Errorf("node %s with volume %s is ready, so its data is there; nothing was changed", nodes.Items[index].Name, volume.Name)
		}
	}
	return claim, volume, nil
}

// release sets the volume to Retain, and deletes the claim. Kubernetes removes the claim when its pod is gone.
func (run *natsReplacement) release(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	run.note("volume %s is kept; claim %s is deleted, and the StatefulSet creates an empty one", volume.Name, claim.Name)
	retain := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`))
	if err := run.cluster.Patch(ctx, volume, retain); err != nil {
		return err
	}
	return client.IgnoreNotFound(run.cluster.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}))
}

// deletePod deletes the pod that waits for the lost machine, and returns its UID. It does not delete a pod that has been recreated since.
func (run *natsReplacement) deletePod(ctx context.Context) (types.UID, error) {
	var pod corev1.Pod
	err := run.cluster.Get(ctx, client.ObjectKey{Namespace: run.namespace, Name: run.pod}, &pod)
	if err != nil || isReadyPod(&pod) {
		return "", client.IgnoreNotFound(err)
	}
	err = run.cluster.Delete(ctx, &pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	return pod.UID, client.IgnoreNotFound(err)
}

// untilReady waits for the new pod. A NATS server is ready when it has caught up with the others.
func (run *natsReplacement) untilReady(ctx context.Context, gone types.UID, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	pause := time.NewTicker(replacePause)
	defer pause.Stop()
	for {
		var pod corev1.Pod
		err := run.cluster.Get(ctx, client.ObjectKey{Namespace: run.namespace, Name: run.pod}, &pod)
		if err == nil && pod.UID != gone && isReadyPod(&pod) {
			run.print("%s is ready on node %s, with the streams of the other servers", run.pod, pod.Spec.NodeName)
			return nil
		}
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			return run.cluster.explained(err)
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return &foundError{fmt.Sprintf("%s did not become ready within %s; `kubectl -n %s describe pod %s` shows the cause. The other servers serve", run.pod, wait, run.namespace, run.pod)}
		case <-pause.C:
		}
	}
}

func isReadyPod(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}
