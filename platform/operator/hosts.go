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

// fieldHosts is an index of the cache by each public name.
const fieldHosts = "hosts"

// blocked returns why the subject is not applied, or nil.
func (operator *Operator) blocked(ctx context.Context, claimant *subject) (*reconcile.Block, error) {
	// First, because the end of such a preview is counted from the time at which the condition got this reason.
	if block := operator.refusedEnd(claimant); block != nil {
		return block, nil
	}
	if problems := claimant.problems(); len(problems) > 0 {
		return &reconcile.Block{Reason: reconcile.ReasonSpecInvalid, Message: problems[0].String()}, nil
	}
	for _, host := range claimant.hosts {
		if block, err := operator.hostTaken(ctx, claimant, host); block != nil || err != nil {
			return block, err
		}
	}
	return nil, nil
}

// hostTaken returns a block if another subject has a host of this one with the same path.
func (operator *Operator) hostTaken(ctx context.Context, claimant *subject, host string) (*reconcile.Block, error) {
	others, err := operator.subjectsAt(ctx, host)
	if err != nil {
		return nil, err
	}
	others = slices.DeleteFunc(others, func(other *subject) bool {
		return other.object.GetUID() == claimant.object.GetUID() || !isSamePath(other, claimant)
	})
	if len(others) == 0 {
		return nil, nil
	}
	holds, err := operator.holdsHost(ctx, claimant, host)
	if err != nil {
		return nil, err
	}
	// The subject that has the host keeps it. If both have it, or neither has it, the older subject gets it.
	var elder *subject
	for _, other := range others {
		if other.isPreview() != claimant.isPreview() {
			preview := other
			if claimant.isPreview() {
				preview = claimant
			}
			if err := operator.takeHost(ctx, preview, host); err != nil {
				return nil, err
			}
			if claimant.isPreview() {
				return hostTakenBy(other, claimant, host), nil
			}
			continue
		}
		otherHolds, err := operator.holdsHost(ctx, other, host)
		if err != nil {
			return nil, err
		}
		if otherHolds && !holds {
			return hostTakenBy(other, claimant, host), nil
		}
		if otherHolds == holds && isBefore(other, claimant) {
			elder = other
		}
	}
	if elder == nil {
		return nil, nil
	}
	return hostTakenBy(elder, claimant, host), nil
}

func hostTakenBy(other, claimant *subject, host string) *reconcile.Block {
	message := fmt.Sprintf("%s %s has the same host and path; change one of them", other.kind, other.scope())
	if host != claimant.hosts[0] {
		message = fmt.Sprintf("%s %s has the host %s and the same path; change one of them", other.kind, other.scope(), host)
	}
	return &reconcile.Block{Reason: reconcile.ReasonHostTaken, Message: message}
}

// holdsHost reports whether an Ingress of the subject has a host and its path. A subject that is being deleted holds no host.
func (operator *Operator) holdsHost(ctx context.Context, subject *subject, host string) (bool, error) {
	if subject.object.GetDeletionTimestamp() != nil {
		return false, nil
	}
	var list networkingv1.IngressList
	if err := operator.Reader.List(ctx, &list, operator.belongingTo(subject)...); err != nil {
		return false, err
	}
	for index := range list.Items {
		if reconcile.IsOwnedBy(&list.Items[index], subject.object.GetUID()) && hasRule(&list.Items[index], host, subject.path) {
			return true, nil
		}
	}
	return false, nil
}

func hasRule(ingress *networkingv1.Ingress, host, path string) bool {
	for _, rule := range ingress.Spec.Rules {
		if rule.Host != host || rule.HTTP == nil {
			continue
		}
		for _, served := range rule.HTTP.Paths {
			if strings.Trim(served.Path, "/") == strings.Trim(path, "/") {
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
			options := []client.ListOption{client.InNamespace(namespace)}
			if operator.isIndexed {
				options = append(options, client.MatchingFields{fieldHosts: host})
			}
			if err := operator.Reader.List(ctx, list, options...); err != nil {
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
	return slices.DeleteFunc(found, func(other *subject) bool { return !slices.Contains(other.hosts, host) }), nil
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
