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

// Pause is the interval at which Follow lists the pods.
const Pause = time.Second

// isMissing reports whether an error means that there is no log, because the pod was deleted or the container has not run.
func isMissing(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) }

// Follow follows the logs of the pods, and of pods that start later, until the context ends. It continues after a restart of a container. The lines
// of each log are in order; lines of different logs are in the order in which they arrive.
func Follow(ctx context.Context, source Source, query Query, output Output) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	followed := &following{source: source, query: query, events: make(chan event), streams: map[types.UID]chan struct{}{}}
	pause := time.NewTicker(Pause)
	defer pause.Stop()
	if err := followed.look(ctx, output); err != nil {
		return ended(ctx, err)
	}
	// A pod that starts later has only new lines.
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

// ended returns no error if the context has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// FollowOne follows the log of a pod that runs once, until its container terminates.
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

// event is a line, a note, or an error that ends Follow.
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
	// isLater is true once the pods that existed at the start are followed.
	isLater bool
	// failure is the last error of a list of the pods. The same error is not reported twice.
	failure string
	// streams has a channel for each pod, which is closed when the log of the pod ends.
	streams map[types.UID]chan struct{}
}

// lookAgain calls look, and ignores transient errors.
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

// look starts a stream for each pod that has a log but no stream yet.
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

// stream reads the log of a pod to its end, and continues from there after the container restarts.
func (following *following) stream(ctx context.Context, pod *corev1.Pod, query Query) {
	position := &position{}
	for ctx.Err() == nil {
		err := following.readOnce(ctx, pod, query, position)
		// The listed state of the pod may be older than the end of the stream, so read the pod again.
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

// find returns the current state of the pod, or nil if it does not exist any more.
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

// position is the position up to which a log was read. The API takes the start time in whole seconds, so it returns some lines again.
type position struct {
	last time.Time
	// lines is the number of lines with that time, and repeated is how many of them were returned again.
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
