package command_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const nodeName = "node-1"

// kubelet serves the logs of pods to the API server as a kubelet does. It runs no pods: tests write the logs, and the states of pods.
type kubelet struct {
	mutex sync.Mutex
	// logs by pod, and by pod with "/previous".
	logs map[string]*podLog
}

// podLog grows until it has ended.
type podLog struct {
	lines   []logLine
	changed chan struct{}
	isEnd   bool
	// isRead is true if the whole log was sent once.
	isRead bool
}

type logLine struct {
	when time.Time
	text string
}

// newKubelet creates a Node, and returns its kubelet.
func (site *site) newKubelet() *kubelet {
	site.t.Helper()
	kubelet := &kubelet{logs: map[string]*podLog{}}
	server := httptest.NewTLSServer(kubelet)
	site.t.Cleanup(server.CloseClientConnections)
	site.t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		site.t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		site.t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	if err := site.admin.Create(site.t.Context(), node); err != nil {
		site.t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	if err := site.admin.Status().Update(site.t.Context(), node); err != nil {
		site.t.Fatal(err)
	}
	return kubelet
}

func (kubelet *kubelet) of(pod string) *podLog {
	if kubelet.logs[pod] == nil {
		kubelet.logs[pod] = &podLog{changed: make(chan struct{})}
	}
	return kubelet.logs[pod]
}

// write adds a line to the log of a pod.
func (kubelet *kubelet) write(pod string, when time.Time, text string) {
	kubelet.mutex.Lock()
	defer kubelet.mutex.Unlock()
	log := kubelet.of(pod)
	log.lines = append(log.lines, logLine{when, text})
	close(log.changed)
	log.changed = make(chan struct{})
}

// end marks the log of a pod as complete.
func (kubelet *kubelet) end(pod string) {
	kubelet.mutex.Lock()
	defer kubelet.mutex.Unlock()
	log := kubelet.of(pod)
	log.isEnd = true
	close(log.changed)
	log.changed = make(chan struct{})
}

func (kubelet *kubelet) setRead(pod string) {
	kubelet.mutex.Lock()
	defer kubelet.mutex.Unlock()
	kubelet.of(pod).isRead = true
}

func (kubelet *kubelet) isRead(pod string) bool {
	kubelet.mutex.Lock()
	defer kubelet.mutex.Unlock()
	return kubelet.of(pod).isRead
}

func (kubelet *kubelet) state(pod string) (lines []logLine, changed chan struct{}, isEnd bool) {
	kubelet.mutex.Lock()
	defer kubelet.mutex.Unlock()
	log := kubelet.of(pod)
	return log.lines, log.changed, log.isEnd
}

// ServeHTTP answers /containerLogs/NAMESPACE/POD/CONTAINER, /exec/NAMESPACE/POD/CONTAINER and /portForward/NAMESPACE/POD.
func (kubelet *kubelet) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	if parts[0] == "exec" || parts[0] == "portForward" {
		serveStreams(answer, request, parts)
		return
	}
	if len(parts) != 4 || parts[0] != "containerLogs" || parts[1] != "web" || parts[3] != "app" {
		http.Error(answer, request.URL.Path, http.StatusNotFound)
		return
	}
	pod, query := parts[2], request.URL.Query()
	if query.Get("previous") == "true" {
		pod += "/previous"
	}
	lines, changed, isEnd := kubelet.state(pod)
	sent := len(lines)
	for _, line := range selected(lines, query) {
		writeLine(answer, line, query)
	}
	defer kubelet.setRead(pod)
	for query.Get("follow") == "true" && !isEnd {
		answer.(http.Flusher).Flush()
		select {
		case <-request.Context().Done():
			return
		case <-changed:
		}
		lines, changed, isEnd = kubelet.state(pod)
		for _, line := range lines[sent:] {
			writeLine(answer, line, query)
		}
		sent = len(lines)
	}
}

func selected(lines []logLine, query url.Values) []logLine {
	begin := time.Time{}
	if seconds, err := strconv.Atoi(query.Get("sinceSeconds")); err == nil {
		begin = time.Now().Add(-time.Duration(seconds) * time.Second)
	}
	if since, err := time.Parse(time.RFC3339, query.Get("sinceTime")); err == nil {
		begin = since
	}
	var found []logLine
	for _, line := range lines {
		if !line.when.Before(begin) {
			found = append(found, line)
		}
	}
	if tail, err := strconv.Atoi(query.Get("tailLines")); err == nil && tail < len(found) {
		found = found[len(found)-tail:]
	}
	return found
}

func writeLine(answer io.Writer, line logLine, query url.Values) {
	text := line.text + "\n"
	if query.Get("timestamps") == "true" {
		text = line.when.UTC().Format(time.RFC3339Nano) + " " + text
	}
	fmt.Fprint(answer, text)
}
