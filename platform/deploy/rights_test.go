package deploy_test

import (
	"bytes"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/deploy"
)

// dangerous verbs and resources give more rights than those that are written down.
var (
	dangerousVerbs     = []string{"*", "escalate", "bind", "impersonate", "approve", "sign", "deletecollection"}
	dangerousResources = []string{
		"*", "roles", "rolebindings", "clusterroles", "clusterrolebindings", "pods/exec", "pods/portforward", "pods/attach", "pods/ephemeralcontainers",
		"serviceaccounts/token", "nodes", "nodes/proxy", "namespaces", "persistentvolumes", "persistentvolumeclaims", "users", "groups",
		"certificatesigningrequests", "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "customresourcedefinitions",
	}
)

// reads are the rights to dangerous resources that change nothing, and say nothing secret.
var reads = map[string]map[string]string{
	"roost-operator": {"persistentvolumeclaims": "get"},
	nodesRole:        {"nodes": "list", "persistentvolumes": "get"},
}

// isNewClaim is whether a rule lets the operator make claims for a restore. It can neither change nor delete one.
func isNewClaim(role string, rule rbacv1.PolicyRule) bool {
	return role == "roost-operator" && slices.Equal(rule.Resources, []string{"persistentvolumeclaims"}) && slices.Equal(rule.Verbs, []string{"create"})
}

// isShell is whether a rule lets a debugger open a shell in a pod, and reach its ports.
func isShell(role string, rule rbacv1.PolicyRule) bool {
	return role == "roost-debugger" && slices.Equal(rule.Resources, []string{"pods/exec", "pods/portforward"}) && slices.Equal(rule.Verbs, []string{"get", "create"})
}

// nodesRole is the only one that is bound in all namespaces. It has rights to nothing that is in a namespace.
const nodesRole = "roost-operator-nodes"

func TestNoRoleGivesMoreThanItNames(t *testing.T) {
	entries, err := deploy.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	roles := 0
	for _, entry := range entries {
		text, err := deploy.Files.ReadFile(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			var read struct {
				metav1.TypeMeta   `json:",inline"`
				metav1.ObjectMeta `json:"metadata"`
				Rules             []rbacv1.PolicyRule `json:"rules"`
				RoleRef           rbacv1.RoleRef      `json:"roleRef"`
			}
			if err := yaml.Unmarshal(document, &read); err != nil {
				t.Fatal(err)
			}
			switch read.Kind {
			case "ClusterRoleBinding":
				if read.RoleRef.Kind != "ClusterRole" || read.RoleRef.Name != nodesRole {
					t.Errorf("%s: %s gives rights in all namespaces", entry.Name(), read.Name)
				}
			case "ClusterRole", "Role":
				roles++
				for _, rule := range read.Rules {
					if read.Name == nodesRole && !isRead(read.Name, rule) {
						t.Errorf("%s has more than %v: %v", read.Name, reads[nodesRole], rule)
					}
					checkRule(t, read.Name, rule)
				}
			}
		}
	}
	if roles != 8 {
		t.Errorf("%d roles", roles)
	}
}

// isRead is whether a rule has one of the reads, and nothing else.
func isRead(role string, rule rbacv1.PolicyRule) bool {
	return len(rule.Resources) == 1 && len(rule.Verbs) == 1 && rule.Verbs[0] == reads[role][rule.Resources[0]]
}

func checkRule(t *testing.T, role string, rule rbacv1.PolicyRule) {
	t.Helper()
	if len(rule.NonResourceURLs) > 0 || slices.Contains(rule.APIGroups, "*") || len(rule.Verbs)*len(rule.Resources) == 0 {
		t.Errorf("%s: %v", role, rule)
	}
	for _, verb := range rule.Verbs {
		if slices.Contains(dangerousVerbs, verb) {
			t.Errorf("%s: the verb %s on %v", role, verb, rule.Resources)
		}
	}
	for _, resource := range rule.Resources {
		if slices.Contains(dangerousResources, resource) && !isRead(role, rule) && !isNewClaim(role, rule) && !isShell(role, rule) {
			t.Errorf("%s: the resource %s", role, resource)
		}
	}
}
