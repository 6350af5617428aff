package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

func status(revision string, conditions ...metav1.Condition) v1alpha1.Status {
	return v1alpha1.Status{Revision: revision, Conditions: conditions}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func textOf(events []Event) string {
	var texts []string
	for _, event := range events {
		texts = append(texts, fmt.Sprintf("%v %s: %s", event.IsWarning, event.Reason, event.Message))
	}
	return strings.Join(texts, "; ")
}

func TestStatusEvents(t *testing.T) {
	fine := condition(ConditionDegraded, "False", ReasonAsDesired, "nothing fails")
	failing := condition(ConditionDegraded, "True", ReasonPodFailing, "a: CrashLoopBackOff: one")
	other := condition(ConditionDegraded, "True", ReasonPodFailing, "a: CrashLoopBackOff: two")
	fresh, old := condition(ConditionBackupFresh, "True", ReasonBackupRecent, ""), condition(ConditionBackupFresh, "False", ReasonBackupOld, "the last backup is old")
	for name, row := range map[string]struct {
		before, after v1alpha1.Status
		expected      string
	}{
		"first":           {status(""), status("", fine), ""},
		"same":            {status("a", failing), status("a", failing), ""},
		"fails":           {status("a", fine), status("a", failing), "true PodFailing: a: CrashLoopBackOff: one"},
		"fails otherwise": {status("a", failing), status("a", other), "true PodFailing: a: CrashLoopBackOff: two"},
		"recovers":        {status("a", failing), status("a", fine), "false Recovered: no longer PodFailing"},
		"rolled out":      {status("a", fine), status("b", fine), "false RolledOut: revision b: "},
		"backup gets old": {status("a", fine, fresh), status("a", fine, old), "true BackupOld: the last backup is old"},
		"no backup yet":   {status(""), status("", old), ""},
	} {
		if found := textOf(StatusEvents(row.before, row.after)); found != row.expected {
			t.Errorf("%s: %q, expected %q", name, found, row.expected)
		}
	}
	long := condition(ConditionDegraded, "True", ReasonNameTaken, strings.Repeat("ö", eventBytesMax))
	if message := StatusEvents(status(""), status("", long))[0].Message; len(message) > eventBytesMax+len("…") || !strings.HasSuffix(message, "ö…") {
		t.Errorf("%d bytes: %s", len(message), message)
	}
}

func TestWriteEvents(t *testing.T) {
	named := func(kind, name string) Manifest {
		return Manifest{"kind": kind, "metadata": map[string]any{"name": name}}
	}
	revision, service := named("ControllerRevision", "shop-b"), named("Service", "shop")
	var many []Write
	for number := range namesMax + 2 {
		many = append(many, Write{Kind: WriteApply, Object: named("Service", fmt.Sprint(number))})
	}
	progressing := condition(ConditionProgressing, "True", ReasonRollingOut, "")
	for name, row := range map[string]struct {
		before   v1alpha1.Status
		live     []Manifest
		writes   []Write
		expected string
	}{
		"nothing":          {status("b"), nil, nil, ""},
		"release":          {status("a"), nil, []Write{{Kind: WriteApply, Object: revision}, {Kind: WriteApply, Object: service}}, "false ReleaseStarted: revision b"},
		"rollback":         {status("a"), []Manifest{revision}, []Write{{Kind: WriteApply, Object: revision}}, "false RollbackStarted: rollback to revision b"},
		"rest of release":  {status("a"), nil, []Write{{Kind: WriteApply, Object: service}}, ""},
		"still going on":   {status("b", progressing), nil, []Write{{Kind: WriteApply, Object: service}}, ""},
		"drift":            {status("b"), nil, []Write{{Kind: WriteApply, Object: service}}, "false DriftUndone: applied again, because they differed from the spec: Service/shop"},
		"deletion":         {status("b"), nil, []Write{{Kind: WriteDelete, Object: service}}, ""},
		"drift everywhere": {status("b"), nil, many, "false DriftUndone: applied again, because they differed from the spec: Service/0, Service/1, Service/2, Service/3, Service/4, and 2 more"},
	} {
		if found := textOf(WriteEvents(row.before, "b", slices.Clone(row.live), row.writes)); found != row.expected {
			t.Errorf("%s: %q, expected %q", name, found, row.expected)
		}
	}
}
