package operator

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/validate"
)

const (
	// previewSkew is how far the clock of a user may be ahead of the operator's without a refusal of the longest preview.
	previewSkew = time.Hour
	// serverSkew is how far the operator's clock may be ahead of the API server's when it deletes a preview.
	serverSkew = time.Minute
)

// isPreview reports whether the object ends at a time.
func (subject *subject) isPreview() bool { return subject.preview != nil }

// previewState returns nil for an object that is no preview.
func (operator *Operator) previewState(subject *subject) *reconcile.PreviewState {
	if !subject.isPreview() {
		return nil
	}
	state := &reconcile.PreviewState{Of: subject.preview.Of, Expires: subject.preview.Expires}
	ends, _ := subject.preview.ExpiresAt()
	if refused := operator.refusedEnd(subject); refused != nil {
		ends = operator.endOfRefused(subject, refused.Reason)
		state.Expires = v1alpha1.ExpiryText(ends)
	}
	state.SecondsLeft = int64(math.Ceil(ends.Sub(operator.now()).Seconds()))
	return state
}

// refusedEnd returns a block if the time of a preview is none, or too far away.
func (operator *Operator) refusedEnd(subject *subject) *reconcile.Block {
	if !subject.isPreview() {
		return nil
	}
	ends, err := subject.preview.ExpiresAt()
	switch {
	case err != nil:
		message := fmt.Sprintf("spec.preview.expires: %q is not a time; write one in UTC such as 2026-12-03T09:30:00Z", subject.preview.Expires)
		return &reconcile.Block{Reason: reconcile.ReasonExpiresUnreadable, Message: message}
	case ends.Sub(operator.now()) > v1alpha1.PreviewMax+previewSkew:
		message := fmt.Sprintf("spec.preview.expires: %q is more than 30 days away; deploy it with --expires of at most 720h", subject.preview.Expires)
		return &reconcile.Block{Reason: reconcile.ReasonExpiresTooFar, Message: message}
	}
	return nil
}

// endOfRefused returns when a preview ends whose time is refused: the longest time after it was refused. Otherwise it would run for good with the last
// spec that was not refused.
func (operator *Operator) endOfRefused(subject *subject, reason string) time.Time {
	refused := meta.FindStatusCondition(subject.status.Conditions, reconcile.ConditionDegraded)
	if refused == nil || refused.Reason != reason {
		return operator.now().Add(v1alpha1.PreviewMax).Truncate(time.Second)
	}
	return refused.LastTransitionTime.Add(v1alpha1.PreviewMax)
}

// expire deletes a preview whose time is over, and reports whether it has. Kubernetes then deletes what the preview owns.
func (operator *Operator) expire(ctx context.Context, subject *subject, state *reconcile.PreviewState) (bool, error) {
	// A preview with another problem is not applied, but deleted all the same. An App that only says to be a preview never is.
	isNoPreview := func(problem validate.Problem) bool { return problem.Path == "spec.preview.of" }
	if state == nil || state.SecondsLeft > 0 || slices.ContainsFunc(subject.problems(), isNoPreview) {
		return false, nil
	}
	isOver, err := operator.isOverByServer(ctx, state)
	if state.IsClockAhead = err == nil && !isOver; err != nil || !isOver {
		return false, err
	}
	uid, version := subject.object.GetUID(), subject.object.GetResourceVersion()
	// With the version, the server refuses the deletion if a deploy has extended the preview and the cache does not know it yet.
	gone := client.Preconditions{UID: &uid, ResourceVersion: &version}
	err = operator.Writer.Delete(ctx, subject.object, gone, client.PropagationPolicy("Background"))
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting the expired preview %s: %w", subject.scope(), err)
	}
	message := fmt.Sprintf("this preview of %s has expired at %s", state.Of, state.Expires)
	if state.Expires == v1alpha1.ExpiredAlready {
		message = fmt.Sprintf("this preview of %s was deleted by request", state.Of)
	}
	operator.record(subject, []reconcile.Event{{Reason: reconcile.EventExpired, Message: message}})
	return true, nil
}

// isOverByServer reports whether the time of a preview is over by the clock of the API server as well: a wrong clock of the operator would delete all
// previews at once.
func (operator *Operator) isOverByServer(ctx context.Context, state *reconcile.PreviewState) (bool, error) {
	if operator.ServerNow == nil || state.Expires == v1alpha1.ExpiredAlready {
		return true, nil
	}
	now, err := operator.ServerNow(ctx)
	if err != nil {
		return false, fmt.Errorf("deleting the expired preview of %s: asking the API server for its time: %w", state.Of, err)
	}
	left := time.Duration(state.SecondsLeft)*time.Second + operator.now().Sub(now)
	return left <= serverSkew, nil
}

// ServerTime returns a function that asks an API server for its time. The answer to a review has it, and each account may ask for a review of itself.
func ServerTime(writer client.Writer) func(ctx context.Context) (time.Time, error) {
	return func(ctx context.Context) (time.Time, error) {
		review := &unstructured.Unstructured{}
		review.SetAPIVersion("authentication.k8s.io/v1")
		review.SetKind("SelfSubjectReview")
		if err := writer.Create(ctx, review); err != nil {
			return time.Time{}, err
		}
		return review.GetCreationTimestamp().Time, nil
	}
}

// endsOf returns when those Apps end that are previews. An App that cannot be read is left out: it only makes a message longer.
func (operator *Operator) endsOf(ctx context.Context, namespace string, names []string) map[string]string {
	ends := map[string]string{}
	for _, name := range names {
		var app v1alpha1.App
		err := operator.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &app)
		if err != nil || app.Spec.Preview == nil {
			continue
		}
		ends[name] = operator.previewState(subjectOf(&app)).Expires
	}
	return ends
}

// takeHost deletes the Ingresses with which a preview serves a host that an App or a Dunlin claims. A pass of the preview that did not know the claim yet
// may write one again; its next pass, which is blocked, takes it away.
func (operator *Operator) takeHost(ctx context.Context, preview *subject, host string) error {
	var list networkingv1.IngressList
	if err := operator.Reader.List(ctx, &list, operator.belongingTo(preview)...); err != nil {
		return err
	}
	for index := range list.Items {
		ingress := &list.Items[index]
		if !reconcile.IsOwnedBy(ingress, preview.object.GetUID()) || !hasRule(ingress, host, preview.path) {
			continue
		}
		name := objectName{networkingv1.SchemeGroupVersion.String(), "Ingress", ingress.Name}
		if err := operator.remove(ctx, preview, name, ingress.UID); err != nil {
			return err
		}
	}
	return nil
}
