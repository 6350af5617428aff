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

// refusedError is an error of the API server that a retry does not resolve.
type refusedError struct {
	name  objectName
	cause error
}

func (e *refusedError) Error() string {
	if e.name.kind == "Secret" {
		// The response may contain a value of the Secret.
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
		// If another object was created meanwhile, the next pass checks its owner.
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
		// With the UID, the server refuses the write if the object was deleted and created again.
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
	// The operator owns the fields that it sets, so it reverts changes by others.
	err = operator.Writer.Patch(ctx, written, client.RawPatch(types.ApplyPatchType, body),
		client.FieldOwner(manager), client.ForceOwnership)
	if err == nil {
		operator.recent.add(subject.key(), name, versionOf(written.Object))
	}
	return err
}

// bind sets the owner of an object, and leaves its other fields unchanged.
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
	// Ignore an object that was deleted meanwhile.
	return client.IgnoreNotFound(err)
}

func (operator *Operator) remove(ctx context.Context, subject *subject, name objectName, uid types.UID) error {
	gone := &unstructured.Unstructured{}
	gone.SetAPIVersion(name.version)
	gone.SetKind(name.kind)
	gone.SetNamespace(subject.object.GetNamespace())
	gone.SetName(name.name)
	err := operator.Writer.Delete(ctx, gone, client.Preconditions{UID: &uid}, client.PropagationPolicy("Background"))
	// A conflict means that the name belongs to a different object now.
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		operator.recent.add(subject.key(), name, deletedVersion)
		return nil
	}
	return err
}

// refusalOf returns the message of a refused write, or an empty string.
func refusalOf(err error) string {
	var refused *refusedError
	if errors.As(err, &refused) {
		return refused.Error()
	}
	return ""
}
