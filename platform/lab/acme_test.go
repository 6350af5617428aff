package lab

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const (
	nodeAddress    = "10.77.0.1"
	acmePort       = 14000
	acmeManagement = 15000
	nameServer     = "127.0.0.1:8053"
	acmeSolver     = "localhost/certmanager-solver:1"
	acmeIssuer     = `apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: { name: letsencrypt }
spec:
  acme:
    server: https://%s:%d/dir
    skipTLSVerify: true
    email: ops@example.com
    privateKeySecretRef: { name: letsencrypt-account }
    solvers: [{ http01: { ingress: { ingressClassName: traefik } } }]
`
)

// start runs a program until the test ends; what it prints is shown if the test fails.
func (site *site) start(name string, environment []string, arguments ...string) {
	site.t.Helper()
	path := filepath.Join(site.t.TempDir(), name+".log")
	log, err := os.Create(path)
	if err != nil {
		site.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, name, arguments...)
	command.Env, command.Stdout, command.Stderr = append(os.Environ(), environment...), log, log
	if err := command.Start(); err != nil {
		stop()
		site.t.Fatal(err)
	}
	site.t.Cleanup(func() {
		stop()
		_ = command.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(path); err == nil && site.t.Failed() {
			site.t.Logf("%s: %s", name, text[max(0, len(text)-8000):])
		}
	})
}

// startACME runs an ACME server that asks for hosts at the ingress controller, and the controllers of cert-manager.
func (site *site) startACME() {
	site.t.Helper()
	certificate, key := site.selfSigned(nodeAddress)
	configuration, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": fmt.Sprintf("%s:%d", nodeAddress, acmePort), "managementListenAddress": fmt.Sprintf("%s:%d", nodeAddress, acmeManagement),
		"certificate": certificate, "privateKey": key, "httpPort": 80, "tlsPort": 443,
	}})
	if err != nil {
		site.t.Fatal(err)
	}
	site.write("pebble.json", string(configuration))
	site.start("pebble-challtestsrv", nil, "-defaultIPv4", nodeAddress, "-defaultIPv6", "", "-dnsserver", nameServer, "-http01", "", "-https01", "",
		"-tlsalpn01", "", "-doh", "", "-management", "127.0.0.1:8055")
	site.start("pebble", []string{"PEBBLE_VA_NOSLEEP=1"}, "-config", filepath.Join(site.folder, "pebble.json"), "-dnsserver", nameServer)
	site.must(kubectl("apply", "--server-side", "-f", filepath.Join(os.Getenv("ROOST_LAB"), "certmanager-crds")))
	site.must(kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/certificates.cert-manager.io", "crd/challenges.acme.cert-manager.io",
		"crd/clusterissuers.cert-manager.io", "crd/orders.acme.cert-manager.io", "crd/certificaterequests.cert-manager.io"))
	site.start("certmanager-controller", nil, os.Getenv("KUBECONFIG"), nameServer, acmeSolver)
	site.write("issuer.yaml", fmt.Sprintf(acmeIssuer, nodeAddress, acmePort))
	site.must(kubectl("apply", "-f", filepath.Join(site.folder, "issuer.yaml")))
	site.t.Cleanup(func() { site.must(kubectl("delete", "clusterissuer", "letsencrypt")) })
	site.must(kubectl("wait", "--for=condition=Ready", "--timeout=120s", "clusterissuer/letsencrypt"))
}

// selfSigned writes a certificate for an address, and its key.
func (site *site) selfSigned(address string) (certificate, key string) {
	site.t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		site.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: address}, IPAddresses: []net.IP{net.ParseIP(address)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &pair.PublicKey, pair)
	if err != nil {
		site.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(pair)
	if err != nil {
		site.t.Fatal(err)
	}
	site.write("acme.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	site.write("acme-key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	return filepath.Join(site.folder, "acme.pem"), filepath.Join(site.folder, "acme-key.pem")
}

// acmeRoots are the authority of the ACME server.
func (site *site) acmeRoots() *x509.CertPool {
	site.t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // The test's own server.
	response, err := (&http.Client{Transport: transport, Timeout: requestSecondsMax * time.Second}).Get(fmt.Sprintf("https://%s:%d/roots/0", nodeAddress, acmeManagement))
	if err != nil {
		site.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		site.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		site.t.Fatalf("no certificate: %s", text)
	}
	return roots
}

// handshake with the ingress controller for a host. It returns the serial number of the certificate.
func handshake(host string, roots *x509.CertPool) (string, error) {
	dialer := &net.Dialer{Timeout: requestSecondsMax * time.Second}
	connection, err := tls.DialWithDialer(dialer, "tcp", nodeAddress+":443", &tls.Config{ServerName: host, RootCAs: roots})
	if err != nil {
		return "", err
	}
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// An issuer gets the certificates of an app and of a Dunlin from an ACME server, and a new one when one is lost.
func TestCertificatesOfAnACMEServer(t *testing.T) {
	app := newApp(t, "acme", "  tls: { issuer: letsencrypt }\n")
	app.startACME()
	began := time.Now()
	app.release("1.4.2", "info", "one", "")
	app.deploy()
	roots := app.acmeRoots()
	var serial string
	app.wait("the host has a certificate of the ACME server", func() bool {
		var err error
		serial, err = handshake(app.host(), roots)
		return err == nil
	})
	app.figure("from `roost deploy` until the host has a certificate of the ACME server: %.1f s", time.Since(began).Seconds())

	withoutFollowing := &http.Client{Timeout: requestSecondsMax * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+nodeAddress+"/cart?a=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = app.host()
	response, err := withoutFollowing.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if location := response.Header.Get("Location"); response.StatusCode != http.StatusFound || location != "https://"+app.host()+"/cart?a=1" {
		t.Errorf("HTTP is answered with %d to %q", response.StatusCode, location)
	}

	// Its loss stands for its end.
	began = time.Now()
	app.must(kubectl("-n", namespace, "delete", "secret", "acme-tls"))
	app.wait("the host has another certificate", func() bool {
		found, err := handshake(app.host(), roots)
		return err == nil && found != serial
	})
	app.figure("a lost certificate is replaced after %.1f s", time.Since(began).Seconds())
	if quiet := app.pods(app.name); len(quiet) != 1 || quiet[0].Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("certificates restarted pods: %v", quiet)
	}
}
