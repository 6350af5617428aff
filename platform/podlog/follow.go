package podlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pause is the time between two looks at the pods.
const Pause = time.Second

// isMissing is whether there is no log, because the pod has gone or the container has not run.
func isMissing(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) }

// Follow the logs, and those of pods that come later, until the context ends. A container that restarts is followed on. The
// logs of Follow are in order each; their lines are mixed as they arrive.
func Follow(ctx context.Context, source Source, query Query, output Output) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	followed := &following{source: source, query: query, events: make(chan event), streams: map[types.UID]chan struct{}{}}
	pause := time.NewTicker(Pause)
	defer pause.Stop()
	if err := followed.look(ctx, output); err != nil {
		return ended(ctx, err)
	}
	// All that a pod logs that comes later is new.
	followed.query, followed.isLater = Query{TailLines: -1}, true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
			if err := followed.lookAgain(ctx, output); err != nil {
				return ended(ctx, err)
			}
		case event := <-followed.events:
			if err := event.perform(output); err != nil {
				return ended(ctx, err)
			}
		}
	}
}

// ended is no error where the context has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// FollowOne follows the log of a pod that runs once, until its container has ended.
func FollowOne(ctx context.Context, source Source, pod *corev1.Pod, output Output) error {
	followed := &following{source: source, query: Query{TailLines: -1}, events: make(chan event)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		followed.stream(ctx, pod, followed.query)
	}()
	for {
		select {
		case event := <-followed.events:
			if err := event.perform(output); err != nil {
				return err
			}
		case <-done:
			return ctx.Err()
		}
	}
}

// event is a line, a note, or the end of everything.
type event struct {
	line      Line
	pod, note string
	err       error
}

func (event event) perform(output Output) error {
	switch {
	case event.err != nil:
		return event.err
	case event.note != "":
		output.Note(event.pod, event.note)
		return nil
	}
	return output.Line(event.line)
}

type following struct {
	source Source
	query  Query
	events chan event
	// isLater is whether the pods of the beginning are followed already.
	isLater bool
	// failure is the last one of looking, which is not noted twice.
	failure string
	// streams are closed when the log of a pod has ended.
	streams map[types.UID]chan struct{}
}

// lookAgain goes on after an error that may pass.
func (following *following) lookAgain(ctx context.Context, output Output) error {
	err := following.look(ctx, output)
	if err == nil || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || ctx.Err() != nil {
		following.failure = ""
		return err
	}
	if text := err.Error(); text != following.failure {
		following.failure = text
		output.Note("", "the pods cannot be listed: "+text)
	}
	return nil
}

// look starts a stream for each pod that has a log, and has none yet.
func (following *following) look(ctx context.Context, output Output) error {
	pods, err := following.source.Pods(ctx)
	if err != nil {
		return err
	}
	isThere := map[types.UID]bool{}
	for index := range pods {
		pod := &pods[index]
		isThere[pod.UID] = true
		if _, isKnown := following.streams[pod.UID]; isKnown || !HasLog(pod) {
			continue
		}
		if following.isLater {
			output.Note(pod.Name, "new pod; its log follows")
		}
		done, query := make(chan struct{}), following.query
		following.streams[pod.UID] = done
		go func() {
			defer close(done)
			following.stream(ctx, pod, query)
		}()
	}
	for uid, done := range following.streams {
		if isThere[uid] {
			continue
		}
		select {
		case <-done:
			delete(following.streams, uid)
		default:
		}
	}
	return nil
}

// stream reads the log of a pod to its end, and again from there when the container has restarted.
func (following *following) stream(ctx context.Context, pod *corev1.Pod, query Query) {
	position := &position{}
	for ctx.Err() == nil {
		err := following.readOnce(ctx, pod, query, position)
		// Between two looks at the pod, its state may be older than the end of the stream.
		current := following.find(ctx, pod)
		if ctx.Err() != nil || current == nil || Ended(current) != nil && (err == nil || isMissing(err)) {
			return
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			following.send(ctx, event{err: fmt.Errorf("the log of %s: %w", pod.Name, err)})
			return
		}
		if err != nil && !isMissing(err) {
			following.send(ctx, event{pod: pod.Name, note: "the log stream was interrupted: " + err.Error()})
		}
		select {
		case <-ctx.Done():
		case <-time.After(Pause):
		}
	}
}

// find is the pod as it is now, or nil if it has gone.
func (following *following) find(ctx context.Context, pod *corev1.Pod) *corev1.Pod {
	pods, err := following.source.Pods(ctx)
	if err != nil {
		return pod
	}
	for index := range pods {
		if pods[index].UID == pod.UID {
			return &pods[index]
		}
	}
	return nil
}

func (following *following) send(ctx context.Context, event event) {
	select {
	case following.events <- event:
	case <-ctx.Done():
	}
}

// readOnce reads one stream to its end.
func (following *following) readOnce(ctx context.Context, pod *corev1.Pod, query Query, position *position) error {
	options := query.options(pod)
	options.Follow = true
	if position.lines > 0 {
		options.SinceSeconds, options.TailLines = nil, nil
		options.SinceTime = &metav1.Time{Time: position.last}
	}
	stream, err := following.source.Open(ctx, pod, options)
	if err != nil {
		return err
	}
	defer stream.Close()
	read := newLines(pod.Name, stream)
	position.begin()
	for {
		line, err := read.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if position.isNew(line) {
			following.send(ctx, event{line: line})
		}
	}
}

// position is how far a log was read. The API counts the beginning in whole seconds, so lines come again.
type position struct {
	last time.Time
	// lines with that time, and how many of them have come again.
	lines, repeated int
}

func (position *position) begin() { position.repeated = 0 }

func (position *position) isNew(line Line) bool {
	switch {
	case line.Time.Before(position.last):
		return false
	case line.Time.After(position.last):
		position.last, position.lines, position.repeated = line.Time, 1, 1
		return true
	}
	position.repeated++
	if position.repeated <= position.lines {
		return false
	}
	position.lines = position.repeated
	return true
}
