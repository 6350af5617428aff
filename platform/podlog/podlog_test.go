package podlog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/podlog"
)

// waitMax bounds the wait for what must come.
const waitMax = time.Minute

// source has pods with texts. Each time a log is opened, its next text is served.
type source struct {
	mutex   sync.Mutex
	pods    []corev1.Pod
	texts   map[string][]string
	opened  []string
	failure error
	listing error
}

func (source *source) Pods(context.Context) ([]corev1.Pod, error) {
	source.mutex.Lock()
	defer source.mutex.Unlock()
	return slices.Clone(source.pods), source.listing
}

func (source *source) Open(_ context.Context, pod *corev1.Pod, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	source.mutex.Lock()
	defer source.mutex.Unlock()
	if source.failure != nil {
		return nil, source.failure
	}
	source.opened = append(source.opened, described(pod, options))
	texts := source.texts[pod.Name]
	if len(texts) == 0 {
		return io.NopCloser(strings.NewReader("")), nil
	}
	source.texts[pod.Name] = texts[1:]
	return io.NopCloser(strings.NewReader(texts[0])), nil
}

func described(pod *corev1.Pod, options *corev1.PodLogOptions) string {
	text := pod.Name + "/" + options.Container
	if options.TailLines != nil {
		text += fmt.Sprintf(" tail %d", *options.TailLines)
	}
	if options.SinceSeconds != nil {
		text += fmt.Sprintf(" since %ds", *options.SinceSeconds)
	}
	if options.SinceTime != nil {
		text += " since " + options.SinceTime.UTC().Format("05")
	}
	if options.Previous {
		text += " previous"
	}
	return text
}

func (source *source) change(how func()) {
	source.mutex.Lock()
	defer source.mutex.Unlock()
	how()
}

func runningPod(name string) corev1.Pod {
	pod := corev1.Pod{}
	pod.Name, pod.UID = name, types.UID(name)
	pod.Spec.Containers = []corev1.Container{{Name: "app"}, {Name: "injected"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "injected"}, {Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}
	return pod
}

func endedPod(name string) corev1.Pod {
	pod := runningPod(name)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}
	return pod
}

// at is a line with a time.
func at(second int, text string) string {
	return fmt.Sprintf("2026-01-02T03:04:%02d.000000001Z %s\n", second, text)
}

// record is what was read.
type record struct {
	mutex sync.Mutex
	lines []string
	notes []string
}

func (record *record) output() podlog.Output {
	return podlog.Output{
		Line: func(line podlog.Line) error {
			record.mutex.Lock()
			defer record.mutex.Unlock()
			record.lines = append(record.lines, line.Pod+":"+line.Text)
			return nil
		},
		Note: func(pod, text string) {
			record.mutex.Lock()
			defer record.mutex.Unlock()
			record.notes = append(record.notes, pod+": "+text)
		},
	}
}

func (record *record) text() string {
	record.mutex.Lock()
	defer record.mutex.Unlock()
	return strings.Join(record.lines, " ")
}

func (record *record) allNotes() string {
	record.mutex.Lock()
	defer record.mutex.Unlock()
	return strings.Join(record.notes, "\n")
}

func TestLogsAreReadInTheOrderOfTheirTimes(t *testing.T) {
	waiting := corev1.Pod{}
	waiting.Name = "c"
	waiting.Spec.Containers = []corev1.Container{{Name: "app"}}
	waiting.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}},
	}}
	source := &source{pods: []corev1.Pod{runningPod("a"), runningPod("b"), waiting}, texts: map[string][]string{
		"a": {at(1, "one") + at(4, "four") + at(4, "four again")}, "b": {at(2, "two <b>") + at(3, "three") + "no time"},
	}}
	record := &record{}
	query := podlog.Query{Since: 90 * time.Second, TailLines: 7, Previous: true}
	if err := podlog.Read(t.Context(), source, query, record.output()); err != nil {
		t.Fatal(err)
	}
	if text := record.text(); text != "a:one b:two <b> b:three b:no time a:four a:four again" {
		t.Error(text)
	}
	if notes := record.allNotes(); notes != "c: has no log yet: ImagePullBackOff: no such image" {
		t.Error(notes)
	}
	if opened := strings.Join(source.opened, ", "); opened != "a/app tail 7 since 90s previous, b/app tail 7 since 90s previous" {
		t.Error(opened)
	}
}

