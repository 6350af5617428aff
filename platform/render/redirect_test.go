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
		name, class string
		tls         *v1alpha1.TLS
		entryPoints string
	}{
		{"a certificate", "", &v1alpha1.TLS{Secret: "shop-tls"}, "websecure"},
		{"the certificate of the ingress controller", "", &v1alpha1.TLS{}, "websecure"},
		{"an issuer", "traefik", &v1alpha1.TLS{Issuer: "letsencrypt", Redirect: new(true)}, "websecure"},
		{"a certificate and HTTP", "", &v1alpha1.TLS{Secret: "shop-tls", Redirect: new(false)}, ""},
		{"no certificate", "", nil, ""},
		{"another ingress controller", "nginx", &v1alpha1.TLS{Secret: "shop-tls"}, ""},
	} {
		app := &v1alpha1.App{Spec: v1alpha1.AppSpec{Image: "shop:1", Ports: []v1alpha1.Port{{Port: 8080}}, Health: v1alpha1.Health{Path: "/healthz"}}}
		app.Namespace, app.Name, app.Spec.Host, app.Spec.TLS = "web", "shop", "shop.example.com", row.tls
		objects, err := render.App(app, settings.Settings{}, render.Cluster{IngressClass: row.class})
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
			if found != row.entryPoints || hasTLS != (found != "") {
				t.Errorf("%s: %v", row.name, ingress.Annotations)
			}
		}
	}
}
