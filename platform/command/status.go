package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// state is the output of `roost status` for an App or a Dunlin.
type state struct {
	Kind       string             `json:"kind"`
	Namespace  string             `json:"namespace"`
	Name       string             `json:"name"`
	Image      string             `json:"image"`
	Revision   string             `json:"revision,omitempty"`
	Conditions []metav1.Condition `json:"conditions"`
	Revisions  []revisionState    `json:"revisions,omitempty"`
	// Backup is nil without a repository.
	Backup *v1alpha1.BackupStatus `json:"backup,omitempty"`
	// Processes of an App that has several.
	Processes []v1alpha1.ProcessStatus `json:"processes,omitempty"`
	// Preview is nil for an App that is none.
	Preview *previewState `json:"preview,omitempty"`
	// Dunlin is nil for an App.
	Dunlin *v1alpha1.DunlinStatus `json:"dunlin,omitempty"`
}

type revisionState struct {
	Revision string      `json:"revision"`
	Number   int64       `json:"number"`
	Since    metav1.Time `json:"since"`
}

func (program *program) statusCommand() *cobra.Command {
	namespace := ""
	isEverywhere := false
	command := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show the conditions of Apps and Dunlins",
		Long: `List the Apps and Dunlins of a namespace with the most important condition of each, or show one of them with all its conditions and
revisions. The operator writes them.

Exit code 1 means that at least one is not ready or is degraded.`,
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) > 1 {
				return usageError{fmt.Errorf("there are %d arguments; name one App or Dunlin, or none", len(names))}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, names []string) error {
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			if isEverywhere {
				namespace = ""
			}
			states, err := cluster.states(context.Background(), namespace, names)
			if err != nil {
				return err
			}
			return program.printStatus(states, len(names) == 1)
		},
	}
	program.addNamespaceFlags(command, &namespace)
	command.Flags().BoolVarP(&isEverywhere, "all-namespaces", "A", false, "all namespaces")
	return command
}

func (cluster *cluster) states(ctx context.Context, namespace string, names []string) ([]state, error) {
	if len(names) == 0 {
		return cluster.allStates(ctx, namespace)
	}
	subject, err := cluster.find(ctx, namespace, names[0])
	if err != nil {
		return nil, err
	}
	revisions, err := cluster.revisions(ctx, subject)
	if err != nil {
		return nil, err
	}
	found := stateOf(subject)
	for _, revision := range revisions {
		found.Revisions = append(found.Revisions, revisionState{hashOf(revision), revision.Revision, revision.CreationTimestamp})
	}
	return []state{found}, nil
}

func (cluster *cluster) allStates(ctx context.Context, namespace string) ([]state, error) {
	subjects, err := cluster.allSubjects(ctx, namespace)
	if err != nil {
		return nil, err
	}
	found := []state{}
	for _, subject := range subjects {
		found = append(found, stateOf(subject))
	}
	return found, nil
}

// allSubjects returns the Apps and Dunlins of a namespace, or of all namespaces for "", sorted by their names.
func (cluster *cluster) allSubjects(ctx context.Context, namespace string) ([]client.Object, error) {
	var apps v1alpha1.AppList
	var dunlins v1alpha1.DunlinList
	for _, list := range []client.ObjectList{&apps, &dunlins} {
		if err := cluster.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, cluster.explained(err)
		}
	}
	var found []client.Object
	for index := range apps.Items {
		found = append(found, &apps.Items[index])
	}
	for index := range dunlins.Items {
		found = append(found, &dunlins.Items[index])
	}
	slices.SortFunc(found, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(kindOf(a), kindOf(b)))
	})
	return found, nil
}

func kindOf(subject client.Object) string {
	if _, isDunlin := subject.(*v1alpha1.Dunlin); isDunlin {
		return "Dunlin"
	}
	return "App"
}

func stateOf(subject client.Object) state {
	status := statusOf(subject)
	return state{
		Kind: kindOf(subject), Namespace: subject.GetNamespace(), Name: subject.GetName(), Image: imageOf(subject),
		Revision: status.Revision, Conditions: status.Conditions, Backup: status.Backup, Dunlin: status.Dunlin, Processes: status.Processes,
		Preview: previewOf(subject),
	}
}

