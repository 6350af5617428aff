package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// annotationKubectl is the annotation in which `kubectl apply` stores the last applied object.
const annotationKubectl = "kubectl.kubernetes.io/last-applied-configuration"

func (program *program) rollbackCommand() *cobra.Command {
	var wait time.Duration
	target, namespace := "", ""
	command := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Restore the image, configuration and secrets of an earlier revision together",
		Long: `Restore the image, configuration and secrets of an earlier revision together, and wait until it serves.

Without --to, that is the revision before the current one; a second rollback returns to the current one. Files that were encrypted
for an age identity which the operator no longer has cannot be decrypted. If a program
such as Argo CD applies the manifests from Git, revert the commit in Git instead.`,
		Args: exactlyOneName,
		RunE: func(_ *cobra.Command, names []string) error {
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			subject, err := cluster.find(context.Background(), namespace, names[0])
			if err != nil {
				return err
			}
			earlier, revision, err := cluster.earlier(context.Background(), subject, target)
			if err != nil {
				return err
			}
			program.note("%s: rolling back to revision %s", earlier, revision)
			return program.roll(cluster, []*release{earlier}, wait)
		},
	}
	program.addNamespaceFlags(command, &namespace)
	command.Flags().StringVar(&target, "to", "", "revision to roll back to; roost status NAME lists them")
	command.Flags().DurationVar(&wait, "wait", waitDefault, "how long to wait until it serves; 0: do not wait")
	return command
}

func exactlyOneName(_ *cobra.Command, arguments []string) error {
	if len(arguments) != 1 {
		return usageError{fmt.Errorf("there are %d arguments; name one App or Dunlin", len(arguments))}
	}
	return nil
}

// find returns the App or the Dunlin with a name. An App and a Dunlin with the same name cannot both serve.
func (cluster *cluster) find(ctx context.Context, namespace, name string) (client.Object, error) {
	for _, kind := range []string{"App", "Dunlin"} {
		subject := newSubject(kind, namespace, name)
		err := cluster.Get(ctx, client.ObjectKeyFromObject(subject), subject)
		if !apierrors.IsNotFound(err) {
			return subject, cluster.explained(err)
		}
	}
	return nil, fmt.Errorf("there is no App and no Dunlin %s in the namespace %s; `roost status -n %s` lists them", name, namespace, namespace)
}

// revisions returns the revisions of a subject, the newest first.
func (cluster *cluster) revisions(ctx context.Context, subject client.Object) ([]appsv1.ControllerRevision, error) {
	var all appsv1.ControllerRevisionList
	selector := client.MatchingLabels{render.LabelApp: subject.GetName(), render.LabelManagedBy: render.ManagedBy}
	if err := cluster.List(ctx, &all, client.InNamespace(subject.GetNamespace()), selector); err != nil {
		return nil, cluster.explained(err)
	}
	own := slices.DeleteFunc(all.Items, func(revision appsv1.ControllerRevision) bool {
		return !reconcile.IsOwnedBy(&revision, subject.GetUID())
	})
	slices.SortFunc(own, func(a, b appsv1.ControllerRevision) int { return int(b.Revision - a.Revision) })
	return own, nil
}

// hashOf returns the part of the name that `roost status` shows.
func hashOf(revision appsv1.ControllerRevision) string {
	return revision.Name[strings.LastIndexByte(revision.Name, '-')+1:]
}

// earlier returns a release of the spec and files that a revision has recorded.
func (cluster *cluster) earlier(ctx context.Context, subject client.Object, target string) (*release, string, error) {
	revisions, err := cluster.revisions(ctx, subject)
	if err != nil {
		return nil, "", err
	}
	if target == "" {
		if target, err = beforeNewest(subject, revisions); err != nil {
			return nil, "", err
		}
	}
	for _, revision := range revisions {
		if hashOf(revision) != target {
			continue
		}
		var record render.Record
		if err := json.Unmarshal(revision.Data.Raw, &record); err != nil {
			return nil, "", fmt.Errorf("reading revision %s: %w", target, err)
		}
		made, err := recordedRelease(subject, record)
		return made, target, err
	}
	return nil, "", fmt.Errorf("there is no revision %s; `roost status -n %s %s` lists them", target, subject.GetNamespace(), subject.GetName())
}

