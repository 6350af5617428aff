package render_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	natsServers     = 3
	natsPatience    = 60 * time.Second
	natsPause       = 50 * time.Millisecond
	natsRequestTime = 5 * time.Second
)

// natsCluster is three servers with the rendered configuration, each with its own address.
type natsCluster struct {
	t         *testing.T
	program   string
	config    string
	folder    string
	processes [natsServers]*exec.Cmd
}

func (cluster *natsCluster) address(index int) string {
	return fmt.Sprintf("127.%d.%d.1", 10+os.Getpid()%200, index+1)
}

func (cluster *natsCluster) store(index int) string {
	return filepath.Join(cluster.folder, "data-"+strconv.Itoa(index))
}

func (cluster *natsCluster) start(index int) {
	cluster.t.Helper()
	changes := []string{"0.0.0.0", cluster.address(index), `"/data"`, strconv.Quote(cluster.store(index))}
	for peer := range natsServers {
		changes = append(changes, fmt.Sprintf("shop-nats-%d.shop-nats", peer), cluster.address(peer))
	}
	file := filepath.Join(cluster.folder, fmt.Sprintf("nats-%d.conf", index))
	if err := os.WriteFile(file, []byte(strings.NewReplacer(changes...).Replace(cluster.config)), 0o600); err != nil {
		cluster.t.Fatal(err)
	}
	command := exec.Command(cluster.program, "-c", file)
	command.Env = cleanEnvironment(fmt.Sprintf("POD_NAME=shop-nats-%d", index), `NATS_PASSWORD_QUOTED="secret"`)
	if err := command.Start(); err != nil {
		cluster.t.Fatal(err)
	}
	cluster.processes[index] = command
	cluster.t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
}

// lose kills a server and deletes its volume.
func (cluster *natsCluster) lose(index int) {
	cluster.t.Helper()
	_ = cluster.processes[index].Process.Kill()
	_ = cluster.processes[index].Wait()
	if err := os.RemoveAll(cluster.store(index)); err != nil {
		cluster.t.Fatal(err)
	}
}

func (cluster *natsCluster) until(what string, holds func() bool) {
	cluster.t.Helper()
	for deadline := time.Now().Add(natsPatience); !holds(); time.Sleep(natsPause) { // between two tries
		if time.Now().After(deadline) {
			cluster.t.Fatalf("timed out after %s: %s", natsPatience, what)
		}
	}
}

// isReady sends the request of the pod's readiness probe.
func (cluster *natsCluster) isReady(index int) bool {
	answer, err := http.Get(fmt.Sprintf("http://%s:8222/healthz", cluster.address(index)))
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// messages returns the number of messages that a server has stored.
func (cluster *natsCluster) messages(index int) int {
	cluster.t.Helper()
	answer, err := http.Get(fmt.Sprintf("http://%s:8222/jsz", cluster.address(index)))
	if err != nil {
		cluster.t.Fatal(err)
	}
	defer answer.Body.Close()
	var found struct {
		Messages int `json:"messages"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&found); err != nil {
		cluster.t.Fatal(err)
	}
	return found.Messages
}

// natsClient speaks the NATS protocol, one request at a time.
type natsClient struct {
	net.Conn
	reader *bufio.Reader
}

func (cluster *natsCluster) connect(index int) (*natsClient, error) {
	connection, err := net.Dial("tcp", cluster.address(index)+":4222")
	if err != nil {
		return nil, err
	}
	cluster.t.Cleanup(func() { _ = connection.Close() })
	client := &natsClient{connection, bufio.NewReader(connection)}
	_, err = fmt.Fprint(connection, "CONNECT {\"user\":\"dunlin\",\"pass\":\"secret\",\"verbose\":false}\r\nSUB answer.* 1\r\n")
	return client, err
}

// request returns the response of JetStream, or an error after a timeout.
func (client *natsClient) request(subject, body string) (string, error) {
	if err := client.SetDeadline(time.Now().Add(natsRequestTime)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(client, "PUB %s answer.1 %d\r\n%s\r\n", subject, len(body), body); err != nil {
		return "", err
	}
	for {
		line, err := client.reader.ReadString('\n')
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(line, "PING") {
			if _, err := fmt.Fprint(client, "PONG\r\n"); err != nil {
				return "", err
			}
		}
		if strings.HasPrefix(line, "MSG ") {
			return client.reader.ReadString('\n')
		}
	}
}

// publish stores `count` messages. It resends each message until it is acknowledged, with an identifier by which the stream drops duplicates.
func (cluster *natsCluster) publish(first, count int) {
	cluster.t.Helper()
	client, err := cluster.connect(0)
	for number := first; number < first+count; number++ {
		cluster.until("a message is acknowledged", func() bool {
			if err != nil {
				client, err = cluster.connect(0)
			}
			var answer string
			if err == nil {
				answer, err = client.request("log."+strconv.Itoa(number), "message "+strconv.Itoa(number))
			}
			return err == nil && strings.Contains(answer, `"seq"`)
		})
	}
}

// TestAnEmptyNATSServerCatchesUp tests what `roost replace-nats` relies on: the other servers serve, and the new server is ready only when it
// has caught up.
func TestAnEmptyNATSServerCatchesUp(t *testing.T) {
	const before, meanwhile, storedLate, lost = 200, 100, 5, 1
	cluster := &natsCluster{t: t, program: binary(t, "ROOST_TEST_NATS"), folder: t.TempDir()}
	for file, text := range configFiles(t, "nats.conf") {
		if strings.HasSuffix(file, "dunlin-cluster.yaml") {
			cluster.config = text
		}
	}
	if !strings.Contains(cluster.config, "shop-nats-2.shop-nats") {
		t.Fatalf("the configuration of three servers:\n%s", cluster.config)
	}
	for index := range natsServers {
		cluster.start(index)
	}
	for index := range natsServers {
		cluster.until("all servers are ready", func() bool { return cluster.isReady(index) })
	}
	client, err := cluster.connect(0)
	if err != nil {
		t.Fatal(err)
	}
	stream := `{"name":"log","subjects":["log.*"],"num_replicas":3,"storage":"file","retention":"limits","max_msgs_per_subject":1}`
	if answer, err := client.request("$JS.API.STREAM.CREATE.log", stream); err != nil || strings.Contains(answer, `"error"`) {
		t.Fatalf("%v, %s", err, answer)
	}
	cluster.publish(0, before)

	cluster.lose(lost)
	cluster.publish(before, meanwhile)
	cluster.start(lost)
	cluster.until("the empty server is ready", func() bool { return cluster.isReady(lost) })
	// For NATS, a follower is current while it stores the last few messages that it has received.
	if found := cluster.messages(lost); found < before+meanwhile-storedLate {
		t.Errorf("the server is ready with %d messages of %d", found, before+meanwhile)
	}
	cluster.until("the server has all messages", func() bool { return cluster.messages(lost) == before+meanwhile })
}
