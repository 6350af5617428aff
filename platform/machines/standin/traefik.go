package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// chartConfig is a HelmChartConfig, with which k3s sets values of the chart of Traefik.
type chartConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		ValuesContent string `json:"valuesContent"`
	} `json:"spec"`
}

// chartValues are the values of the chart that the stand-in supports. It refuses others.
type chartValues struct {
	Deployment struct {
		Kind                          string          `json:"kind"`
		TerminationGracePeriodSeconds int             `json:"terminationGracePeriodSeconds"`
		Lifecycle                     json.RawMessage `json:"lifecycle"`
	} `json:"deployment"`
	UpdateStrategy json.RawMessage `json:"updateStrategy"`
	Service        struct {
		Spec struct {
			ExternalTrafficPolicy string `json:"externalTrafficPolicy"`
		} `json:"spec"`
	} `json:"service"`
	Ports map[string]struct {
		Transport struct {
			RespondingTimeouts map[string]string `json:"respondingTimeouts"`
			LifeCycle          map[string]string `json:"lifeCycle"`
		} `json:"transport"`
	} `json:"ports"`
	AdditionalArguments []string        `json:"additionalArguments"`
	Resources           json.RawMessage `json:"resources"`
	Metrics             struct {
		Prometheus struct {
			Service struct {
				Enabled bool `json:"enabled"`
			} `json:"service"`
		} `json:"prometheus"`
	} `json:"metrics"`
}

const traefikManifest = `apiVersion: apps/v1
kind: %[1]s
metadata: { name: traefik, namespace: kube-system }
spec:
  selector: { matchLabels: { app: traefik } }
  %[2]s: %[3]s
  template:
    metadata: { labels: { app: traefik } }
    spec:
      serviceAccountName: traefik
      terminationGracePeriodSeconds: %[4]d
      containers:
      - name: traefik
        image: localhost/traefik:1
        args: %[5]s
        resources: %[6]s
        lifecycle: %[7]s
        readinessProbe: { httpGet: { path: /ping, port: 8080 }, periodSeconds: 1 }
---
apiVersion: v1
kind: Service
metadata: { name: traefik, namespace: kube-system }
spec:
  type: NodePort
  externalTrafficPolicy: %[8]s
  selector: { app: traefik }
  ports: [{ name: web, port: 80, targetPort: 8000, nodePort: 80 }, { name: websecure, port: 443, targetPort: 8443, nodePort: 443 }]
`

// traefikMetrics is the Service that the chart creates with metrics.prometheus.service.enabled. Traefik itself always has the entry point.
const traefikMetrics = `---
apiVersion: v1
kind: Service
metadata: { name: traefik-metrics, namespace: kube-system }
spec:
  selector: { app: traefik }
  ports: [{ name: metrics, port: 9100, targetPort: 9100 }]
`

// traefik returns the manifest of Traefik with the values of a HelmChartConfig. Without a HelmChartConfig, it contains a Deployment, as with
// k3s.
func traefik(settings string) (string, error) {
	var chart chartConfig
	var values chartValues
	if settings != "" {
		if err := yaml.UnmarshalStrict([]byte(settings), &chart); err != nil {
			return "", err
		}
		if chart.APIVersion != "helm.cattle.io/v1" || chart.Metadata.Name != "traefik" || chart.Metadata.Namespace != "kube-system" {
			return "", fmt.Errorf("%s %s/%s is not the chart of Traefik", chart.APIVersion, chart.Metadata.Namespace, chart.Metadata.Name)
		}
		if err := yaml.UnmarshalStrict([]byte(chart.Spec.ValuesContent), &values); err != nil {
			return "", err
		}
	}
	arguments := []string{
		"--global.checknewversion=false", "--global.sendanonymoususage=false", "--entrypoints.web.address=:8000",
		"--entrypoints.websecure.address=:8443", "--entrypoints.websecure.http.tls=true", "--entrypoints.ping.address=:8080",
		"--ping.entrypoint=ping", "--providers.kubernetesingress=true",
		"--entrypoints.metrics.address=:9100", "--metrics.prometheus=true", "--metrics.prometheus.entrypoint=metrics",
	}
	arguments = append(arguments, values.AdditionalArguments...)
	for name, port := range values.Ports {
		for key, value := range port.Transport.RespondingTimeouts {
			arguments = append(arguments, fmt.Sprintf("--entrypoints.%s.transport.respondingtimeouts.%s=%s", name, strings.ToLower(key), value))
		}
		for key, value := range port.Transport.LifeCycle {
			arguments = append(arguments, fmt.Sprintf("--entrypoints.%s.transport.lifecycle.%s=%s", name, strings.ToLower(key), value))
		}
	}
	slices.Sort(arguments)
	list, err := json.Marshal(arguments)
	if err != nil {
		return "", err
	}
	kind := cmp.Or(values.Deployment.Kind, "Deployment")
	strategy := map[string]string{"Deployment": "strategy", "DaemonSet": "updateStrategy"}[kind]
	if strategy == "" {
		return "", fmt.Errorf("deployment.kind %q is neither Deployment nor DaemonSet", kind)
	}
	orEmpty := func(text json.RawMessage) string { return cmp.Or(string(text), "{}") }
	services := ""
	if values.Metrics.Prometheus.Service.Enabled {
		services = traefikMetrics
	}
	return fmt.Sprintf(traefikManifest, kind, strategy, orEmpty(values.UpdateStrategy),
		cmp.Or(values.Deployment.TerminationGracePeriodSeconds, 60), list, orEmpty(values.Resources), orEmpty(values.Deployment.Lifecycle),
		cmp.Or(values.Service.Spec.ExternalTrafficPolicy, "Cluster")) + services, nil
}
