// Package certificates creates the certificate authority of a cluster under test, and signs certificates with it.
package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

const (
	keyType         = "EC PRIVATE KEY"
	certificateType = "CERTIFICATE"
	lifetime        = 7 * 24 * time.Hour
)

// NewAuthority creates an authority with a new key.
func NewAuthority(name string) (Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Authority{}, err
	}
	root := template(name, nil)
	root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
	signed, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return Authority{}, err
	}
	certificate, err := x509.ParseCertificate(signed)
	return Authority{certificate, key}, err
}

// ReadAuthority parses the certificate and the key of an authority in PEM.
func ReadAuthority(certificate, key []byte) (Authority, error) {
	public, _ := pem.Decode(certificate)
	private, _ := pem.Decode(key)
	if public == nil || private == nil {
		return Authority{}, errors.New("the authority's certificate or key is not PEM")
	}
	parsed, err := x509.ParseCertificate(public.Bytes)
	if err != nil {
		return Authority{}, fmt.Errorf("the authority's certificate: %w", err)
	}
	parsedKey, err := x509.ParseECPrivateKey(private.Bytes)
	return Authority{parsed, parsedKey}, err
}

// PEM returns the certificate and the key of the authority.
func (authority Authority) PEM() (certificate, key []byte, err error) {
	private, err := x509.MarshalECPrivateKey(authority.key)
	if err != nil {
		return nil, nil, err
	}
	return encode(certificateType, authority.certificate.Raw), encode(keyType, private), nil
}

// ForServer returns the template of a server certificate for names and addresses. Several programs also use it as a client certificate.
func ForServer(name string, names, addresses []string) *x509.Certificate {
	server := template(name, nil)
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = names
	for _, address := range addresses {
		server.IPAddresses = append(server.IPAddresses, net.ParseIP(address))
	}
	return server
}

// ForClient returns the template of a client certificate for a user with groups.
func ForClient(user string, groups ...string) *x509.Certificate {
	client := template(user, groups)
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return client
}

func template(name string, groups []string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// Sign creates a key, and signs a certificate for it.
func (authority Authority) Sign(template *x509.Certificate) (certificate, key []byte, err error) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, authority.certificate, own.Public(), authority.key)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		return nil, nil, err
	}
	return encode(certificateType, signed), encode(keyType, private), nil
}

// Write writes FOLDER/NAME.pem and FOLDER/NAME-key.pem.
func (authority Authority) Write(folder, name string, template *x509.Certificate) error {
	certificate, key, err := authority.Sign(template)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder, name+"-key.pem"), key, 0o600),
		os.WriteFile(filepath.Join(folder, name+".pem"), certificate, 0o600))
}

func encode(kind string, content []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
}
