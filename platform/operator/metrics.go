package operator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// metricsSecondsMax is the timeout for listing Apps from the cache.
const metricsSecondsMax = 5

var (
	backupLabels  = []string{"namespace", "name", "kind"}
	backupAge     = prometheus.NewDesc("roost_backup_age_seconds", "Age of the last backup of an App, or of the App if there was none.", backupLabels, nil)
	verifiedAge   = prometheus.NewDesc("roost_verified_restore_age_seconds", "Age of the last verified restore of an App, or of the App if there was none.", backupLabels, nil)
	backupBounds  = prometheus.NewDesc("roost_backup_age_bound_seconds", "Age at which the last backup of an App is too old.", backupLabels, nil)
	verifiedBound = prometheus.NewDesc("roost_verified_restore_age_bound_seconds", "Age at which the last verified restore of an App is too old.", backupLabels, nil)
	backupFailed  = prometheus.NewDesc("roost_backup_failed", "Whether the last backup (task save) or the last drill (task verify) has failed.", append(slices.Clone(backupLabels), "task"), nil)
	unfinished    = prometheus.NewDesc("roost_restore_unfinished", "Whether the pods of an App are stopped because a restore was interrupted, or it may have only a part of a dump.", backupLabels, nil)
	// A condition has one reason at a time. Alerts aggregate over it, because a new reason is a new series.
	conditionHolds = prometheus.NewDesc("roost_condition", "Whether a condition (type) of an App or a Dunlin is true, with its reason.", []string{"kind", "namespace", "name", "type", "reason"}, nil)
	nodeLost       = prometheus.NewDesc("roost_node_lost", "Whether a pod of an App waits for the volume of a node that is lost.", backupLabels, nil)
)

// SubjectMetrics collects the conditions of Apps and Dunlins, the ages of their backups, and whether nodes are lost.
type SubjectMetrics struct {
	Reader     client.Reader
	Namespaces []string
	// Now returns the time. Nil: the system clock.
	Now func() time.Time
}

// Describe implements prometheus.Collector.
func (metrics *SubjectMetrics) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{backupAge, verifiedAge, backupBounds, verifiedBound, backupFailed, unfinished, nodeLost, conditionHolds} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector. It leaves out Apps that cannot be listed: an alert on the operator covers that case.
func (metrics *SubjectMetrics) Collect(found chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsSecondsMax*time.Second)
	defer cancel()
	now := time.Now
	if metrics.Now != nil {
		now = metrics.Now
	}
	for _, namespace := range metrics.Namespaces {
		var apps v1alpha1.AppList
		if err := metrics.Reader.List(ctx, &apps, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			continue
		}
		for index := range apps.Items {
			collect(&apps.Items[index], KindApp, now(), found)
		}
		var dunlins v1alpha1.DunlinList
		if err := metrics.Reader.List(ctx, &dunlins, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			continue
		}
		for index := range dunlins.Items {
			dunlin := &dunlins.Items[index]
			collect(&v1alpha1.App{ObjectMeta: dunlin.ObjectMeta, Spec: v1alpha1.AppSpec{Backup: dunlin.Spec.Backup}, Status: dunlin.Status}, KindDunlin, now(), found)
		}
	}
}

func collect(app *v1alpha1.App, kind string, now time.Time, found chan<- prometheus.Metric) {
	send := func(description *prometheus.Desc, value float64, labels ...string) {
		labels = append([]string{app.Namespace, app.Name, kind}, labels...)
		found <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, labels...)
	}
	for _, condition := range app.Status.Conditions {
		holds := numberOf(condition.Status == metav1.ConditionTrue)
		found <- prometheus.MustNewConstMetric(conditionHolds, prometheus.GaugeValue, holds, kind, app.Namespace, app.Name, condition.Type, condition.Reason)
	}
	degraded := meta.FindStatusCondition(app.Status.Conditions, reconcile.ConditionDegraded)
	if degraded != nil {
		send(nodeLost, numberOf(degraded.Reason == reconcile.ReasonNodeLost))
	}
	spec, status := app.Spec.Backup, app.Status.Backup
	if status == nil {
		status = &v1alpha1.BackupStatus{}
	}
	if spec != nil || status.RestoreUnfinished {
		// The pods stay stopped if spec.backup is removed. While an operation runs, no alert is needed.
		send(unfinished, numberOf((status.RestoreUnfinished || loadUnfinished(spec, status)) && status.Operation.IsEnded()))
	}
	if spec == nil {
		return
	}
	age := func(last *metav1.Time) float64 {
		return float64(*ageOf(cmp.Or(last, &app.CreationTimestamp), now))
	}
	fresh, verified := boundsOf(spec, kind)
	if spec.Repository != nil {
		// Without a repository, only the CronJob records the last backup.
		send(backupAge, age(status.LastBackup))
		send(backupBounds, float64(fresh))
		send(backupFailed, numberOf(status.SaveFailure != nil), "save")
		send(backupFailed, numberOf(status.VerifyFailure != nil), "verify")
	}
	send(verifiedAge, age(status.LastVerifiedRestore))
	send(verifiedBound, float64(verified))
}

func numberOf(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}