func (state *state) isWell() bool {
	return meta.IsStatusConditionTrue(state.Conditions, reconcile.ConditionReady) &&
		!meta.IsStatusConditionTrue(state.Conditions, reconcile.ConditionDegraded)
}

// sentence returns the condition that matters most.
func (state *state) sentence() string {
	for _, kind := range []string{reconcile.ConditionDegraded, reconcile.ConditionProgressing} {
		if condition := meta.FindStatusCondition(state.Conditions, kind); condition != nil && condition.Status == metav1.ConditionTrue {
			return condition.Reason + ": " + condition.Message
		}
	}
	if ready := meta.FindStatusCondition(state.Conditions, reconcile.ConditionReady); ready != nil {
		return ready.Message
	}
	return "no operator has reconciled it yet"
}

func (program *program) printStatus(states []state, isOne bool) error {
	ill := 0
	for index := range states {
		if !states[index].isWell() {
			ill++
		}
	}
	switch {
	case program.isJSON():
		if err := program.printJSON(states); err != nil {
			return err
		}
	case isOne:
		program.printState(states[0])
	default:
		if err := program.printTable(states); err != nil {
			return err
		}
	}
	if ill > 0 {
		return &foundError{fmt.Sprintf("%d of %d not ready or degraded", ill, len(states))}
	}
	return nil
}

func (program *program) printTable(states []state) error {
	table := tabwriter.NewWriter(program.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tKIND\tNAME\tREADY\tREVISION\tIMAGE\tSTATE")
	for index := range states {
		state := &states[index]
		ready := "no"
		if meta.IsStatusConditionTrue(state.Conditions, reconcile.ConditionReady) {
			ready = "yes"
		}
		sentence := state.sentence()
		if preview := state.Preview; preview != nil {
			sentence = fmt.Sprintf("preview of %s, %s: %s", preview.Of, preview.left(), sentence)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", state.Namespace, state.Kind, state.Name, ready,
			cmp.Or(state.Revision, "-"), state.Image, sentence)
	}
	return table.Flush()
}

func (program *program) printState(state state) {
	program.print("%s %s/%s", state.Kind, state.Namespace, state.Name)
	program.print("image     %s", state.Image)
	program.print("revision  %s", cmp.Or(state.Revision, "none serves yet"))
	if preview := state.Preview; preview != nil {
		program.print("preview   of %s, until %s (%s)", preview.Of, preview.Expires, preview.left())
	}
	for _, condition := range state.Conditions {
		program.print("%-18s %-5s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	for _, process := range state.Processes {
		program.print("process %-16s  %d of %d pods ready; %d of the newest revision", process.Name, process.Ready, process.Desired, process.Updated)
	}
	if dunlin := state.Dunlin; dunlin != nil {
		program.printNodes(dunlin)
	}
	if backup := state.Backup; backup != nil {
		program.print("last backup            %s", snapshotText(backup.LastBackup, backup.LastSnapshot))
		program.print("last verified restore  %s", snapshotText(backup.LastVerifiedRestore, backup.VerifiedSnapshot))
		if loss := backup.NodeLoss; loss != nil && loss.Restored != nil {
			program.print("last loss of a node     %s", reconcile.SentenceOfLoss(loss))
		}
		if operation := backup.Operation; operation != nil {
			program.print("last operation         %s %s: %s", operationNames[operation.Kind], operation.Phase, operation.Message)
		}
	}
	for _, revision := range state.Revisions {
		program.print("revision %d  %s  %s", revision.Number, revision.Revision, revision.Since.UTC().Format("2006-01-02 15:04:05"))
	}
}

func (program *program) printNodes(dunlin *v1alpha1.DunlinStatus) {
	program.print("nodes     %d of %d ready; %d answer", dunlin.NodesReady, dunlin.NodesDesired, dunlin.NodesAnswering)
	if dunlin.NodesAnswering > 0 {
		program.print("sessions  %d", dunlin.Sessions)
		program.print("rooms     %d", dunlin.Rooms)
		program.print("version   %s", dunlin.Version)
	}
	if dunlin.LastDrain != nil {
		program.print("last drain  %s", dunlin.LastDrain.UTC().Format("2006-01-02 15:04:05"))
	}
}

func snapshotText(when *metav1.Time, snapshot string) string {
	if when == nil {
		return "none"
	}
	return when.UTC().Format("2006-01-02 15:04:05") + "  snapshot " + snapshot
}
