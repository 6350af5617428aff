// Package podlog reads the logs of several pods as one stream of lines. It asks for pods and logs through Source, so that it can
// be tested without a cluster.
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

// lineBytesMax divides lines that are longer. It bounds the memory that a pod's log takes.
const lineBytesMax = 64 << 10

// Line of a log.
type Line struct {
	Pod string `json:"pod"`
	// Time at which the container runtime has read the line.
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// Source has pods and their logs.
type Source interface {
	// Pods whose logs are read. When logs are followed, it is asked again and again.
	Pods(ctx context.Context) ([]corev1.Pod, error)
	// Open the log of the container. It has timestamps.
	Open(ctx context.Context, pod *corev1.Pod, options *corev1.PodLogOptions) (io.ReadCloser, error)
}

// Query says what to read of each log.
type Query struct {
	// Since is the age of the oldest line. 0: any.
	Since time.Duration
	// TailLines is the count of lines before the end at which reading begins. Negative: all.
	TailLines int64
	// Previous asks for the container before the last restart.
	Previous bool
}

// Output takes what is read. Its functions are called one at a time.
type Output struct {
	Line func(Line) error
	// Note takes what is not a line of a log, such as a pod that has not started.
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

// containerOf is the first one, which is the one that Roost renders. Others come from what changes pods on their way.
func containerOf(pod *corev1.Pod) string {
	if len(pod.Spec.Containers) == 0 {
		return ""
	}
	return pod.Spec.Containers[0].Name
}

// stateOf is the status of that container.
func stateOf(pod *corev1.Pod) *corev1.ContainerStatus {
	for index := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[index]; status.Name == containerOf(pod) {
			return status
		}
	}
	return nil
}

// HasLog is whether the container has run, or runs.
func HasLog(pod *corev1.Pod) bool {
	status := stateOf(pod)
	return status != nil && (status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil)
}

// Ended is how the container has ended for good, or nil.
func Ended(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	status := stateOf(pod)
	if status == nil || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return nil
	}
	return status.State.Terminated
}

// Waiting is why the container does not run, with the reason of Kubernetes first. Empty: it runs, or has run.
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

// Read the logs as they are now, in the order of their times, and return.
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

// merge takes the oldest of the next lines, so it has one line of each log in memory.
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

// lines of a log with timestamps.
type lines struct {
	pod    string
	reader *bufio.Reader
	// last is the time of the line before. A part of a divided line has it too.
	last     time.Time
	isInside bool
}

func newLines(pod string, stream io.Reader) *lines {
	return &lines{pod: pod, reader: bufio.NewReaderSize(stream, lineBytesMax)}
}

// next returns io.EOF after the last line.
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
