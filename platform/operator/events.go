package operator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/dunlin-project/dunlin/platform/reconcile"
)

const (
	// EventsBurst is the number of events that an App or a Dunlin may have at once. After that, one event is written in eventsPauseSeconds, and others
	// are dropped. A repeated event increases the count of the first one.
	EventsBurst        = 20
	eventsPauseSeconds = 60
	eventSource        = "roost-operator"
)

// NewRecorder returns a recorder that writes events to the API server in the background, so passes do not wait for them. The returned function stops
// the recorder.
func NewRecorder(connection *rest.Config) (record.EventRecorder, func(), error) {
	core, err := v1.NewForConfig(connection)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: EventsBurst, QPS: 1. / eventsPauseSeconds,
	}))
	broadcaster.StartRecordingToSink(&v1.EventSinkImpl{Interface: core.Events("")})
	stop := func() {
		cancel()
		broadcaster.Shutdown()
	}
	return broadcaster.NewRecorder(scheme, corev1.EventSource{Component: eventSource}), stop, nil
}

func (operator *Operator) record(subject *subject, events []reconcile.Event) {
	if operator.Recorder == nil {
		return
	}
	for _, event := range events {
		kind := corev1.EventTypeNormal
		if event.IsWarning {
			kind = corev1.EventTypeWarning
		}
		operator.Recorder.Event(subject.object, kind, event.Reason, event.Message)
	}
}
