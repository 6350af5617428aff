// Package apiserver starts etcd and kube-apiserver on loopback, for tests. Without StartControllers and StartNodes, no controller,
// scheduler or kubelet runs: objects stay as they were written, there is no garbage collection, and no pod starts.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/dunlin-project/dunlin/platform/ports"
)

// readySecondsMax is how long the programs may take to become ready. On a busy machine, they take many times as long as on an idle one.
const readySecondsMax = 300

// startsMax bounds the attempts: another process may take a port between its choice and its use.
const startsMax = 3

// Tests need an API server for seconds, and its memory costs less than its garbage collector, which runs less often until the heap is large.
const collectorPercent, collectorBytes = "GOGC=400", "GOMEMLIMIT=1GiB"

// Programs contains the paths of the programs.
type Programs struct{ Etcd, APIServer string }

// Server is a running API server with its own database.
type Server struct {
	// Admin has all rights.
	Admin     *rest.Config
	folder    string
	processes []*process
}

// Start starts an API server, and returns when it is ready. All files are in the folder.
func Start(programs Programs, folder string) (*Server, error) {
	var failures []error
	for attempt := range startsMax {
		server, err := start(programs, filepath.Join(folder, fmt.Sprint(attempt)))
		if err == nil {
			return server, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// As returns a connection that impersonates a user or a service account.
func (server *Server) As(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(server.Admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return config
}

// Stop kills all processes. Their data is lost.
func (server *Server) Stop() {
	for index := len(server.processes) - 1; index >= 0; index-- {
		server.processes[index].kill()
	}
}

func start(programs Programs, folder string) (*Server, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	free, err := ports.Free(3)
	if err != nil {
		return nil, err
	}
	certificate, err := writeCertificate(folder)
	if err != nil {
		return nil, err
	}
	server := &Server{Admin: adminConfig(free[2], certificate), folder: folder}
	if err := server.startBoth(programs, folder, free); err != nil {
		server.Stop()
		return nil, err
	}
	return server, nil
}

func (server *Server) startBoth(programs Programs, folder string, ports []int) error {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	etcd, err := startProcess(folder, programs.Etcd,
		"--data-dir="+filepath.Join(folder, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	if err != nil {
		return err
	}
	server.processes = append(server.processes, etcd)
	if err := etcd.waitFor(client+"/health", http.DefaultClient); err != nil {
		return err
	}
	tokens := filepath.Join(folder, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(server.Admin.BearerToken+",admin,admin,system:masters\n"), 0o600); err != nil {
		return err
	}
	key := filepath.Join(folder, "key.pem")
	api, err := startProcess(folder, programs.APIServer,
		"--etcd-servers="+client, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]),
		"--tls-cert-file="+filepath.Join(folder, "certificate.pem"), "--tls-private-key-file="+key,
		"--service-account-issuer=https://127.0.0.1", "--service-account-signing-key-file="+key, "--service-account-key-file="+key,
		"--service-cluster-ip-range=10.0.0.0/16", "--token-auth-file="+tokens, "--authorization-mode=RBAC",
		// Some distributions enable this plugin, and then an operator needs an extra right for owner references.
		"--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
		// No controller creates the service account `default` here.
		"--disable-admission-plugins=ServiceAccount",
		"--cert-dir="+folder)
	if err != nil {
		return err
	}
	server.processes = append(server.processes, api)
	transport, err := rest.TransportFor(server.Admin)
	if err != nil {
		return err
	}
	return api.waitFor(server.Admin.Host+"/readyz", &http.Client{Transport: transport})
}

// process is a running program.
type process struct {
	command *exec.Cmd
	log     string
	// ended is closed when the process has ended.
	ended chan struct{}
}

func startProcess(folder, program string, arguments ...string) (*process, error) {
	log := filepath.Join(folder, filepath.Base(program)+".log")
	output, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	command := exec.Command(program, arguments...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, collectorPercent, collectorBytes}
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := &process{command: command, log: log, ended: make(chan struct{})}
	failed := make(chan error, 1)
	go func() {
		// The kernel kills the process when the thread that started it exits, so the thread waits for the process.
		runtime.LockOSThread()
		err := command.Start()
		failed <- err
		if err == nil {
			_ = command.Wait()
		}
		close(started.ended)
	}()
	return started, <-failed
}

func (process *process) kill() {
	_ = process.command.Process.Kill()
	<-process.ended
}

// waitFor returns when the address responds with 200. If the process exits first, the error has its last log lines.
func (process *process) waitFor(address string, client *http.Client) error {
	deadline, cancel := context.WithTimeout(context.Background(), readySecondsMax*time.Second)
	defer cancel()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for {
		request, err := http.NewRequestWithContext(deadline, http.MethodGet, address, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-process.ended:
			return process.failure("has ended")
		case <-deadline.Done():
			return process.failure("is not ready")
		case <-pause.C:
		}
	}
}

const logBytesMax = 2000

func (process *process) failure(what string) error {
	text, _ := os.ReadFile(process.log)
	return fmt.Errorf("%s %s: %s", process.command.Path, what, text[max(0, len(text)-logBytesMax):])
}
