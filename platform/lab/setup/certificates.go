package main

import (
	"os"
	"path/filepath"

	"github.com/dunlin-project/dunlin/platform/lab/certificates"
)

// writeCertificates creates an authority (ca.pem), a certificate for the API server, and one for its calls to the kubelet. The key of the API server
// also signs the tokens of service accounts.
func writeCertificates(folder string) error {
	lab, err := certificates.NewAuthority("lab")
	if err != nil {
		return err
	}
	root, _, err := lab.PEM()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "ca.pem"), root, 0o600); err != nil {
		return err
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	server := certificates.ForServer("kube-apiserver", names, []string{"127.0.0.1", nodeAddress, apiServiceAddress})
	if err := lab.Write(folder, "apiserver", server); err != nil {
		return err
	}
	return lab.Write(folder, "kubelet-client", certificates.ForClient("kube-apiserver-kubelet-client", "system:masters"))
}
