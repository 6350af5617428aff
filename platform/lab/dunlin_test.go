package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	dunlinNodes           = 3
	publicationsPerSecond = 50
	// sessionsDefault in channelsDefault are 1,500 deliveries per second, which two busy cores carry with all else that runs on them.
	// LAB_SESSIONS and LAB_CHANNELS are other numbers.
	sessionsDefault = 3000
	channelsDefault = 100
	// reconnectsPerSecond is that of the manifest. The clients count by seconds of their own clock, and a busy machine is late with
	// what one second has and early with the next, so that the most in a second may be half as much again.
	reconnectsPerSecond = 100
	reconnectsMost      = reconnectsPerSecond * 3 / 2
	// sessionsBackPercent of the clients are connected when the next node goes. The operator waits for 98 %, and they count a moment later.
	sessionsBackPercent = 97
	apiKey              = "lab-api-key"
	tokenKey            = "lab-token-key-of-32-bytes-or-more"
)

// The nodes are small, because all of them share the cores of one machine.
const dunlinManifest = `apiVersion: apps.roost.dev/v1alpha1
kind: Dunlin
metadata: { name: realtime, namespace: web }
spec:
  image: registry.example.com/dunlin:%s
  nodes: 3
  host: rt.example.com
  keys: { file: keys.env }
  reconnectsPerSecond: 100
  resources: { cpu: 100m, cpuLimit: 2, memory: 512Mi }
  nats: { servers: 3, image: "nats:%s", size: 1Gi, resources: { cpu: 50m, cpuLimit: 2, memory: 256Mi } }
  config:
    channel:
      namespaces:
      - { name: drain, history_size: 10000, history_ttl: 600s, force_recovery: true, allow_subscribe_for_client: true }
    client: { recovery_max_publication_limit: 10000 }
`

// amount is a variable of the environment, or the default.
func (site *site) amount(variable string, without int) int {
	text := os.Getenv(variable)
	if text == "" {
		return without
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 {
		site.t.Fatalf("$%s is %q; set it to a number from 1 on", variable, text)
	}
	return number
}

// natsVersion is what `scripts/need nats` compiles.
func natsVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../scripts/need")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nNATS_SERVER=")
	version, _, _ := strings.Cut(rest, "\n")
	return version
}

func (site *site) releaseDunlin(version string) {
	site.t.Helper()
	site.write("apps/realtime.yaml", fmt.Sprintf(dunlinManifest, version, natsVersion(site.t)))
	site.write("apps/keys.env", fmt.Sprintf("api_key=%s\ntoken_hmac_secret_key=%s\nnats_password=letters\n", apiKey, tokenKey))
	site.roost(0, "secrets", "encrypt", "apps/keys.env")
	site.roost(0, "deploy", "--wait", "10m", "apps/realtime.yaml")
}

// seen is a report of the clients.
type seen struct {
	Connected, Unrecovered, Closed, ClosedMostInASecond int
	Seen, Missing, Late, Doubled, Next                  int
	AwayMostMs, AwayMedianMs                            int64
	WrongSent                                           int
	Gone                                                map[string]int
}

// crowd is the program with the clients.
type crowd struct {
	input io.Closer
	guard sync.Mutex
	last  seen
	ended chan struct{}
}

func (site *site) startClients(sessions, channels int) *crowd {
	site.t.Helper()
	// A client whose first connection fails gives up.
	site.wait("the ingress controller passes clients on", func() bool {
		request, err := http.NewRequestWithContext(site.t.Context(), http.MethodGet, "http://"+ingressAddress+"/connection/websocket", nil)
		if err != nil {
			site.t.Fatal(err)
		}
		request.Host, request.Close = "rt.example.com", true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode != http.StatusNotFound && response.StatusCode < http.StatusInternalServerError
	})
	command := exec.Command("clients", ingressAddress, "ws://rt.example.com/connection/websocket", strconv.Itoa(sessions), strconv.Itoa(channels))
	command.Env = append(os.Environ(), "TOKEN_KEY="+tokenKey)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		site.t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		site.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		site.t.Fatal(err)
	}
	crowd := &crowd{input: input, ended: make(chan struct{})}
	go func() {
		defer close(crowd.ended)
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			var report seen
			if json.Unmarshal(lines.Bytes(), &report) == nil {
				crowd.guard.Lock()
				crowd.last = report
				crowd.guard.Unlock()
			}
		}
		_ = command.Wait()
	}()
	site.t.Cleanup(crowd.end)
	return crowd
}

