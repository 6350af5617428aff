package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// roleSettings is the template of the role for one entry point, with a number for each variable.
func roleSettings(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../roles/k3s/templates/traefik.yaml.j2")
	if err != nil {
		t.Fatal(err)
	}
	filled := strings.ReplaceAll(string(text), "{{ name }}", "web")
	filled = regexp.MustCompile(`\{\{[^}]*\}\}`).ReplaceAllString(filled, "7")
	return regexp.MustCompile(`(?m)^\{%.*\n`).ReplaceAllString(filled, "")
}

// metricsService is nil if the manifest has none.
func metricsService(t *testing.T, manifest string) *corev1.Service {
	t.Helper()
	for document := range strings.SplitSeq(manifest, "---\n") {
		if !strings.Contains(document, "kind: Service\n") {
			continue
		}
		service := &corev1.Service{}
		if err := yaml.Unmarshal([]byte(document), service); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if service.Name == "traefik-metrics" {
			return service
		}
	}
	return nil
}

func TestTheRoleHasPrometheusReadTraefik(t *testing.T) {
	var config struct {
		Scrapes []struct {
			Job string `json:"job_name"`
			DNS []struct {
				Names []string `json:"names"`
				Port  int32    `json:"port"`
			} `json:"dns_sd_configs"`
		} `json:"scrape_configs"`
	}
	text, err := os.ReadFile("../../watching/prometheus.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := traefik(roleSettings(t))
	if err != nil {
		t.Fatal(err)
	}
	service := metricsService(t, manifest)
	if service == nil {
		t.Fatalf("no Service for metrics:\n%s", manifest)
	}
	for _, scrape := range config.Scrapes {
		if scrape.Job != "traefik" {
			continue
		}
		if got, want := scrape.DNS[0].Names[0], service.Name+"."+service.Namespace+".svc"; got != want {
			t.Errorf("Prometheus looks for %s, the Service is %s", got, want)
		}
		if got, want := scrape.DNS[0].Port, service.Spec.Ports[0].Port; got != want {
			t.Errorf("Prometheus reads port %d, the Service has %d", got, want)
		}
		return
	}
	t.Error("prometheus.yaml has no job traefik")
}

func TestWithoutTheSettingThereIsNoServiceForMetrics(t *testing.T) {
	manifest, err := traefik("")
	if err != nil || metricsService(t, manifest) != nil {
		t.Errorf("%v:\n%s", err, manifest)
	}
}

// TestTheRoleSendsHTTPToHTTPS compares what the role has Traefik do at port 80 with the lab and the page. The redirect also answers for hosts without
// tls while Traefik has no router for them, so it must not be one that browsers keep.
func TestTheRoleSendsHTTPToHTTPS(t *testing.T) {
	manifest, err := traefik(roleSettings(t))
	if err != nil {
		t.Fatal(err)
	}
	lab, err := os.ReadFile("../../lab/machine/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/operator.md")
	if err != nil {
		t.Fatal(err)
	}
	for setting, value := range map[string]string{"to": ":443", "scheme": "https", "permanent": "false", "priority": "1"} {
		argument := "--entrypoints.web.http.redirections.entrypoint." + setting + "=" + value
		if !strings.Contains(manifest, `"`+argument+`"`) {
			t.Errorf("the role does not set %s:\n%s", argument, manifest)
		}
		if !strings.Contains(string(lab), "- "+argument+"\n") {
			t.Errorf("the lab does not set %s", argument)
		}
		if !strings.Contains(string(page), "\n"+argument+"\n") {
			t.Errorf("docs/operator.md does not have %s", argument)
		}
	}
}
