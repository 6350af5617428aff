package operator_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/apiserver"
)

// TestTheOperatorHasNoOtherRights queries a real API server. The other tests show which rights the operator needs, because they use these rights.
func TestTheOperatorHasNoOtherRights(t *testing.T) {
	world := newWorld(t, "rights")
	// A namespace that has no RoleBinding to the operator.
	if err := apiserver.NewNamespace(t.Context(), world.admin, "rights-other"); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		namespace, verb, group, resource string
		isAllowed                        bool
	}{
		{"rights", "get", "", "secrets", true},
		{"rights", "patch", "apps", "deployments", true},
		{"rights", "patch", "apps.roost.dev", "apps", false},
		{"rights", "delete", "apps.roost.dev", "apps", true},
		{"rights", "delete", "apps.roost.dev", "dunlins", false},
		{"rights", "get", "", "persistentvolumeclaims", true},
		{"rights", "create", "", "persistentvolumeclaims", true},
		{"rights", "list", "", "persistentvolumeclaims", false},
		{"rights", "patch", "", "persistentvolumeclaims", false},
		{"rights", "delete", "", "persistentvolumeclaims", false},
		{"rights", "delete", "", "pods", true},
		{"rights", "deletecollection", "", "pods", false},
		{"rights", "patch", "", "pods", false},
		{"rights", "create", "", "pods", false},
		{"rights", "create", "", "pods/exec", false},
		{"rights", "create", "", "serviceaccounts/token", false},
		{"rights", "create", "rbac.authorization.k8s.io", "rolebindings", false},
		{"rights", "impersonate", "", "serviceaccounts", false},
		{"rights", "create", "", "events", true},
		{"rights", "delete", "", "events", false},
		{"rights-other", "get", "", "secrets", false},
		{"rights-other", "create", "", "events", false},
		{"rights-other", "get", "apps.roost.dev", "apps", false},
		{"roost-system", "get", "", "secrets", false},
		{"rights-other", "get", "", "persistentvolumeclaims", false},
		{"", "get", "", "secrets", false},
		{"", "get", "", "persistentvolumes", true},
		{"", "list", "", "nodes", true},
		{"", "get", "", "nodes", false},
		{"", "patch", "", "nodes", false},
		{"", "get", "", "nodes/proxy", false},
		{"", "patch", "", "persistentvolumes", false},
		{"", "delete", "", "persistentvolumes", false},
		{"", "list", "", "namespaces", false},
		{"", "list", "apps.roost.dev", "apps", false},
	} {
		resource, part, _ := strings.Cut(row.resource, "/")
		review := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
			"spec": map[string]any{
				"user": apiserver.OperatorAccount, "groups": []any{"system:serviceaccounts", "system:serviceaccounts:roost-system", "system:authenticated"},
				"resourceAttributes": map[string]any{
					"namespace": row.namespace, "verb": row.verb, "group": row.group, "resource": resource, "subresource": part,
				},
			},
		}}
		if err := world.admin.Create(t.Context(), client.Object(review)); err != nil {
			t.Fatal(err)
		}
		if isAllowed, _, _ := unstructured.NestedBool(review.Object, "status", "allowed"); isAllowed != row.isAllowed {
			t.Errorf("%s %s/%s in %q: %v", row.verb, row.group, row.resource, row.namespace, isAllowed)
		}
	}
}
