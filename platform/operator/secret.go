package operator

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// mountedSecret returns the content of the Secret that a spec names, or why the Secret is not mounted. The Secret needs a label, which only a user with
// write access to the Secret can set. Without this requirement, a user who can write a Dunlin could read each Secret of the namespace. The operator uses
// the content only for a hash, whose change restarts the pods, and to find missing keys.
func (operator *Operator) mountedSecret(ctx context.Context, subject *subject) (map[string]string, *reconcile.Block, error) {
	if subject.secret == "" {
		return nil, nil, nil
	}
	var found corev1.Secret
	err := operator.Live.Get(ctx, types.NamespacedName{Namespace: subject.object.GetNamespace(), Name: subject.secret}, &found)
	isMissing := apierrors.IsNotFound(err)
	if err != nil && !isMissing {
		return nil, nil, err
	}
	refused := func(format string, values ...any) (map[string]string, *reconcile.Block, error) {
		message := fmt.Sprintf("spec.keys.secret: the Secret %s ", subject.secret) + fmt.Sprintf(format, values...)
		return nil, &reconcile.Block{Reason: reconcile.ReasonSecretRefused, Message: message}, nil
	}
	remedy := fmt.Sprintf("label it: kubectl -n %s label secret %s %s=true", subject.object.GetNamespace(), subject.secret, render.LabelUsable)
	content := map[string]string{}
	for name, value := range found.Data {
		content[name] = string(value)
	}
	keys := settings.Settings{Secret: content}
	switch {
	case isMissing:
		return refused("does not exist; create it, and %s", remedy)
	case found.Labels[render.LabelUsable] != "true":
		return refused("has no label %s=true, so no Dunlin may use it; to allow it, %s", render.LabelUsable, remedy)
	}
	if missing := subject.missing(keys); len(missing) > 0 {
		return refused("has no %s; add it with `kubectl -n %s edit secret %s`", strings.Join(missing, ", "), subject.object.GetNamespace(), subject.secret)
	}
	if problem := subject.unusable(keys); problem != "" {
		return refused("cannot be used: %s", problem)
	}
	return content, nil, nil
}