func (crowd *crowd) report() seen {
	crowd.guard.Lock()
	defer crowd.guard.Unlock()
	return crowd.last
}

func (crowd *crowd) end() {
	_ = crowd.input.Close()
	<-crowd.ended
}

// publisher publishes in all channels in turn until it is ended. The key keeps an attempt that was not answered from counting twice.
type publisher struct {
	stop     context.CancelFunc
	pending  sync.WaitGroup
	channels int
	count    int
	retries  map[string]int
	rejected error
	// began is in the keys, because the servers remember those of an earlier run.
	began time.Time
}

const attemptsMax = 400

func (site *site) startPublisher(channels int) *publisher {
	site.t.Helper()
	var service corev1.Service
	if err := site.admin.Get(site.t.Context(), client.ObjectKey{Namespace: namespace, Name: "realtime-internal"}, &service); err != nil {
		site.t.Fatal(err)
	}
	address := "http://" + service.Spec.ClusterIP + ":9000/api/publish"
	ctx, stop := context.WithCancel(site.t.Context())
	publisher := &publisher{stop: stop, channels: channels, retries: map[string]int{}, began: time.Now()}
	publisher.pending.Go(func() {
		pace := time.NewTicker(time.Second / publicationsPerSecond)
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
			}
			for due := int(time.Since(publisher.began).Seconds() * publicationsPerSecond); publisher.count < due && publisher.rejected == nil; publisher.count++ {
				publisher.publish(address)
			}
		}
	})
	site.t.Cleanup(publisher.end)
	return publisher
}

func (publisher *publisher) publish(address string) {
	channel := publisher.count % publisher.channels
	body, _ := json.Marshal(map[string]any{
		"channel": fmt.Sprintf("drain:%d", channel), "data": map[string]int{"number": publisher.count},
		"idempotency_key": fmt.Sprintf("%d-%d", publisher.began.UnixNano(), publisher.count),
	})
	var err error
	for range attemptsMax {
		if err = post(address, body); err == nil {
			return
		}
		publisher.retries[err.Error()]++
		time.Sleep(10 * time.Millisecond)
	}
	publisher.rejected = err
}

// post uses a connection of its own, so that each attempt may reach another node.
func post(address string, body []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestSecondsMax*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Close = true
	request.Header.Set("X-API-Key", apiKey)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Result struct{ Offset uint64 }
		Error  json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("status %d: %w", response.StatusCode, err)
	}
	if answer.Result.Offset == 0 {
		return fmt.Errorf("status %d: %s", response.StatusCode, answer.Error)
	}
	return nil
}

func (publisher *publisher) end() {
	publisher.stop()
	publisher.pending.Wait()
}

