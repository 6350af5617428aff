package apiserver

import (
	"os"
	"testing"
)

// ForTest starts a server that ends with the test. Without the programs, which `make platform` names, the test is skipped.
func ForTest(t *testing.T) *Server {
	t.Helper()
	programs := Programs{Etcd: os.Getenv("ROOST_TEST_ETCD"), APIServer: os.Getenv("ROOST_TEST_KUBE_APISERVER")}
	if programs.Etcd == "" || programs.APIServer == "" {
		t.Skip("ROOST_TEST_ETCD or ROOST_TEST_KUBE_APISERVER is not set; `make platform` sets them")
	}
	server, err := Start(programs, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}
