package backup

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecretsAreNotPrinted(t *testing.T) {
	site := newSite(t)
	site.write(filepath.Join(site.repository.Secrets, "AWS_SECRET_ACCESS_KEY"), "c4n4ry-key\n")
	site.repository.URL = "rest:http://user:c4n4ry-url@127.0.0.1:1/shop"
	if err := site.repository.readSecrets(); err != nil {
		t.Fatal(err)
	}
	text := site.repository.secrets.redact("a c4n4ry-url, c4n4ry-key and " + password + " b")
	if text != "a ***, *** and *** b" {
		t.Error(text)
	}
	for url, message := range map[string]string{
		"rest:http://user:c4n4%ry-url@127.0.0.1:1/shop": "",
		"rest:http://user:c4n4%2Fry-u@127.0.0.1:1/shop": "http://user:c4n4%2Fry-u@127.0.0.1 c4n4/ry-u",
	} {
		site.repository.URL = url
		switch err := site.repository.readSecrets(); {
		case message == "" && (err == nil || strings.Contains(err.Error(), "ry-url")):
			t.Errorf("a URL that cannot be read: %v", err)
		case message != "" && (err != nil || strings.Contains(site.repository.secrets.redact(message), "ry-u")):
			t.Errorf("%v, %s", err, site.repository.secrets.redact(message))
		}
	}
	site.repository.URL = "rest:http://user:c4n4ry-url@127.0.0.1:1/shop"
	if err := site.repository.readSecrets(); err != nil {
		t.Fatal(err)
	}
	if environment := strings.Join(site.repository.secrets.environment, "\n"); !strings.Contains(environment, "AWS_SECRET_ACCESS_KEY=c4n4ry-key\n") || strings.Contains(environment, password) {
		t.Error("restic does not get the credentials, or gets the password as a variable")
	}
	if _, err := exec.LookPath("restic"); err == nil {
		site.fails(site.save(Keep{}))("does not answer")
	}
}

func TestEndpoint(t *testing.T) {
	for address, want := range map[string]string{
		"/srv/backups": "", "rest:https://user:pass@second.example.com/shop": "second.example.com:443", "rest:http://10.0.0.9:8000/": "10.0.0.9:8000",
		"sftp:backup@10.0.0.9:/srv": "10.0.0.9:22", "sftp://backup@10.0.0.9:2222//srv": "10.0.0.9:2222", "sftp://backup@second//srv": "second:22",
		"s3:s3.amazonaws.com/bucket": "s3.amazonaws.com:443", "s3:http://minio:9000/bucket": "minio:9000", "s3:https://minio/bucket": "minio:443",
	} {
		if found := Endpoint(address); found != want {
			t.Errorf("%s: %q, want %q", address, found, want)
		}
	}
}