// A rolling update of three nodes with clients that stay connected, and publications meanwhile.
func TestARollingUpdateOfADunlin(t *testing.T) {
	site := newSite(t)
	site.install()
	sessions, channels := site.amount("LAB_SESSIONS", sessionsDefault), site.amount("LAB_CHANNELS", channelsDefault)
	t.Cleanup(func() {
		site.must(kubectl("-n", namespace, "delete", "dunlin", "realtime", "--wait"))
		site.must(kubectl("-n", namespace, "delete", "persistentvolumeclaims", "--all", "--wait"))
	})
	began := time.Now()
	site.releaseDunlin("0.1.0")
	site.figure("three nodes and three NATS servers serve after %.0f s", time.Since(began).Seconds())
	crowd := site.startClients(sessions, channels)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the clients: %+v", crowd.report())
		}
	})
	site.wait("all clients are connected", func() bool { return crowd.report().Connected == sessions })
	publisher := site.startPublisher(channels)
	site.wait("publications arrive", func() bool { return crowd.report().Seen > sessions })

	began = time.Now()
	drains := site.startWatch("realtime", func() int { return crowd.report().Connected })
	site.releaseDunlin("0.2.0")
	took := time.Since(began)
	drains.end()
	site.wait("all clients are connected", func() bool { return crowd.report().Connected == sessions })
	publisher.end()
	if publisher.rejected != nil {
		t.Fatalf("publication %d was not taken: %v", publisher.count, publisher.rejected)
	}
	site.wait("all clients have the last publications", func() bool {
		return crowd.report().Next >= publisher.count
	})
	crowd.end()
	found := crowd.report()
	retries := 0
	for _, count := range publisher.retries {
		retries += count
	}
	site.figure("rolling update of %d nodes in %.0f s with %d clients: %d publications in %d channels, %d deliveries, %d lost, %d not recovered, %d wrong on the wire",
		dunlinNodes, took.Seconds(), sessions, publisher.count, channels, found.Seen, found.Missing, found.Unrecovered, found.WrongSent)
	site.figure("the SDK handed out %d publications late and %d twice, and gave up %v", found.Late, found.Doubled, found.Gone)
	site.figure("%d connections closed, at most %d in a second; away for %.2f s (median), %.2f s at most; %d attempts to publish repeated: %v",
		found.Closed, found.ClosedMostInASecond, float64(found.AwayMedianMs)/1000, float64(found.AwayMostMs)/1000, retries, publisher.retries)
	site.figure("at most %d of the nodes were away at once; %v clients were connected when the drain of a node began", drains.mostAway, drains.connected)
	if drains.mostAway > 1 || len(drains.connected) != dunlinNodes {
		t.Errorf("%+v", drains)
	}
	for _, connected := range drains.connected {
		if connected < sessions*sessionsBackPercent/100 {
			t.Errorf("a node goes while %d of %d clients are connected", connected, sessions)
		}
	}
	if found.Missing+found.WrongSent != 0 || found.Unrecovered != 0 || found.Closed < sessions {
		t.Errorf("%+v", found)
	}
	if found.ClosedMostInASecond > reconnectsMost {
		t.Errorf("%d connections closed in a second; the nodes are to close %d", found.ClosedMostInASecond, reconnectsPerSecond)
	}
	// On a machine that is overloaded, the SDK hands out what an old connection has received after what a new one has recovered:
	// `lab/clients/sdk` shows it without Dunlin.
	isOverload := sessions > sessionsDefault || channels < channelsDefault
	if !isOverload && found.Late+found.Doubled+len(found.Gone) != 0 {
		t.Errorf("%+v", found)
	}
	for _, pod := range site.pods("realtime") {
		if image := pod.Spec.Containers[0].Image; !strings.HasSuffix(image, ":0.2.0") || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: %s, %+v", pod.Name, image, pod.Status.ContainerStatuses)
		}
	}
}

// drains is what was seen of the nodes of a Dunlin while they were replaced.
type drains struct {
	stop     context.CancelFunc
	pending  sync.WaitGroup
	mostAway int
	// connected clients at the beginning of each drain.
	connected []int
}

func (site *site) startWatch(name string, connected func() int) *drains {
	ctx, stop := context.WithCancel(site.t.Context())
	drains := &drains{stop: stop}
	drains.pending.Go(func() {
		pause := time.NewTicker(pollPause)
		defer pause.Stop()
		going := map[types.UID]bool{}
		for {
			select {
			case <-ctx.Done():
				return
			case <-pause.C:
			}
			var pods corev1.PodList
			labels := client.MatchingLabels{"apps.roost.dev/app": name, "apps.roost.dev/part": "main"}
			if err := site.admin.List(ctx, &pods, client.InNamespace(namespace), labels); err != nil {
				continue
			}
			serving := 0
			for index := range pods.Items {
				pod := &pods.Items[index]
				if pod.DeletionTimestamp == nil && isReady(pod) {
					serving++
				}
				if pod.DeletionTimestamp != nil && !going[pod.UID] {
					going[pod.UID] = true
					drains.connected = append(drains.connected, connected())
				}
			}
			drains.mostAway = max(drains.mostAway, dunlinNodes-serving)
		}
	})
	site.t.Cleanup(drains.end)
	return drains
}

