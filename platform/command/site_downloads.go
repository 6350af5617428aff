package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
)

const (
	downloadSecondsMax = 60
	checksumsBytesMax  = 64 << 10
	manifestBytesMax   = 8 << 20
)

// pins are what a site takes from releases of others: the checksums of k3s, and cert-manager itself.
type pins struct {
	amd64, arm64 string
	certManager  []byte
}

var checksumPattern = regexp.MustCompile(`^([0-9a-f]{64}) +(\S+)$`)

// download reads the checksums and cert-manager once. From then on they are files of the site, which Git keeps.
func (spec *siteSpec) download() (pins, error) {
	var found pins
	release := releaseOfK3s(spec.downloads, spec.k3sVersion)
	for _, one := range []struct {
		list, program string
		sum           *string
	}{{"sha256sum-amd64.txt", "k3s", &found.amd64}, {"sha256sum-arm64.txt", "k3s-arm64", &found.arm64}} {
		address := release + "/" + one.list
		text, err := fetched(address, checksumsBytesMax)
		if err != nil {
			return found, fmt.Errorf("the checksum of k3s: %w; correct --k3s-version, or name a mirror with --downloads", err)
		}
		if *one.sum = checksumOf(text, one.program); *one.sum == "" {
			return found, fmt.Errorf("the checksum of k3s: %s has no line of %s; correct --downloads", address, one.program)
		}
	}
	address := strings.TrimSuffix(spec.downloads, "/") + "/cert-manager/cert-manager/releases/download/" + certManagerVersion + "/cert-manager.yaml"
	text, err := fetched(address, manifestBytesMax)
	if err != nil {
		return found, fmt.Errorf("cert-manager: %w; name a mirror with --downloads", err)
	}
	if !bytes.Contains(text, []byte("kind: CustomResourceDefinition")) {
		return found, fmt.Errorf("cert-manager: %s has no manifests; correct --downloads", address)
	}
	found.certManager = text
	return found, nil
}

// checksumOf returns the checksum of a file in a list that sha256sum has written, or an empty string.
func checksumOf(list []byte, name string) string {
	for line := range strings.Lines(string(list)) {
		if parts := checksumPattern.FindStringSubmatch(strings.TrimSpace(line)); parts != nil && parts[2] == name {
			return parts[1]
		}
	}
	return ""
}

// fetched returns the content at an address. More than the bound is an error.
func fetched(address string, bytesMax int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), downloadSecondsMax*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{CheckRedirect: keepsHTTPS}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, bytesMax+1))
	if err == nil && int64(len(text)) > bytesMax {
		err = fmt.Errorf("%s has more than %d bytes", address, bytesMax)
	}
	return text, err
}

// keepsHTTPS refuses to be led from HTTPS to a connection on which others could change the answer.
func keepsHTTPS(next *http.Request, before []*http.Request) error {
	const redirectsMax = 10
	switch {
	case len(before) >= redirectsMax:
		return fmt.Errorf("there are more than %d redirects", redirectsMax)
	case before[0].URL.Scheme == "https" && next.URL.Scheme != "https":
		return fmt.Errorf("it leads to %s, which is no address of HTTPS", next.URL)
	}
	return nil
}
