package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// refusedError is an answer of the API server that will be the same the next time, unless somebody changes something.
type refusedError struct {
	name  objectName
	cause error
}

func (e *refusedError) Error() string {
	if e.name.kind == "Secret" {
		// The answer may have a value in it.
		return fmt.Sprintf("the API server refuses %s/%s: %s", e.name.kind, e.name.name, apierrors.ReasonForError(e.cause))
	}
	return fmt.Sprintf("the API server refuses %s/%s: %s", e.name.kind, e.name.name, e.cause)
}

func (e *refusedError) Unwrap() error { return e.cause }

func (operator *Operator) write(ctx context.Context, subject *subject, write reconcile.Write, live map[objectName]reconcile.Manifest) error {
	name := nameOf(write.Object)
	var err error
	switch write.Kind {
	case reconcile.WriteDelete:
		err = operator.remove(ctx, subject, name, types.UID(write.UID))
	case reconcile.WriteOwner:
		err = operator.bind(ctx, subject, name, write)
	case reconcile.WriteCreate:
		made := (&unstructured.Unstructured{Object: write.Object}).DeepCopy()
		made.SetNamespace(subject.object.GetNamespace())
		// If another one was made meanwhile, the next pass looks whose it is.
		err = client.IgnoreAlreadyExists(operator.Writer.Create(ctx, made, client.FieldOwner(reconcile.FieldManager)))
	case reconcile.WriteKeepReplicas:
		err = operator.apply(ctx, subject, name, write.Object, live[name], reconcile.ReplicasManager)
	default:
		err = operator.apply(ctx, subject, name, write.Object, live[name], reconcile.FieldManager)
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return &refusedError{name, err}
	}
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", write.Kind, name.kind, name.name, err)
	}
	return nil
}

func (operator *Operator) apply(ctx context.Context, subject *subject, name objectName, object, current reconcile.Manifest, manager string) error {
	sent := unstructured.Unstructured{Object: object}
	if current != nil {
		// If the object was deleted, and made again by somebody else, the server refuses.
		sent.SetUID((&unstructured.Unstructured{Object: current}).GetUID())
	}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	written := &unstructured.Unstructured{}
	written.SetAPIVersion(name.version)
	written.SetKind(name.kind)
	written.SetNamespace(subject.object.GetNamespace())
	written.SetName(name.name)
	// A field that we set is ours, so a change by somebody else is undone.
	err = operator.Writer.Patch(ctx, written, client.RawPatch(types.ApplyPatchType, body),
		client.FieldOwner(manager), client.ForceOwnership)
	if err == nil {
		operator.recent.add(subject.key(), name, versionOf(written.Object))
	}
	return err
}

// bind sets who owns an object. A field that is applied otherwise stays as it is.
func (operator *Operator) bind(ctx context.Context, subject *subject, name objectName, write reconcile.Write) error {
	sent := unstructured.Unstructured{Object: write.Object}
	sent.SetUID(types.UID(write.UID))
	body, err := json.Marshal(sent.Object)
	if err != nil {
		return err
	}
	written := &unstructured.Unstructured{}
	written.SetAPIVersion(name.version)
	written.SetKind(name.kind)
	written.SetNamespace(subject.object.GetNamespace())
	written.SetName(name.name)
	err = operator.Writer.Patch(ctx, written, client.RawPatch(types.MergePatchType, body), client.FieldOwner(reconcile.FieldManager))
	if err == nil {
		operator.recent.add(subject.key(), name, versionOf(written.Object))
	}
	// If it was deleted meanwhile, there is nothing to bind.
	return client.IgnoreNotFound(err)
}

func (operator *Operator) remove(ctx context.Context, subject *subject, name objectName, uid types.UID) error {
	gone := &unstructured.Unstructured{}
	gone.SetAPIVersion(name.version)
	gone.SetKind(name.kind)
	gone.SetNamespace(subject.object.GetNamespace())
	gone.SetName(name.name)
	err := operator.Writer.Delete(ctx, gone, client.Preconditions{UID: &uid}, client.PropagationPolicy("Background"))
	// A conflict says that the object is another one by now.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		operator.recent.add(subject.key(), name, deletedVersion)
		return nil
	}
	return err
}

// refusalOf is the message of a refused write, or nothing.
func refusalOf(err error) string {
	var refused *refusedError
	if errors.As(err, &refused) {
		return refused.Error()
	}
	return ""
}
