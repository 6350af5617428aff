package command_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/operator"
)

// promtoolCase is one test of `promtool test rules`.
type promtoolCase struct {
	Interval string              `json:"interval"`
	Series   []map[string]string `json:"input_series"`
	Tests    []map[string]any    `json:"alert_rule_test"`
}

// series returns the series that the operator's collector reads from the API server, each with its current value for half an hour.
func (machine *taskMachine) series() []map[string]string {
	t := machine.t
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(&operator.SubjectMetrics{Reader: machine.admin, Namespaces: []string{"web"}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []map[string]string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := []string{`job="roost"`}
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+strconv.Quote(label.GetValue()))
			}
			name := family.GetName() + "{" + strings.Join(labels, ",") + "}"
			found = append(found, map[string]string{"series": name, "values": fmt.Sprint(metric.GetGauge().GetValue(), "x30")})
		}
	}
	return found
}

// expectAlert makes Prometheus evaluate the rules of platform/watching with the operator's current metrics.
func (machine *taskMachine) expectAlert(name string, isFiring bool) {
	t := machine.t
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is not installed, so no alert can be evaluated; `scripts/need prometheus` installs it")
	}
	rules, err := filepath.Abs("../watching/rules/backups.yaml")
	if err != nil {
		t.Fatal(err)
	}
	summary := map[string]string{"RestoreFailed": "The backup of App web/database cannot be restored"}[name]
	alerts := []any{}
	if isFiring {
		alerts = append(alerts, map[string]any{
			"exp_labels":      map[string]string{"severity": "critical", "namespace": "web", "name": "database", "kind": "App"},
			"exp_annotations": map[string]string{"summary": summary},
		})
	}
	test := promtoolCase{Interval: "1m", Series: machine.series(), Tests: []map[string]any{{"eval_time": "20m", "alertname": name, "exp_alerts": alerts}}}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "tests": []promtoolCase{test}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%s with what the operator reports: %v: %s", name, err, out)
	}
}
