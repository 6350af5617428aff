package reconcile

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodsOfLostNodesAreGivenUp(t *testing.T) {
	now := metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(seconds int) *metav1.Time {
		return new(metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second)))
	}
	for name, row := range map[string]struct {
		pod             LeavingPod
		isStranded, may bool
	}{
		"not ready for long":               {LeavingPod{IsOfSet: true, NodeState: &NodeReadiness{NotReadyFrom: ago(301)}}, true, true},
		"not ready for not longer":         {LeavingPod{IsOfSet: true, NodeState: &NodeReadiness{NotReadyFrom: ago(300)}}, false, true},
		"out of service":                   {LeavingPod{IsOfSet: true, NodeState: &NodeReadiness{NotReadyFrom: ago(1), IsOutOfService: true}}, true, true},
		"out of service and ready":         {LeavingPod{IsOfSet: true, NodeState: &NodeReadiness{IsOutOfService: true}}, false, false},
		"ready: the kubelet ends it":       {LeavingPod{IsOfSet: true, NodeState: &NodeReadiness{}}, false, false},
		"no node: Kubernetes deletes it":   {LeavingPod{IsOfSet: true}, false, false},
		"a volume":                         {LeavingPod{IsOfSet: true, HasClaims: true, NodeState: &NodeReadiness{NotReadyFrom: ago(301)}}, false, false},
		"a volume, out of service":         {LeavingPod{IsOfSet: true, HasClaims: true, NodeState: &NodeReadiness{NotReadyFrom: ago(1), IsOutOfService: true}}, false, false},
		"a Deployment has started another": {LeavingPod{NodeState: &NodeReadiness{NotReadyFrom: ago(301)}}, false, false},
		"the clock of the node is ahead":   {LeavingPod{IsOfSet: true, NodeState: &NodeReadiness{NotReadyFrom: ago(-3600)}}, false, true},
		"not ready for years, no kubelet":  {LeavingPod{IsOfSet: true, NodeState: &NodeReadiness{NotReadyFrom: ago(1e8)}}, true, true},
	} {
		pods := []LeavingPod{row.pod}
		if got := len(Stranded(pods, now)) == 1; got != row.isStranded {
			t.Errorf("%s: stranded %v", name, got)
		}
		if got := MayBecomeStranded(pods); got != row.may {
			t.Errorf("%s: may become stranded %v", name, got)
		}
	}
	event := GivenUpEvent(LeavingPod{Name: "arena-0", Node: "m1", NodeState: &NodeReadiness{NotReadyFrom: ago(301), IsOutOfService: true}})
	for _, word := range []string{"arena-0", "m1", "2026-01-02T02:59:04Z", "out-of-service"} {
		if !event.IsWarning || !strings.Contains(event.Message, word) {
			t.Errorf("%+v lacks %q", event, word)
		}
	}
}
