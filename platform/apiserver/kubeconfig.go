package apiserver

import (
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns a kubeconfig for a connection.
func Kubeconfig(connection *rest.Config) ([]byte, error) {
	const name = "test"
	return clientcmd.Write(api.Config{
		CurrentContext: name,
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		Clusters: map[string]*api.Cluster{name: {
			Server: connection.Host, CertificateAuthorityData: connection.CAData,
		}},
		AuthInfos: map[string]*api.AuthInfo{name: {
			Token: connection.BearerToken, ClientCertificateData: connection.CertData, ClientKeyData: connection.KeyData,
			Impersonate: connection.Impersonate.UserName, ImpersonateGroups: connection.Impersonate.Groups,
		}},
	})
}