func TestALongLineIsDivided(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	source := &source{pods: []corev1.Pod{runningPod("a")}, texts: map[string][]string{"a": {at(1, long) + at(2, "short")}}}
	record := &record{}
	if err := podlog.Read(t.Context(), source, podlog.Query{TailLines: -1}, record.output()); err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(strings.Join(record.lines[:len(record.lines)-1], ""), "a:", "")
	if len(record.lines) != 3 || joined != long || record.lines[2] != "a:short" {
		t.Errorf("%d lines, %d bytes", len(record.lines), len(joined))
	}
}

func TestErrorsOfReading(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/log"}, "a", errors.New("no right"))
	source := &source{pods: []corev1.Pod{runningPod("a")}, failure: forbidden}
	output := (&record{}).output()
	for name, read := range map[string]func() error{
		"read":   func() error { return podlog.Read(t.Context(), source, podlog.Query{}, output) },
		"follow": func() error { return podlog.Follow(t.Context(), source, podlog.Query{}, output) },
	} {
		if err := read(); !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "the log of a: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	source.failure = apierrors.NewBadRequest("previous terminated container \"app\" not found")
	record := &record{}
	err := podlog.Read(t.Context(), source, podlog.Query{Previous: true}, record.output())
	if err != nil || !strings.Contains(record.allNotes(), "previous terminated container") {
		t.Errorf("%v, %s", err, record.allNotes())
	}
	source.listing = forbidden
	if err := podlog.Follow(t.Context(), source, podlog.Query{}, output); !apierrors.IsForbidden(err) {
		t.Error(err)
	}
}

// TestFollowing has a container that restarts, whose lines of the last second come again, and a pod that comes later.
func TestFollowing(t *testing.T) {
	t.Parallel()
	source := &source{pods: []corev1.Pod{runningPod("a")}, texts: map[string][]string{"a": {
		at(1, "one") + at(2, "two") + at(2, "two again"),
		at(2, "two") + at(2, "two again") + at(2, "two once more") + at(3, "three"),
	}}}
	record := &record{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- podlog.Follow(ctx, source, podlog.Query{TailLines: 5}, record.output()) }()
	const first = "a:one a:two a:two again a:two once more a:three"
	waitFor(t, record, first)
	source.change(func() {
		source.listing = errors.New("the connection is gone")
		source.texts["b"] = []string{at(9, "later")}
		source.pods = append(source.pods, runningPod("b"))
	})
	waitForNote(t, record, "the pods cannot be listed: the connection is gone")
	source.change(func() { source.listing = nil })
	waitFor(t, record, first+" b:later")
	waitForNote(t, record, "b: new pod; its log follows")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	source.mutex.Lock()
	defer source.mutex.Unlock()
	if source.opened[0] != "a/app tail 5" || source.opened[1] != "a/app since 02" || !slices.Contains(source.opened, "b/app") {
		t.Errorf("%v", source.opened)
	}
}

func TestOnePodIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	running := runningPod("a")
	running.Spec.RestartPolicy = corev1.RestartPolicyNever
	source := &source{pods: []corev1.Pod{running}, texts: map[string][]string{"a": {at(1, "one"), at(1, "one") + at(2, "two")}}}
	record := &record{}
	done := make(chan error, 1)
	go func() { done <- podlog.FollowOne(t.Context(), source, &running, record.output()) }()
	waitFor(t, record, "a:one a:two")
	source.change(func() { source.pods = []corev1.Pod{endedPod("a")} })
	if err := <-done; err != nil {
		t.Error(err)
	}
	if ended := podlog.Ended(&source.pods[0]); ended == nil || ended.ExitCode != 3 || podlog.Ended(&running) != nil {
		t.Errorf("%+v", ended)
	}
}

func waitFor(t *testing.T, record *record, text string) {
	t.Helper()
	wait(t, text, func() bool { return record.text() == text }, record)
}

func waitForNote(t *testing.T, record *record, note string) {
	t.Helper()
	wait(t, note, func() bool { return strings.Contains(record.allNotes(), note) }, record)
}

func wait(t *testing.T, what string, holds func() bool, record *record) {
	t.Helper()
	for deadline := time.Now().Add(waitMax); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s\n%s\n%s", what, record.text(), record.allNotes())
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}
