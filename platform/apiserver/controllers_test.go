package apiserver

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watched is a server whose watches the test writes. After the last one, it has none.
type watched struct {
	client.WithWatch
	watches [][]watch.Event
}

var errNoWatch = errors.New("there are no more watches")

func (watched *watched) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	if len(watched.watches) == 0 {
		return nil, errNoWatch
	}
	events := watched.watches[0]
	watched.watches = watched.watches[1:]
	sent := watch.NewFakeWithChanSize(len(events), false)
	for _, event := range events {
		sent.Action(event.Type, event.Object)
	}
	sent.Stop()
	return sent, nil
}

// TestAWatchThatFailsEndsEach has watches that end, that fail, and that end at once: none is asked for again and again, and none is left without a word.
func TestAWatchThatFailsEndsEach(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	added := watch.Event{Type: watch.Added, Object: pod}
	failed := watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old"}}
	for name, row := range map[string]struct {
		watches  [][]watch.Event
		calls    int
		sentence string
	}{
		"a watch that ends is followed by another one": {[][]watch.Event{{added}, {added, added}}, 3, errNoWatch.Error()},
		"a watch that fails":                           {[][]watch.Event{{added, failed, added}, {added}}, 1, "the watch has failed: too old"},
		"a watch that ends at once":                    {[][]watch.Event{{added}, {}, {added}}, 1, "the server has ended a watch without a change"},
	} {
		calls := 0
		err := Each(t.Context(), &watched{watches: row.watches}, &corev1.PodList{}, func(client.Object) error { calls++; return nil })
		if err == nil || !strings.Contains(err.Error(), row.sentence) || calls != row.calls {
			t.Errorf("%s: %d calls, %v", name, calls, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	conflict := apierrors.NewConflict(corev1.Resource("pods"), "shop", errors.New("changed"))
	err := Each(ctx, &watched{watches: [][]watch.Event{{added, added}}}, &corev1.PodList{}, func(client.Object) error { cancel(); return conflict })
	if err != nil {
		t.Errorf("a conflict, and then the end of the context: %v", err)
	}
}

// TestAStatusIsComparedAsAWhole has statuses with lists, and with the numbers that the server leaves out.
func TestAStatusIsComparedAsAWhole(t *testing.T) {
	conditions := func(state string) []any { return []any{map[string]any{"type": "Complete", "status": state}} }
	for name, row := range map[string]struct {
		current, status map[string]any
		isSame          bool
	}{
		"the same lists":        {map[string]any{"conditions": conditions("True")}, map[string]any{"conditions": conditions("True")}, true},
		"other lists":           {map[string]any{"conditions": conditions("False")}, map[string]any{"conditions": conditions("True")}, false},
		"a number of 0":         {map[string]any{"replicas": int64(0)}, map[string]any{"replicas": int64(0), "readyReplicas": int64(0)}, true},
		"no status":             {nil, map[string]any{"replicas": int64(0)}, true},
		"another field of both": {map[string]any{"replicas": int64(1), "active": int64(1)}, map[string]any{"replicas": int64(1), "failed": int64(0)}, false},
		"a field more":          {map[string]any{"replicas": int64(1), "active": int64(1)}, map[string]any{"replicas": int64(1)}, false},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		if row.current != nil {
			object.Object["status"] = row.current
		}
		if isStatus(object, row.status) != row.isSame {
			t.Errorf("%s: %v", name, row)
		}
	}
}
