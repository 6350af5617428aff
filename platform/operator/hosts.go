package operator

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// fieldHost is indexed in the cache, and can be selected by at the API server.
const fieldHost = "spec.host"

// blocked is why the subject is not applied, or nil.
func (operator *Operator) blocked(ctx context.Context, subject *subject) (*reconcile.Block, error) {
	if problems := subject.problems(); len(problems) > 0 {
		return &reconcile.Block{Reason: reconcile.ReasonSpecInvalid, Message: problems[0].String()}, nil
	}
	if subject.host == "" {
		return nil, nil
	}
	others, err := operator.subjectsAt(ctx, subject.host)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if other.object.GetUID() != subject.object.GetUID() && isSamePath(other, subject) && isBefore(other, subject) {
			message := fmt.Sprintf("the host and path are those of %s %s; change one of them", other.kind, other.scope())
			return &reconcile.Block{Reason: reconcile.ReasonHostTaken, Message: message}, nil
		}
	}
	return nil, nil
}

func (operator *Operator) subjectsAt(ctx context.Context, host string) ([]*subject, error) {
	var apps v1alpha1.AppList
	var dunlins v1alpha1.DunlinList
	var found []*subject
	for _, list := range []client.ObjectList{&apps, &dunlins} {
		for _, namespace := range operator.Namespaces {
			if err := operator.Reader.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{fieldHost: host}); err != nil {
				return nil, err
			}
			for index := range apps.Items {
				found = append(found, subjectOf(&apps.Items[index]))
			}
			for index := range dunlins.Items {
				found = append(found, subjectOf(&dunlins.Items[index]))
			}
			apps.Items, dunlins.Items = nil, nil
		}
	}
	return found, nil
}

func isSamePath(a, b *subject) bool { return strings.Trim(a.path, "/") == strings.Trim(b.path, "/") }

// isBefore is whether a has the older right to what both claim.
func isBefore(a, b *subject) bool {
	if a.object.GetDeletionTimestamp() != nil {
		return false
	}
	first, second := a.object.GetCreationTimestamp(), b.object.GetCreationTimestamp()
	if !first.Equal(&second) {
		return first.Before(&second)
	}
	return a.scope()+"/"+a.kind < b.scope()+"/"+b.kind
}
