// Package podlog reads the logs of several pods as one stream of lines. It reads pods and logs through the interface Source, so tests need no
// cluster.
package podlog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lineBytesMax is the length at which a line is split. It bounds the memory for the log of a pod.
const lineBytesMax = 64 << 10

// Line is a line of a log.
type Line struct {
	Pod string `json:"pod"`
	// Time is when the container runtime read the line.
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// Source returns pods and their logs.
type Source interface {
	// Pods returns the pods to read the logs of. Follow calls it repeatedly.
	Pods(ctx context.Context) ([]corev1.Pod, error)
	// Open opens the log of the container, with timestamps.
	Open(ctx context.Context, pod *corev1.Pod, options *corev1.PodLogOptions) (io.ReadCloser, error)
}

// Query selects the part of each log to read.
type Query struct {
	// Since is the maximum age of a line. 0: any age.
	Since time.Duration
	// TailLines is the number of lines to read from the end of the log. Negative: all lines.
	TailLines int64
	// Previous selects the container before the last restart.
	Previous bool
}

// Output receives lines and notes. Its functions are not called concurrently.
type Output struct {
	Line func(Line) error
	// Note receives a message that is not a line of a log, for example about a pod that has not started.
	Note func(pod, text string)
}

func (query Query) options(pod *corev1.Pod) *corev1.PodLogOptions {
	options := &corev1.PodLogOptions{Container: containerOf(pod), Timestamps: true, Previous: query.Previous}
	if query.Since > 0 {
		options.SinceSeconds = new(max(1, int64(query.Since/time.Second)))
	}
	if query.TailLines >= 0 {
		options.TailLines = new(query.TailLines)
	}
	return options
}

// containerOf returns the first container of a pod, which Roost renders. Other containers come from admission webhooks that change pods.
func containerOf(pod *corev1.Pod) string {
	if len(pod.Spec.Containers) == 0 {
		return ""
	}
	return pod.Spec.Containers[0].Name
}

// stateOf returns the status of that container.
func stateOf(pod *corev1.Pod) *corev1.ContainerStatus {
	for index := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[index]; status.Name == containerOf(pod) {
			return status
		}
	}
	return nil
}

// HasLog reports whether the container runs or has run.
func HasLog(pod *corev1.Pod) bool {
	status := stateOf(pod)
	return status != nil && (status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil)
}

// Ended returns how the container terminated if it will not restart, or nil.
func Ended(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	status := stateOf(pod)
	if status == nil || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return nil
	}
	return status.State.Terminated
}

// Waiting returns why the container does not run, beginning with the reason from Kubernetes. Empty if it runs or has run.
func Waiting(pod *corev1.Pod) string {
	if status := stateOf(pod); status != nil {
		if status.State.Waiting == nil {
			return ""
		}
		return joined(status.State.Waiting.Reason, status.State.Waiting.Message)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return joined(condition.Reason, condition.Message)
		}
	}
	return joined(string(pod.Status.Phase), pod.Status.Reason)
}

func joined(reason, message string) string {
	return strings.TrimSuffix(strings.TrimSpace(reason+": "+message), ":")
}

// Read reads the current logs, ordered by time, and returns.
func Read(ctx context.Context, source Source, query Query, output Output) error {
	pods, err := source.Pods(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var heads []*head
	for index := range pods {
		pod := &pods[index]
		if !HasLog(pod) {
			output.Note(pod.Name, "has no log yet: "+Waiting(pod))
			continue
		}
		stream, err := source.Open(ctx, pod, query.options(pod))
		if isMissing(err) {
			output.Note(pod.Name, err.Error())
			continue
		}
		if err != nil {
			return fmt.Errorf("the log of %s: %w", pod.Name, err)
		}
		defer stream.Close()
		first := &head{lines: newLines(pod.Name, stream)}
		if err := first.advance(); err != nil {
			return err
		}
		heads = append(heads, first)
	}
	return merge(heads, output)
}

// head is the next line of a log.
type head struct {
	lines *lines
	line  Line
	isEnd bool
}

func (head *head) advance() (err error) {
	head.line, err = head.lines.next()
	if errors.Is(err, io.EOF) {
		head.isEnd = true
		return nil
	}
	return err
}

// merge repeatedly takes the oldest of the next lines, so it holds one line of each log in memory.
func merge(heads []*head, output Output) error {
	for {
		var oldest *head
		for _, head := range heads {
			if !head.isEnd && (oldest == nil || head.line.Time.Before(oldest.line.Time)) {
				oldest = head
			}
		}
		if oldest == nil {
			return nil
		}
		if err := output.Line(oldest.line); err != nil {
			return err
		}
		if err := oldest.advance(); err != nil {
			return err
		}
	}
}

// lines reads the lines of a log with timestamps.
type lines struct {
	pod    string
	reader *bufio.Reader
	// last is the time of the previous line. All parts of a split line have the same time.
	last     time.Time
	isInside bool
}

func newLines(pod string, stream io.Reader) *lines {
	return &lines{pod: pod, reader: bufio.NewReaderSize(stream, lineBytesMax)}
}

// next returns the next line, or io.EOF after the last line.
func (lines *lines) next() (Line, error) {
	text, isPrefix, err := lines.reader.ReadLine()
	if err != nil {
		return Line{}, err
	}
	line := Line{Pod: lines.pod, Time: lines.last, Text: string(text)}
	if !lines.isInside {
		stamp, rest, _ := strings.Cut(line.Text, " ")
		if when, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
			line.Time, line.Text = when, rest
		}
	}
	lines.last, lines.isInside = line.Time, isPrefix
	return line, nil
}
