// Package registry reads documents that an image registry stores beside an image, such as its signature, over HTTPS.
package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/dunlin-project/dunlin/platform/image"
)

const (
	// documentBytesMax bounds the memory for a response of a registry.
	documentBytesMax = 1 << 20
	// layersMax is the maximum number of signatures of an image.
	layersMax = 32
	// The name of Docker's registry in image names differs from the host name of its server.
	dockerName   = "docker.io"
	dockerServer = "registry-1.docker.io"
)

// ErrMissing is returned if the registry does not have the document.
var ErrMissing = errors.New("the registry does not have it")

// Credentials are the credentials of a registry. Without a user, requests are anonymous.
type Credentials struct{ User, Password string }

// Client reads documents from registries.
type Client struct{ HTTP *http.Client }

// Attachment reads an attachment of an image. The kind is for example "sig".
func (client *Client) Attachment(ctx context.Context, subject image.Pinned, kind string, credentials Credentials) (*image.Layout, error) {
	host, name, _ := strings.Cut(subject.Repository, "/")
	if host == dockerName {
		host = dockerServer
	}
	if !strings.ContainsAny(host, ".:") {
		return nil, fmt.Errorf("%s does not begin with the name of a registry; write one such as registry.example.com/shop", subject.Repository)
	}
	reading := &reading{client.HTTP, "https://" + host + "/v2/" + name, name, credentials, ""}
	manifest, err := reading.get(ctx, "/manifests/"+subject.TagFor(kind), image.MediaTypeManifest)
	if err != nil {
		return nil, err
	}
	return image.NewLayout(manifest, layersMax, func(blob image.Descriptor) ([]byte, error) {
		return reading.get(ctx, "/blobs/"+blob.Digest, "*/*")
	})
}

// reading is a series of calls for one repository.
type reading struct {
	http        *http.Client
	base, name  string
	credentials Credentials
	// authorization is the header that the registry has requested.
	authorization string
}

func (reading *reading) get(ctx context.Context, path, accept string) ([]byte, error) {
	response, err := reading.call(ctx, reading.base+path, accept, reading.authorization)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusUnauthorized && reading.authorization == "" {
		challenge := response.Header.Get("WWW-Authenticate")
		response.Body.Close()
		if reading.authorization, err = reading.authorize(ctx, challenge); err != nil {
			return nil, err
		}
		if response, err = reading.call(ctx, reading.base+path, accept, reading.authorization); err != nil {
			return nil, err
		}
	}
	return documentOf(response)
}

func (reading *reading) call(ctx context.Context, address, accept, authorization string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	return reading.http.Do(request)
}

func documentOf(response *http.Response) ([]byte, error) {
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, ErrMissing
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("the registry %s denies access: status %d; name a Secret with its credentials in spec.pullSecret", response.Request.URL.Host, response.StatusCode)
	default:
		return nil, fmt.Errorf("the registry %s answers with status %d", response.Request.URL.Host, response.StatusCode)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, documentBytesMax+1))
	if err != nil {
		return nil, err
	}
	if len(content) > documentBytesMax {
		return nil, fmt.Errorf("the registry %s returned more than %d bytes, which is too large for a signature", response.Request.URL.Host, documentBytesMax)
	}
	return content, nil
}

var challengePart = regexp.MustCompile(`([a-z]+)="([^"]*)"`)

// authorize handles a registry that requests credentials. It sends the credentials, or a token that a token server issues for them.
func (reading *reading) authorize(ctx context.Context, challenge string) (string, error) {
	basic := ""
	if reading.credentials.User != "" {
		basic = "Basic " + base64.StdEncoding.EncodeToString([]byte(reading.credentials.User+":"+reading.credentials.Password))
	}
	scheme, rest, _ := strings.Cut(challenge, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return basic, nil
	}
	parts := map[string]string{}
	for _, found := range challengePart.FindAllStringSubmatch(rest, -1) {
		parts[found[1]] = found[2]
	}
	realm, err := url.Parse(parts["realm"])
	if err != nil || realm.Scheme != "https" {
		return "", fmt.Errorf("the registry names the token server %q; it must be an https address", parts["realm"])
	}
	realm.RawQuery = url.Values{"service": {parts["service"]}, "scope": {"repository:" + reading.name + ":pull"}}.Encode()
	response, err := reading.call(ctx, realm.String(), "application/json", basic)
	if err != nil {
		return "", err
	}
	content, err := documentOf(response)
	if err != nil {
		return "", err
	}
	var answer struct {
		Token  string `json:"token"`
		Access string `json:"access_token"`
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return "", fmt.Errorf("the registry's token is not JSON")
	}
	if answer.Token == "" {
		answer.Token = answer.Access
	}
	return "Bearer " + answer.Token, nil
}

// CredentialsFor returns the credentials for the registry of a repository, from the content of a Secret of the type kubernetes.io/dockerconfigjson.
func CredentialsFor(dockerConfig []byte, repository string) (Credentials, error) {
	var config struct {
		Auths map[string]struct{ Username, Password, Auth string }
	}
	if err := json.Unmarshal(dockerConfig, &config); err != nil {
		// The error of the library may contain a part of the content.
		return Credentials{}, errors.New("the Secret of spec.pullSecret has no .dockerconfigjson that can be read")
	}
	host, _, _ := strings.Cut(repository, "/")
	for name, entry := range config.Auths {
		name = strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://")
		name, _, _ = strings.Cut(name, "/")
		if name != host && !(host == dockerName && name == "index.docker.io") {
			continue
		}
		if entry.Username == "" {
			text, err := base64.StdEncoding.DecodeString(entry.Auth)
			if err != nil {
				return Credentials{}, fmt.Errorf("the entry of %s in the Secret of spec.pullSecret is not base64", host)
			}
			entry.Username, entry.Password, _ = strings.Cut(string(text), ":")
		}
		return Credentials{entry.Username, entry.Password}, nil
	}
	return Credentials{}, nil
}