// unrecorded are reasons for which the operator does not record the newest spec: such a spec cannot run.
var unrecorded = []string{reconcile.ReasonSpecInvalid, reconcile.ReasonHostTaken, reconcile.ReasonSettingsUnreadable, reconcile.ReasonSecretRefused, reconcile.ReasonImageRefused}

// beforeNewest returns the revision before the one that the subject requests.
func beforeNewest(subject client.Object, revisions []appsv1.ControllerRevision) (string, error) {
	if !isLookedAt(subject) {
		return "", errors.New("the operator has not reconciled the newest spec yet; wait until it has, or name a revision with --to")
	}
	position := 1
	if isUnrecorded(statusOf(subject)) {
		position = 0
	}
	if len(revisions) <= position {
		return "", errors.New("there is no earlier revision; change the manifest, and run `roost deploy`")
	}
	return hashOf(revisions[position]), nil
}

// remedyOf returns the remedy for a release that does not serve. It does not suggest a rollback to a revision that has never served.
func (cluster *cluster) remedyOf(release *release) (string, error) {
	ctx := context.Background()
	subject := newSubject(release.kind, release.namespace, release.name)
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(subject), subject); err != nil {
		return "", cluster.explained(err)
	}
	revisions, err := cluster.revisions(ctx, subject)
	if err != nil {
		return "", err
	}
	status := statusOf(subject)
	isRecorded := slices.ContainsFunc(revisions, func(revision appsv1.ControllerRevision) bool { return hashOf(revision) == status.Revision })
	switch {
	case !isLookedAt(subject):
		return "check that an operator runs and that its --namespaces contains " + release.namespace, nil
	case !isRecorded:
		return "no earlier release has served, so there is no revision to roll back to; correct the manifest, and run `roost deploy`", nil
	case hashOf(revisions[0]) == status.Revision && !isUnrecorded(status):
		return "this is the revision that served last; correct the manifest, and run `roost deploy`", nil
	}
	return fmt.Sprintf("`roost rollback -n %s %s --to %s` rolls back to the revision that served last", release.namespace, release.name, status.Revision), nil
}

// isLookedAt reports whether the status describes the newest spec and its files.
func isLookedAt(subject client.Object) bool {
	status := statusOf(subject)
	return status.ObservedGeneration >= subject.GetGeneration() && status.Files == subject.GetAnnotations()[render.AnnotationFiles]
}

// isUnrecorded reports whether the operator has not created a revision of the newest spec.
func isUnrecorded(status v1alpha1.Status) bool {
	degraded := meta.FindStatusCondition(status.Conditions, reconcile.ConditionDegraded)
	return degraded != nil && degraded.Status == metav1.ConditionTrue && slices.Contains(unrecorded, degraded.Reason)
}

func recordedRelease(subject client.Object, record render.Record) (*release, error) {
	annotations := maps.Clone(subject.GetAnnotations())
	delete(annotations, annotationKubectl)
	spec, err := withPreview(record.Spec, subject)
	if err != nil {
		return nil, err
	}
	made := &release{
		kind: kindOf(subject), namespace: subject.GetNamespace(), name: subject.GetName(),
		labels: subject.GetLabels(), annotations: annotations, spec: spec,
	}
	return made, made.take(record.Files)
}

// withPreview gives the spec of an earlier revision the time of the preview, which no revision has.
func withPreview(spec json.RawMessage, subject client.Object) (json.RawMessage, error) {
	app, isApp := subject.(*v1alpha1.App)
	if !isApp || app.Spec.Preview == nil {
		return spec, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(spec, &fields); err != nil {
		return nil, fmt.Errorf("reading the spec of a revision: %w", err)
	}
	var err error
	if fields["preview"], err = json.Marshal(app.Spec.Preview); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}
