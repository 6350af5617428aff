package deploy_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/deploy"
)

// TestTheOperatorOfTheMachines is the operator, but for one flag.
func TestTheOperatorOfTheMachines(t *testing.T) {
	text, err := deploy.Files.ReadFile("operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	machines, err := os.ReadFile("machines/operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const flag = "--https-entry-point=websecure, "
	_, rest, _ := strings.Cut(string(machines), "\n")
	if strings.Contains(string(text), "--https-entry-point") || strings.Count(rest, flag) != 1 || strings.Replace(rest, flag, "", 1) != string(text) {
		t.Error("machines/operator.yaml is not operator.yaml with " + flag + "; run platform/generate")
	}
}

// TestTheOperatorsAreOnDifferentNodes where there are several, and start on a cluster with one.
func TestTheOperatorsAreOnDifferentNodes(t *testing.T) {
	text, err := deploy.Files.ReadFile("operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var deployment appsv1.Deployment
		if err := yaml.Unmarshal(document, &deployment); err != nil || deployment.Kind != "Deployment" {
			continue
		}
		template := deployment.Spec.Template
		if *deployment.Spec.Replicas < 2 || len(template.Spec.TopologySpreadConstraints) != 1 {
			t.Fatalf("%+v", deployment.Spec)
		}
		spread := template.Spec.TopologySpreadConstraints[0]
		isOfPods := spread.LabelSelector != nil && len(spread.LabelSelector.MatchLabels) > 0
		for name, value := range spread.LabelSelector.MatchLabels {
			isOfPods = isOfPods && template.Labels[name] == value
		}
		if spread.TopologyKey != "kubernetes.io/hostname" || spread.MaxSkew != 1 || spread.WhenUnsatisfiable != "ScheduleAnyway" || !isOfPods {
			t.Errorf("%+v", spread)
		}
		return
	}
	t.Fatal("there is no Deployment")
}
