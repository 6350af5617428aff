package lab

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// realtimeManifest is a small Dunlin whose drains are short. The lines are added to its spec.
const realtimeManifest = `apiVersion: apps.roost.dev/v1alpha1
kind: Dunlin
metadata: { name: realtime, namespace: web }
spec:
  image: registry.example.com/dunlin:0.1.0
  host: rt.example.com
  keys: { file: keys.env }
  drainSeconds: 10
  reconnectsPerSecond: 100
  resources: { cpu: 100m, cpuLimit: 2, memory: 256Mi }
  config:
    channel:
      namespaces:
      - { name: drain, history_size: 10000, history_ttl: 600s, force_recovery: true, allow_subscribe_for_client: true%s }
    client: { recovery_max_publication_limit: 10000 }
%s`

// natsLine is that of a manifest with NATS servers of its own.
func natsLine(t *testing.T, servers int) string {
	t.Helper()
	return fmt.Sprintf("  nats: { servers: %d, image: \"nats:%s\", size: 1Gi, resources: { cpu: 50m, cpuLimit: 2, memory: 256Mi } }\n", servers, natsVersion(t))
}

// newDunlin has an operator that runs, and deletes the Dunlin at the end.
func newDunlin(t *testing.T) *site {
	t.Helper()
	site := newSite(t)
	site.install()
	t.Cleanup(func() {
		site.must(kubectl("-n", namespace, "delete", "dunlin", "realtime", "--ignore-not-found", "--wait"))
		site.must(kubectl("-n", namespace, "delete", "persistentvolumeclaims", "--all", "--wait"))
	})
	return site
}

// deployDunlin waits until all nodes serve. The keys are lines of the encrypted file.
func (site *site) deployDunlin(manifest, keys string) {
	site.t.Helper()
	site.write("apps/realtime.yaml", manifest)
	site.write("apps/keys.env", fmt.Sprintf("api_key=%s\ntoken_hmac_secret_key=%s\n%s", apiKey, tokenKey, keys))
	site.roost(0, "secrets", "encrypt", "apps/keys.env")
	site.roost(0, "deploy", "--wait", "10m", "apps/realtime.yaml")
}

// endWithAll ends the publisher, waits until the clients have what it has published, and checks that nothing is lost.
func (site *site) endWithAll(publisher *publisher, crowd *crowd, sessions int) seen {
	site.t.Helper()
	site.wait("all clients are connected", func() bool { return crowd.report().Connected == sessions })
	publisher.end()
	if publisher.rejected != nil {
		site.t.Fatalf("publication %d was not taken: %v", publisher.count, publisher.rejected)
	}
	site.wait("all clients have the last publications", func() bool { return crowd.report().Next >= publisher.count })
	found := crowd.report()
	if found.Missing+found.WrongSent+found.Unrecovered+found.Late+found.Doubled+len(found.Gone) != 0 {
		site.t.Errorf("%+v", found)
	}
	return found
}

// natsAnswer is what a NATS server says to a ping of a client with that password.
func (site *site) natsAnswer(password string) string {
	site.t.Helper()
	var pod corev1.Pod
	if err := site.admin.Get(site.t.Context(), client.ObjectKey{Namespace: namespace, Name: "realtime-nats-0"}, &pod); err != nil {
		site.t.Fatal(err)
	}
	connection, err := net.DialTimeout("tcp", net.JoinHostPort(pod.Status.PodIP, "4222"), requestSecondsMax*time.Second)
	if err != nil {
		site.t.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(requestSecondsMax * time.Second))
	fmt.Fprintf(connection, "CONNECT {\"user\":\"dunlin\",\"pass\":%q,\"verbose\":false}\r\nPING\r\n", password)
	lines := bufio.NewScanner(connection)
	for lines.Scan() {
		if line := lines.Text(); !strings.HasPrefix(line, "INFO") {
			return line
		}
	}
	site.t.Fatalf("the NATS server has closed the connection: %v", lines.Err())
	return ""
}

