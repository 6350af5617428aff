package command

import (
	"testing"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// TestMigrationsOfPreviews checks that no migration runs in the database of the App unless somebody says so.
func TestMigrationsOfPreviews(t *testing.T) {
	for _, row := range []struct {
		migrations, envFile string
		isRefused, isRun    bool
	}{
		{"", "", true, true},
		{"", "shop.env=preview.env", true, true},
		{migrationsSkip, "", false, false},
		{migrationsRun, "", true, true},
		// The file is of another App in the files.
		{migrationsRun, "web.env=preview.env", true, true},
		{migrationsRun, "shop.env=preview.env", false, true},
		{migrationsRunShared, "", false, true},
	} {
		preview := &preview{migrations: row.migrations, envFiles: []string{row.envFile}}
		spec := &v1alpha1.AppSpec{EnvFiles: v1alpha1.EnvFiles{"shop.env"}, Migrate: &v1alpha1.Migration{}}
		problem := preview.setMigrations(spec, preview.setEnvFiles(spec))
		if (problem != nil) != row.isRefused || (spec.Migrate != nil) != row.isRun {
			t.Errorf("%+v: %v, %+v", row, problem, spec.Migrate)
		}
	}
}

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
