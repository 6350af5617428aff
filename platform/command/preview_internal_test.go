package command

import (
	"testing"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

func TestCertificatesOfPreviews(t *testing.T) {
	for _, row := range []struct{ host, wildcard, issuer, wantedSecret, wantedIssuer string }{
		{"", "wildcard", "letsencrypt", "wildcard", ""},
		{"", "wildcard", "", "wildcard", ""},
		{"", "", "letsencrypt", "", "letsencrypt"},
		{"", "", "", "", ""},
		{"pr.example.com", "wildcard", "letsencrypt", "", "letsencrypt"},
		{"pr.example.com", "wildcard", "", "wildcard", ""},
	} {
		settings := &repository{Preview: previewSettings{Host: "{name}.preview.example.com", TLSSecret: row.wildcard}}
		spec := &v1alpha1.AppSpec{}
		spec.Host, spec.TLS = "shop.example.com", &v1alpha1.TLS{Secret: "shop-tls", Issuer: v1alpha1.IssuerName(row.issuer)}
		problem := (&preview{host: row.host}).setHost(settings, "shop-pr-42", spec)
		if problem != nil || spec.TLS.Secret != row.wantedSecret || string(spec.TLS.Issuer) != row.wantedIssuer {
			t.Errorf("%+v: %v, %+v", row, problem, spec.TLS)
		}
	}
}
