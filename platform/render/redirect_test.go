package render_test

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// TestAHostWithACertificateServesNoHTTP looks at which entry points of Traefik an Ingress names.
func TestAHostWithACertificateServesNoHTTP(t *testing.T) {
	for _, row := range []struct {
		name, class, entryPoint string
		tls                     *v1alpha1.TLS
		wanted                  string
	}{
		{"a certificate", "", "websecure", &v1alpha1.TLS{Secret: "shop-tls"}, "websecure"},
		{"the certificate of the ingress controller", "", "websecure", &v1alpha1.TLS{}, "websecure"},
		{"another name", "", "https", &v1alpha1.TLS{Secret: "shop-tls"}, "https"},
		{"another class of Traefik", "traefik-internal", "websecure", &v1alpha1.TLS{Secret: "shop-tls"}, "websecure"},
		{"an issuer", "traefik", "websecure", &v1alpha1.TLS{Issuer: "letsencrypt", Redirect: new(true)}, "websecure"},
		{"a certificate and HTTP", "", "websecure", &v1alpha1.TLS{Secret: "shop-tls", Redirect: new(false)}, ""},
		{"no certificate", "", "websecure", nil, ""},
		{"without the flag", "", "", &v1alpha1.TLS{Secret: "shop-tls"}, ""},
		{"without the flag, and a redirect", "traefik", "", &v1alpha1.TLS{Secret: "shop-tls", Redirect: new(true)}, ""},
	} {
		app := &v1alpha1.App{Spec: v1alpha1.AppSpec{Image: "shop:1", Ports: []v1alpha1.Port{{Port: 8080}}, Health: v1alpha1.Health{Path: "/healthz"}}}
		app.Namespace, app.Name, app.Spec.Host, app.Spec.TLS = "web", "shop", "shop.example.com", row.tls
		objects, err := render.App(app, settings.Settings{}, render.Cluster{IngressClass: row.class, HTTPSEntryPoint: row.entryPoint})
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			ingress, isIngress := object.(*networkingv1.Ingress)
			if !isIngress {
				continue
			}
			found := ingress.Annotations["traefik.ingress.kubernetes.io/router.entrypoints"]
			hasTLS := ingress.Annotations["traefik.ingress.kubernetes.io/router.tls"] == "true"
			if found != row.wanted || hasTLS != (found != "") {
				t.Errorf("%s: %v", row.name, ingress.Annotations)
			}
		}
	}
}
