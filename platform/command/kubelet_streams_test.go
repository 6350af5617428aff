package command_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// serveStreams answers an exec or a forwarded port as a kubelet does. The programs are those of runInPod.
func serveStreams(answer http.ResponseWriter, request *http.Request, parts []string) {
	protocol := "v4.channel.k8s.io"
	if parts[0] == "portForward" {
		protocol = "portforward.k8s.io"
	}
	if _, err := httpstream.Handshake(request, answer, []string{protocol}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 16)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(answer, request, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	if connection == nil {
		return
	}
	defer connection.Close()
	if parts[0] == "portForward" {
		forwardPorts(connection, streams, parts[2])
		return
	}
	serveExec(request, connection, streams, parts[2])
}

func serveExec(request *http.Request, connection httpstream.Connection, streams <-chan httpstream.Stream, pod string) {
	query, open := request.URL.Query(), map[string]httpstream.Stream{}
	wanted := 1
	for _, name := range []string{corev1.ExecStdinParam, corev1.ExecStdoutParam, corev1.ExecStderrParam} {
		if query.Get(name) == "1" || query.Get(name) == "true" {
			wanted++
		}
	}
	for len(open) < wanted {
		select {
		case stream := <-streams:
			open[stream.Headers().Get(corev1.StreamType)] = stream
		case <-connection.CloseChan():
			return
		}
	}
	code, isEnd := runInPod(query["command"], pod, open)
	if !isEnd {
		<-connection.CloseChan()
		return
	}
	status := metav1.Status{Status: metav1.StatusSuccess}
	if code != 0 {
		cause := metav1.StatusCause{Type: "ExitCode", Message: strconv.Itoa(code)}
		status = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{cause}}}
	}
	text, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	_, _ = open[corev1.StreamTypeError].Write(text)
	for _, stream := range open {
		_ = stream.Close()
	}
	// The client closes the connection when it has read the streams.
	<-connection.CloseChan()
}

// runInPod is a program in a pod. One that does not end runs until the connection is closed.
func runInPod(command []string, pod string, open map[string]httpstream.Stream) (exitCode int, isEnd bool) {
	stdout := open[corev1.StreamTypeStdout]
	switch command[0] {
	case "echo":
		fmt.Fprintf(stdout, "%s: %s\n", pod, strings.Join(command[1:], "|"))
	case "cat":
		_, _ = io.Copy(stdout, open[corev1.StreamTypeStdin])
	case "fail":
		fmt.Fprint(open[corev1.StreamTypeStderr], "no such table\n")
		return 3, true
	case "wait":
		fmt.Fprint(stdout, "waiting\n")
		return 0, false
	}
	return 0, true
}

// forwardPorts answers each line with the pod, the port and the line.
func forwardPorts(connection httpstream.Connection, streams <-chan httpstream.Stream, pod string) {
	for {
		select {
		case <-connection.CloseChan():
			return
		case stream := <-streams:
			if stream.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
				_ = stream.Close()
				continue
			}
			go func() {
				defer stream.Close()
				line, err := bufio.NewReader(stream).ReadString('\n')
				if err == nil {
					fmt.Fprintf(stream, "%s:%s %s", pod, stream.Headers().Get(corev1.PortHeader), line)
				}
			}()
		}
	}
}
