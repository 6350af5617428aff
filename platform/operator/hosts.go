package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// fieldHost is an index of the cache, and a selectable field of the API server.
const fieldHost = "spec.host"

// blocked returns why the subject is not applied, or nil.
func (operator *Operator) blocked(ctx context.Context, claimant *subject) (*reconcile.Block, error) {
	if problems := claimant.problems(); len(problems) > 0 {
		return &reconcile.Block{Reason: reconcile.ReasonSpecInvalid, Message: problems[0].String()}, nil
	}
	if claimant.host == "" {
		return nil, nil
	}
	others, err := operator.subjectsAt(ctx, claimant.host)
	if err != nil {
		return nil, err
	}
	others = slices.DeleteFunc(others, func(other *subject) bool {
		return other.object.GetUID() == claimant.object.GetUID() || !isSamePath(other, claimant)
	})
	if len(others) == 0 {
		return nil, nil
	}
	holds, err := operator.holdsHost(ctx, claimant)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		otherHolds, err := operator.holdsHost(ctx, other)
		if err != nil {
			return nil, err
		}
		// The subject that has the host keeps it. If both have it, or neither has it, the older subject gets it.
		if otherHolds && !holds || otherHolds == holds && isBefore(other, claimant) {
			message := fmt.Sprintf("%s %s has the same host and path; change one of them", other.kind, other.scope())
			return &reconcile.Block{Reason: reconcile.ReasonHostTaken, Message: message}, nil
		}
	}
	return nil, nil
}

// holdsHost reports whether an Ingress of the subject has its host and path. A subject that is being deleted does not hold its host.
func (operator *Operator) holdsHost(ctx context.Context, subject *subject) (bool, error) {
	if subject.object.GetDeletionTimestamp() != nil {
		return false, nil
	}
	var list networkingv1.IngressList
	if err := operator.Reader.List(ctx, &list, operator.belongingTo(subject)...); err != nil {
		return false, err
	}
	for index := range list.Items {
		if reconcile.IsOwnedBy(&list.Items[index], subject.object.GetUID()) && hasRule(&list.Items[index], subject) {
			return true, nil
		}
	}
	return false, nil
}

func hasRule(ingress *networkingv1.Ingress, subject *subject) bool {
	for _, rule := range ingress.Spec.Rules {
		if rule.Host != subject.host || rule.HTTP == nil {
			continue
		}
		for _, path := range rule.HTTP.Paths {
			if strings.Trim(path.Path, "/") == strings.Trim(subject.path, "/") {
				return true
			}
		}
	}
	return false
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

// isBefore reports whether a takes precedence over b for a host that both claim.
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
