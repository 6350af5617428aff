package operator

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// statusManager owns the fields of the status.
const statusManager = "roost-status"

// report writes the status if it differs.
func (operator *Operator) report(ctx context.Context, subject *subject, result reconcile.Result, outcome outcome) error {
	next := nextStatus(subject, result, outcome, operator.now())
	if equality.Semantic.DeepEqual(*subject.status, next) {
		return nil
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": subject.kind, "status": next,
		"metadata": map[string]any{
			"name": subject.object.GetName(), "uid": subject.object.GetUID(),
			// A write that the server performs late does not replace a newer status: a restore that has ended would run again.
			"resourceVersion": subject.object.GetResourceVersion(),
		},
	})
	if err != nil {
		return err
	}
	written := newObject(subject.kind)
	written.SetNamespace(subject.object.GetNamespace())
	written.SetName(subject.object.GetName())
	operator.recent.sendStatus(subject.key(), next)
	err = operator.Writer.Status().Patch(ctx, written, client.RawPatch(types.ApplyPatchType, body),
		client.FieldOwner(statusManager), client.ForceOwnership)
	if apierrors.IsConflict(err) && operator.hasStatus(ctx, subject, next, written) {
		err = nil
	}
	if err != nil {
		operator.recent.addStatus(subject.key(), unknownVersion)
		return err
	}
	operator.recent.addStatus(subject.key(), versionIn(written))
	operator.record(subject, reconcile.StatusEvents(*subject.status, next))
	return nil
}

// hasStatus reads the App or the Dunlin, and reports whether it has this status. If the response to a write is lost, retry sends it again, and the API
// server refuses the second one: the first one has changed the resourceVersion.
func (operator *Operator) hasStatus(ctx context.Context, subject *subject, status v1alpha1.Status, into client.Object) bool {
	err := operator.Live.Get(ctx, client.ObjectKeyFromObject(subject.object), into)
	return err == nil && into.GetUID() == subject.object.GetUID() && equality.Semantic.DeepEqual(*subjectOf(into).status, status)
}

// nextStatus keeps the times of conditions that hold as they did.
func nextStatus(subject *subject, result reconcile.Result, outcome outcome, now time.Time) v1alpha1.Status {
	next := v1alpha1.Status{
		ObservedGeneration: subject.object.GetGeneration(), Revision: subject.status.Revision, Files: outcome.files,
		Inventory: result.Inventory, Backup: outcome.backup, Dunlin: outcome.dunlin, Processes: result.Processes,
	}
	isRolledOut := outcome.revision != ""
	for _, condition := range result.Conditions {
		before := meta.FindStatusCondition(subject.status.Conditions, condition.Type)
		fresh := metav1.Condition{
			Type: condition.Type, Status: metav1.ConditionFalse, Reason: condition.Reason, Message: condition.Message,
			ObservedGeneration: subject.object.GetGeneration(), LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		}
		if condition.Holds {
			fresh.Status = metav1.ConditionTrue
		}
		isOlder := before != nil && before.Status == fresh.Status
		if isOlder && (before.Reason == fresh.Reason || !reconcile.CountsFromReason(fresh.Reason)) {
			fresh.LastTransitionTime = before.LastTransitionTime
		}
		next.Conditions = append(next.Conditions, fresh)
		isDifferent := condition.Type == reconcile.ConditionProgressing || condition.Type == reconcile.ConditionDegraded
		isRolledOut = isRolledOut && !(isDifferent && condition.Holds)
	}
	if isRolledOut {
		next.Revision = outcome.revision
	}
	return next
}
