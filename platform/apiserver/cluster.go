package apiserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ClusterPrograms are the programs that turn a server into a cluster. Kwok writes the status of nodes and pods as kubelets would. Its stages are files
// that list the steps of a node or of a pod.
type ClusterPrograms struct {
	Controllers, Scheduler, Kwok string
	Stages                       []string
}

// StartControllers starts kube-controller-manager, which has the garbage collector, and kube-scheduler.
func (server *Server) StartControllers(programs ClusterPrograms) error {
	file, err := server.kubeconfigFile()
	if err != nil {
		return err
	}
	for _, program := range []string{programs.Controllers, programs.Scheduler} {
		// Disable the port, which another process may use. The default limit of 20 calls per second slows down rollouts of many pods.
		started, err := startProcess(server.folder, program, "--kubeconfig="+file, "--leader-elect=false", "--secure-port=0",
			"--kube-api-qps=300", "--kube-api-burst=600")
		if err != nil {
			return err
		}
		server.processes = append(server.processes, started)
	}
	return nil
}

// StartNodes starts kwok for the nodes with a label.
func (server *Server) StartNodes(programs ClusterPrograms, label string) error {
	file, err := server.kubeconfigFile()
	if err != nil {
		return err
	}
	folder := filepath.Join(server.folder, fmt.Sprintf("kwok-%d", len(server.processes)))
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	// A kubelet has a Lease of 40 s. Without one, kwok reports every 10 minutes, and the nodes count as lost after 50 s.
	arguments := []string{"--kubeconfig=" + file, "--manage-nodes-with-label-selector=" + label, "--node-lease-duration-seconds=40"}
	for _, stage := range programs.Stages {
		arguments = append(arguments, "--config="+stage)
	}
	started, err := startProcess(folder, programs.Kwok, arguments...)
	if err != nil {
		return err
	}
	server.processes = append(server.processes, started)
	return nil
}

// Failure describes the processes that have exited, with their last log lines.
func (server *Server) Failure() error {
	var failures []error
	for _, process := range server.processes {
		select {
		case <-process.ended:
			failures = append(failures, process.failure("has ended"))
		default:
		}
	}
	return errors.Join(failures...)
}

// kubeconfigFile writes a kubeconfig for programs that act as Admin.
func (server *Server) kubeconfigFile() (string, error) {
	text, err := Kubeconfig(server.Admin)
	if err != nil {
		return "", err
	}
	file := filepath.Join(server.folder, "admin.kubeconfig")
	return file, os.WriteFile(file, text, 0o600)
}
