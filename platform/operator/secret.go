package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// refusedSecret is why the Secret that a spec names is not mounted, or nil. Whoever may write a Dunlin could read each Secret of the
// namespace otherwise. Only those who may write the Secret can set its label.
func (operator *Operator) refusedSecret(ctx context.Context, subject *subject) (*reconcile.Block, error) {
	if subject.secret == "" {
		return nil, nil
	}
	// Without the content, which is nobody's business here.
	var found metav1.PartialObjectMetadata
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := operator.Live.Get(ctx, types.NamespacedName{Namespace: subject.object.GetNamespace(), Name: subject.secret}, &found)
	isMissing := apierrors.IsNotFound(err)
	if err != nil && !isMissing {
		return nil, err
	}
	remedy := fmt.Sprintf("label it: kubectl -n %s label secret %s %s=true", subject.object.GetNamespace(), subject.secret, render.LabelUsable)
	switch {
	case isMissing:
		remedy = "make it, and " + remedy
		return &reconcile.Block{Reason: reconcile.ReasonSecretRefused, Message: fmt.Sprintf("spec.keys.secret: the Secret %s is not there; %s", subject.secret, remedy)}, nil
	case found.Labels[render.LabelUsable] != "true":
		message := fmt.Sprintf("spec.keys.secret: the Secret %s has no label %s=true, so no Dunlin may use it; if one may, %s", subject.secret, render.LabelUsable, remedy)
		return &reconcile.Block{Reason: reconcile.ReasonSecretRefused, Message: message}, nil
	}
	return nil, nil
}
