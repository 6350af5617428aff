package apiserver

import (
	"os"
	"path/filepath"
	"testing"
)

// ProgramsOfTest returns the programs that `make platform` names in environment variables.
func ProgramsOfTest() (Programs, bool) {
	programs := Programs{Etcd: os.Getenv("ROOST_TEST_ETCD"), APIServer: os.Getenv("ROOST_TEST_KUBE_APISERVER")}
	return programs, programs.Etcd != "" && programs.APIServer != ""
}

// ClusterProgramsOfTest returns the programs that `make operator` names in environment variables.
func ClusterProgramsOfTest() (ClusterPrograms, bool) {
	folder := os.Getenv("ROOST_TEST_KWOK")
	programs := ClusterPrograms{
		Controllers: os.Getenv("ROOST_TEST_KUBE_CONTROLLER_MANAGER"), Scheduler: os.Getenv("ROOST_TEST_KUBE_SCHEDULER"),
		Kwok: filepath.Join(folder, "kwok"),
	}
	// The pattern is well-formed.
	programs.Stages, _ = filepath.Glob(filepath.Join(folder, "stages", "*.yaml"))
	return programs, programs.Controllers != "" && programs.Scheduler != "" && len(programs.Stages) > 0
}

// ForTest starts a server that stops at the end of the test. If the programs are missing, it skips the test.
func ForTest(t *testing.T) *Server {
	t.Helper()
	programs, isThere := ProgramsOfTest()
	if !isThere {
		t.Skip("ROOST_TEST_ETCD or ROOST_TEST_KUBE_APISERVER is not set; `make platform` sets them")
	}
	server, err := Start(programs, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}