// The password of the NATS servers is changed in two releases, which restart servers and nodes, while clients are connected.
func TestThePasswordOfNATSIsChanged(t *testing.T) {
	const sessions, channels = 300, 10
	site := newDunlin(t)
	manifest := fmt.Sprintf(realtimeManifest, "", "  nodes: 3\n"+natsLine(t, 3))
	site.deployDunlin(manifest, "nats_password=letters\n")
	crowd := site.startClients(sessions, channels)
	site.wait("all clients are connected", func() bool { return crowd.report().Connected == sessions })
	publisher := site.startPublisher(channels)
	site.wait("publications arrive", func() bool { return crowd.report().Seen > sessions })
	before := site.uids("realtime")

	began := time.Now()
	site.deployDunlin(manifest, "nats_password=digits\nnats_previous_password=letters\n")
	first := time.Since(began)
	middle := site.uids("realtime")
	began = time.Now()
	site.deployDunlin(manifest, "nats_password=digits\n")
	second := time.Since(began)
	found := site.endWithAll(publisher, crowd, sessions)
	retries := 0
	for _, count := range publisher.retries {
		retries += count
	}
	site.figure("another nats_password in two releases of %.0f s and %.0f s with %d clients: %d publications, %d deliveries, %d lost, %d not recovered, %d wrong on the wire",
		first.Seconds(), second.Seconds(), sessions, publisher.count, found.Seen, found.Missing, found.Unrecovered, found.WrongSent)
	site.figure("%d connections closed; away for %.2f s at most; %d attempts to publish repeated: %v",
		found.Closed, float64(found.AwayMostMs)/1000, retries, publisher.retries)
	for name, uid := range before {
		if middle[name] == uid {
			t.Errorf("%s still has the old password", name)
		}
	}
	if site.natsAnswer("digits") != "PONG" || !strings.Contains(site.natsAnswer("letters"), "Authorization Violation") {
		t.Errorf("the servers answer %q to the new password, and %q to the old one", site.natsAnswer("digits"), site.natsAnswer("letters"))
	}
	for _, pod := range site.pods("realtime") {
		if pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: %+v", pod.Name, pod.Status.ContainerStatuses)
		}
	}
}

// Sessions add nodes, and nodes go when there are fewer sessions, which lose nothing.
func TestSessionsSetTheNumberOfNodes(t *testing.T) {
	// Late ones connect when there are three nodes, so that each of these has sessions.
	const some, more, late, channels = 150, 100, 30, 10
	site := newDunlin(t)
	site.deployDunlin(fmt.Sprintf(realtimeManifest, "", "  autoscaling: { min: 1, max: 3, sessionsPerNode: 100, stabilizationSeconds: 10 }\n"+natsLine(t, 1)),
		"nats_password=letters\n")
	nodes := func(number int) func() bool {
		return func() bool {
			ready := 0
			for _, pod := range site.pods("realtime") {
				if pod.DeletionTimestamp == nil && isReady(&pod) {
					ready++
				}
			}
			state := site.state("realtime")
			return ready == number && len(site.pods("realtime")) == number && state.Dunlin != nil && int(state.Dunlin.NodesDesired) == number
		}
	}
	site.wait("one node serves", nodes(1))
	crowd := site.startClients(some, channels)
	site.wait("the clients are connected", func() bool { return crowd.report().Connected == some })
	took := site.wait("there are two nodes", nodes(2))
	site.figure("%d sessions: two nodes serve after %.0f s", some, took.Seconds())
	others := site.startClients(more, channels)
	site.wait("more clients are connected", func() bool { return others.report().Connected == more })
	took = site.wait("there are three nodes", nodes(3))
	site.figure("%d sessions: three nodes serve after %.0f s", some+more, took.Seconds())
	lateOnes := site.startClients(late, channels)
	site.wait("the late clients are connected", func() bool { return lateOnes.report().Connected == late })
	publisher := site.startPublisher(channels)
	site.wait("publications arrive", func() bool { return crowd.report().Seen > some && lateOnes.report().Seen > late })

	others.end()
	took = site.wait("there are two nodes again", nodes(2))
	site.figure("%d sessions: two nodes are left after %.0f s", some+late, took.Seconds())
	found, moved := site.endWithAll(publisher, crowd, some), site.endWithAll(publisher, lateOnes, late)
	site.figure("%d publications meanwhile, %d deliveries, %d lost; %d connections closed and recovered",
		publisher.count, found.Seen+moved.Seen, found.Missing+moved.Missing, found.Closed+moved.Closed)
	if moved.Closed == 0 {
		t.Error("the node that was removed had no session")
	}
	crowd.end()
	lateOnes.end()
	took = site.wait("there is one node again", nodes(1))
	site.figure("no session: one node is left after %.0f s", took.Seconds())
	events := site.must(kubectl("-n", namespace, "get", "events", "--field-selector=reason=NodesScaled", "-o", "jsonpath={.items[*].message}"))
	if events == "" {
		t.Error("there is no event NodesScaled")
	}
}
