package command

import (
	"testing"
	"time"

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

// TestPreviewsShareAHost has two Apps at paths of one host, and one at another host.
func TestPreviewsShareAHost(t *testing.T) {
	settings := &repository{Preview: previewSettings{Host: "{name}.preview.example.com"}}
	preview := &preview{suffix: "pr-42"}
	var manifests []manifest
	for _, row := range [][3]string{{"api", "shop.example.com", "/api"}, {"shop", "shop.example.com", ""}, {"docs", "docs.example.com", ""}, {"worker", "", ""}} {
		app := &v1alpha1.App{}
		app.Name, app.Spec.Host, app.Spec.Path = preview.nameOf(row[0]), row[1], row[2]
		if problem := preview.setHost(settings, app.Name, &app.Spec); problem != nil {
			t.Fatal(problem)
		}
		manifests = append(manifests, manifest{app: app})
	}
	preview.shareHosts(manifests)
	for index, host := range []string{"shop-pr-42.preview.example.com", "shop-pr-42.preview.example.com", "docs-pr-42.preview.example.com", ""} {
		if app := manifests[index].app; app.Spec.Host != host {
			t.Errorf("%s: %s", app.Name, app.Spec.Host)
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

// TestTheTimeLeft has times of previews, as `roost status` shows them.
func TestTheTimeLeft(t *testing.T) {
	for expires, want := range map[string]string{
		v1alpha1.ExpiryText(time.Now().Add(3*time.Hour - time.Minute)):    "3h left",
		v1alpha1.ExpiryText(time.Now().Add(90*time.Minute - time.Second)): "90m left",
		v1alpha1.ExpiredAlready: "expired",
		"2027-02-30T00:00:00Z":  "its time cannot be read",
	} {
		app := &v1alpha1.App{}
		app.Spec.Preview = &v1alpha1.Preview{Of: "shop", Expires: expires}
		if left := previewOf(app).left(); left != want {
			t.Errorf("%s: %s, expected %s", expires, left, want)
		}
	}
}
