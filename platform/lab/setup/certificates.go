package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of the cluster.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// writeCertificates makes an authority (ca.pem), a certificate for the API server, and one for its calls to the kubelet. The key of
// the API server signs the tokens of service accounts too.
func writeCertificates(folder string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	root := template("lab", nil)
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	signed, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(folder, "ca.pem"), "CERTIFICATE", signed); err != nil {
		return err
	}
	lab := authority{root, key}
	server := template("kube-apiserver", nil)
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	for _, address := range []string{"127.0.0.1", nodeAddress, apiServiceAddress} {
		server.IPAddresses = append(server.IPAddresses, net.ParseIP(address))
	}
	if err := lab.write(folder, "apiserver", server); err != nil {
		return err
	}
	client := template("kube-apiserver-kubelet-client", []string{"system:masters"})
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return lab.write(folder, "kubelet-client", client)
}

func template(name string, groups []string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(7 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// write makes NAME.pem and NAME-key.pem.
func (authority authority) write(folder, name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, authority.certificate, key.Public(), authority.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(folder, name+"-key.pem"), "EC PRIVATE KEY", private); err != nil {
		return err
	}
	return writePEM(filepath.Join(folder, name+".pem"), "CERTIFICATE", signed)
}

func writePEM(path, kind string, content []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}