func (drains *drains) end() {
	drains.stop()
	drains.pending.Wait()
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// The servers of one Dunlin, and the nodes of another one, whose keys are in a Secret that Roost did not make.
const (
	serversManifest = `apiVersion: apps.roost.dev/v1alpha1
kind: Dunlin
metadata: { name: servers, namespace: web }
spec:
  image: registry.example.com/dunlin:0.1.0
  keys: { file: keys.env }
  resources: { cpu: 100m, memory: 256Mi }
  nats: { servers: 1, image: "nats:%s", size: 1Gi, resources: { cpu: 50m, memory: 256Mi } }
`
	guestManifest = `apiVersion: apps.roost.dev/v1alpha1
kind: Dunlin
metadata: { name: guest, namespace: web }
spec:
  image: registry.example.com/dunlin:0.1.0
  nodes: 3
  drainSeconds: 10
  keys: { secret: guest-keys }
  resources: { cpu: 100m, memory: 256Mi }
  nats: { url: "nats://dunlin:$(NATS_PASSWORD)@servers-nats:4222" }
`
)

// A wrong password of NATS takes one node away. The others serve, and stay when the Secret is mended.
func TestAWrongPasswordStopsAtOneNode(t *testing.T) {
	site := newSite(t)
	site.install()
	t.Cleanup(func() {
		site.must(kubectl("-n", namespace, "delete", "dunlin", "guest", "servers", "--ignore-not-found", "--wait"))
		site.must(kubectl("-n", namespace, "delete", "secret", "guest-keys", "--ignore-not-found"))
		site.must(kubectl("-n", namespace, "delete", "persistentvolumeclaims", "--all", "--wait"))
	})
	site.write("apps/servers.yaml", fmt.Sprintf(serversManifest, natsVersion(t)))
	site.write("apps/guest.yaml", guestManifest)
	site.write("apps/keys.env", fmt.Sprintf("api_key=%s\ntoken_hmac_secret_key=%s\nnats_password=letters\n", apiKey, tokenKey))
	site.roost(0, "secrets", "encrypt", "apps/keys.env")
	site.must(kubectl("-n", namespace, "create", "secret", "generic", "guest-keys", "--from-literal=api_key="+apiKey,
		"--from-literal=token_hmac_secret_key="+tokenKey, "--from-literal=nats_password=letters"))
	site.must(kubectl("-n", namespace, "label", "secret", "guest-keys", "apps.roost.dev/usable=true"))
	site.roost(0, "deploy", "--wait", "10m", "apps/servers.yaml", "apps/guest.yaml")
	before := site.uids("guest")

	password := func(value string) {
		site.must(kubectl("-n", namespace, "patch", "secret", "guest-keys", "--type=merge", "--patch", fmt.Sprintf(`{"stringData":{"nats_password":%q}}`, value)))
	}
	password("wrong")
	took := site.wait("the rollout stops", func() bool {
		message := site.state("guest").message("Degraded")
		return strings.HasPrefix(message, "PodFailing: ") && strings.Contains(message, "guest-2") && strings.Contains(message, "authorization violation")
	})
	site.figure("a wrong nats_password: the condition is there after %.1f s: %s", took.Seconds(), site.state("guest").message("Degraded"))
	after := site.uids("guest")
	if after["guest-0"] != before["guest-0"] || after["guest-1"] != before["guest-1"] || after["guest-2"] == before["guest-2"] || len(after) != dunlinNodes {
		t.Errorf("pods %v before, %v after", before, after)
	}
	if state := site.state("guest"); !state.is("Ready") || !strings.Contains(state.message("Progressing"), "guest-2 is not ready") {
		t.Errorf("%+v", state)
	}
	password("letters")
	took = site.wait("the node is replaced again", func() bool {
		state := site.state("guest")
		return !state.is("Degraded") && !state.is("Progressing") && state.is("Ready") && site.uids("guest")["guest-2"] != after["guest-2"]
	})
	last := site.uids("guest")
	site.figure("the right one: all nodes serve after %.1f s", took.Seconds())
	if last["guest-0"] != before["guest-0"] || last["guest-1"] != before["guest-1"] {
		t.Errorf("pods %v before, %v after", before, last)
	}
}

// uids of the pods of a name.
func (site *site) uids(name string) map[string]types.UID {
	site.t.Helper()
	found := map[string]types.UID{}
	for _, pod := range site.pods(name) {
		found[pod.Name] = pod.UID
	}
	return found
}
