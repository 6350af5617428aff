package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// listOf is a reader that returns these Apps and Dunlins.
type listOf struct {
	apps    []v1alpha1.App
	dunlins []v1alpha1.Dunlin
}

func (list listOf) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	panic("not called")
}

func (list listOf) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	switch into := into.(type) {
	case *v1alpha1.AppList:
		into.Items = list.apps
	case *v1alpha1.DunlinList:
		into.Items = list.dunlins
	default:
		return fmt.Errorf("%T is not expected", into)
	}
	return nil
}

func TestMetricsOfAppsAndDunlins(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	ago := func(seconds int) metav1.Time { return metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second)) }
	named := func(name string) v1alpha1.App {
		return v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, CreationTimestamp: ago(500)}}
	}
	whole := named("whole")
	whole.Spec.Backup = &v1alpha1.Backup{Repository: &v1alpha1.Repository{}, FreshSeconds: new(int64(60))}
	whole.Status.Backup = &v1alpha1.BackupStatus{LastBackup: new(ago(10)), LastVerifiedRestore: new(ago(20)), VerifyFailure: &v1alpha1.BackupFailure{}}
	fresh := named("fresh")
	fresh.Spec.Backup = &v1alpha1.Backup{Repository: &v1alpha1.Repository{}}
	plain := named("plain")
	plain.Spec.Backup = &v1alpha1.Backup{Command: v1alpha1.Command{"x"}}
	lost, well := named("lost"), named("well")
	lost.Status.Conditions = []metav1.Condition{{Type: reconcile.ConditionDegraded, Status: metav1.ConditionTrue, Reason: reconcile.ReasonNodeLost}}
	well.Status.Conditions = []metav1.Condition{{Type: reconcile.ConditionDegraded, Status: metav1.ConditionFalse, Reason: reconcile.ReasonAsDesired}}
	well.Status.Conditions = append(well.Status.Conditions, metav1.Condition{Type: reconcile.ConditionReady, Status: metav1.ConditionTrue, Reason: reconcile.ReasonAsDesired})
	broken, completing, removed := named("broken"), named("completing"), named("removed")
	broken.Spec.Backup = &v1alpha1.Backup{Command: v1alpha1.Command{"x"}}
	broken.Status.Backup = &v1alpha1.BackupStatus{RestoreUnfinished: true, Operation: &v1alpha1.Operation{Phase: v1alpha1.OperationFailed}}
	completing.Spec.Backup = broken.Spec.Backup
	completing.Status.Backup = &v1alpha1.BackupStatus{RestoreUnfinished: true, Operation: &v1alpha1.Operation{Phase: v1alpha1.OperationRuns}}
	removed.Status.Backup = broken.Status.Backup
	dunlin := v1alpha1.Dunlin{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "realtime", CreationTimestamp: ago(500)}}
	dunlin.Spec.Backup = &v1alpha1.Backup{Repository: &v1alpha1.Repository{}}
	dunlin.Status.Backup = &v1alpha1.BackupStatus{LastBackup: new(ago(30)), SaveFailure: &v1alpha1.BackupFailure{}}
	// An App and a Dunlin may have one name.
	namesake := v1alpha1.Dunlin{ObjectMeta: whole.ObjectMeta}
	namesake.Spec.Backup = &v1alpha1.Backup{Repository: &v1alpha1.Repository{}}
	namesake.Status.Backup = &v1alpha1.BackupStatus{LastBackup: new(ago(40))}
	list := listOf{[]v1alpha1.App{whole, fresh, plain, named("none"), lost, well, broken, completing, removed}, []v1alpha1.Dunlin{dunlin, namesake}}
	registry := prometheus.NewPedanticRegistry()
	metrics := &SubjectMetrics{Reader: list, Namespaces: []string{"web"}, Now: func() time.Time { return now }}
	registry.MustRegister(metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found, known := map[string]float64{}, map[string]bool{}
	for _, family := range families {
		known[family.GetName()] = true
		for _, metric := range family.GetMetric() {
			key := family.GetName()
			for _, label := range metric.GetLabel() {
				key += " " + label.GetValue()
			}
			found[key] = metric.GetGauge().GetValue()
		}
	}
	for key, want := range map[string]float64{
		"roost_backup_age_seconds App whole web": 10, "roost_backup_age_bound_seconds App whole web": 60,
		"roost_verified_restore_age_seconds App whole web": 20, "roost_verified_restore_age_bound_seconds App whole web": 691_200,
		"roost_backup_failed App whole web save": 0, "roost_backup_failed App whole web verify": 1,
		"roost_backup_age_seconds App fresh web": 500, "roost_verified_restore_age_seconds App fresh web": 500,
		"roost_verified_restore_age_seconds App plain web": 500,
		"roost_node_lost App lost web":                     1, "roost_node_lost App well web": 0,
		"roost_condition App lost web NodeLost Degraded": 1, "roost_condition App well web AsDesired Degraded": 0, "roost_condition App well web AsDesired Ready": 1,
		"roost_restore_unfinished App whole web": 0, "roost_restore_unfinished App broken web": 1,
		"roost_restore_unfinished App completing web": 0, "roost_restore_unfinished App removed web": 1,
		"roost_backup_age_seconds Dunlin realtime web": 30, "roost_verified_restore_age_seconds Dunlin realtime web": 500,
		"roost_backup_age_seconds Dunlin whole web": 40, "roost_backup_age_bound_seconds Dunlin realtime web": 97_200, "roost_backup_age_bound_seconds App fresh web": 90_000,
		"roost_backup_failed Dunlin realtime web save": 1, "roost_backup_failed Dunlin realtime web verify": 0,
	} {
		if value, isThere := found[key]; !isThere || value != want {
			t.Errorf("%s: %v, want %v", key, value, want)
		}
	}
	if len(found) != 7+7+3+2+3+3+3+1+7+7 {
		t.Errorf("%v", found)
	}
	// A rule about a metric that is not there would never fire.
	rules := ""
	for _, file := range []string{"apps.yaml", "backups.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "watching", "rules", file))
		if err != nil {
			t.Fatal(err)
		}
		rules += string(text)
	}
	names := regexp.MustCompile(`\broost_\w+`).FindAllString(rules, -1)
	for _, name := range names {
		if !known[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
	if len(names) < 11 {
		t.Errorf("the rules name %q", names)
	}
}
