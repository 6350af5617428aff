package render_test

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/render"
)

// watchingTarget is a target to which Prometheus or Alertmanager connects. It has an address, or a namespace and perhaps an app.
type watchingTarget struct {
	name, namespace, app string
	address              netip.Addr
	port                 int32
}

type staticTargets struct {
	Targets []string `json:"targets"`
}

type prometheusFile struct {
	Alerting struct {
		Alertmanagers []struct {
			Static []staticTargets `json:"static_configs"`
		} `json:"alertmanagers"`
	} `json:"alerting"`
	Scrapes []struct {
		Job    string          `json:"job_name"`
		Static []staticTargets `json:"static_configs"`
		DNS    []struct {
			Names []string `json:"names"`
			Port  int32    `json:"port"`
		} `json:"dns_sd_configs"`
		Files []struct {
			Files []string `json:"files"`
		} `json:"file_sd_configs"`
	} `json:"scrape_configs"`
}

type alertmanagerFile struct {
	Receivers []struct {
		Webhooks []struct {
			URL string `json:"url"`
		} `json:"webhook_configs"`
	} `json:"receivers"`
}

func readWatching(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("../watching/" + name)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// targetOf reads `app`, `app.namespace.svc` or an address. The pods behind a Service of another namespace may not belong to an App.
func targetOf(host string, port int32) watchingTarget {
	if address, err := netip.ParseAddr(host); err == nil {
		return watchingTarget{name: host, address: address, port: port}
	}
	parts := strings.Split(host, ".")
	target := watchingTarget{name: host, namespace: "monitoring", app: parts[0], port: port}
	if len(parts) > 1 {
		target.namespace = parts[1]
	}
	return target
}

func targetsAt(t *testing.T, lists []staticTargets) []watchingTarget {
	t.Helper()
	var targets []watchingTarget
	for _, list := range lists {
		for _, each := range list.Targets {
			host, text, err := net.SplitHostPort(each)
			if err != nil {
				t.Fatal(err)
			}
			port, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			targets = append(targets, targetOf(host, int32(port)))
		}
	}
	return targets
}

func prometheusTargets(t *testing.T) []watchingTarget {
	t.Helper()
	var file prometheusFile
	readWatching(t, "prometheus.yaml", &file)
	var targets []watchingTarget
	for _, each := range file.Alerting.Alertmanagers {
		targets = append(targets, targetsAt(t, each.Static)...)
	}
	for _, scrape := range file.Scrapes {
		before := len(targets)
		targets = append(targets, targetsAt(t, scrape.Static)...)
		for _, lookup := range scrape.DNS {
			for _, name := range lookup.Names {
				targets = append(targets, targetOf(name, lookup.Port))
			}
		}
		for _, list := range scrape.Files {
			for _, name := range list.Files {
				var lists []staticTargets
				readWatching(t, strings.TrimPrefix(name, "/etc/prometheus/"), &lists)
				targets = append(targets, targetsAt(t, lists)...)
			}
		}
		if len(targets) == before {
			t.Errorf("job %s has no targets", scrape.Job)
		}
	}
	return targets
}

func alertmanagerTargets(t *testing.T) []watchingTarget {
	t.Helper()
	var file alertmanagerFile
	readWatching(t, "alertmanager.yaml", &file)
	var targets []watchingTarget
	for _, receiver := range file.Receivers {
		for _, webhook := range receiver.Webhooks {
			parsed, err := url.Parse(webhook.URL)
			if err != nil {
				t.Fatal(err)
			}
			targets = append(targets, targetsAt(t, []staticTargets{{Targets: []string{parsed.Host}}})...)
		}
	}
	return targets
}

func watchingPolicy(t *testing.T, app string) *networkingv1.NetworkPolicy {
	t.Helper()
	for _, object := range rendered(t, "../watching/apps/"+app+".yaml") {
		if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
			return policy
		}
	}
	t.Fatalf("%s has no NetworkPolicy", app)
	return nil
}

func allows(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, policyNamespace string, target watchingTarget) bool {
	hasPort := len(ports) == 0 || slices.ContainsFunc(ports, func(port networkingv1.NetworkPolicyPort) bool {
		return port.Port.IntVal == target.port
	})
	return hasPort && slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock != nil {
			return target.address.IsValid() && netip.MustParsePrefix(peer.IPBlock.CIDR).Contains(target.address)
		}
		namespace := policyNamespace
		if peer.NamespaceSelector != nil {
			namespace = peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
		}
		return namespace == target.namespace && (peer.PodSelector == nil || peer.PodSelector.MatchLabels[render.LabelApp] == target.app)
	})
}

func checkEgress(t *testing.T, app string, targets []watchingTarget) {
	t.Helper()
	policy := watchingPolicy(t, app)
	for _, target := range targets {
		if !slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
			return allows(rule.To, rule.Ports, policy.Namespace, target)
		}) {
			t.Errorf("%s may not connect to %s:%d: add it to network.to", app, target.name, target.port)
		}
	}
}

// Connections that an App does not list are denied. So a target that is missing in the list is never scraped, and no alert reports it.
func TestAppsOfWatchingReachTheirTargets(t *testing.T) {
	scraped, notified := prometheusTargets(t), alertmanagerTargets(t)
	if len(scraped) < 6 || len(notified) < 2 {
		t.Fatalf("targets of Prometheus: %v, of Alertmanager: %v", scraped, notified)
	}
	checkEgress(t, "prometheus", scraped)
	checkEgress(t, "alertmanager", notified)
	asked := watchingTarget{namespace: "monitoring", app: "prometheus", port: 9093}
	policy := watchingPolicy(t, "alertmanager")
	if !slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
		return allows(rule.From, rule.Ports, policy.Namespace, asked)
	}) {
		t.Error("alertmanager does not accept connections of prometheus: add it to network.from")
	}
}
