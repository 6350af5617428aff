package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	logFolder = "/var/log/k3s-parts"
	pollPause = 200 * time.Millisecond
	// readySecondsMax bounds each wait for a part. It is not a measured figure.
	readySecondsMax = 240
	restartPause    = time.Second
)

// parts starts the programs of the cluster, and restarts them when they end. They end with this process: the kernel kills a child when the
// thread that started it ends, so one thread starts all of them.
type parts struct {
	starts chan startOrder
}

type startOrder struct {
	command *exec.Cmd
	result  chan error
}

func newParts() *parts {
	parts := &parts{starts: make(chan startOrder)}
	go func() {
		runtime.LockOSThread()
		for order := range parts.starts {
			order.result <- order.command.Start()
		}
	}()
	return parts
}

func (parts *parts) startProcess(name, program string, arguments []string) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(logFolder, name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(program, arguments...)
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), "PATH="+partsFolder+":/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH="+partsFolder+"/lib")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	parts.starts <- startOrder{command, result}
	return command, <-result
}

// start runs a program until this process ends.
func (parts *parts) start(name string, arguments ...string) error {
	if err := os.MkdirAll(logFolder, 0o700); err != nil {
		return err
	}
	program := filepath.Join(partsFolder, name)
	if name == "kubelet" {
		program = filepath.Join(partsFolder, "kubelet-"+version)
	}
	command, err := parts.startProcess(name, program, arguments)
	if err != nil {
		return err
	}
	go func() {
		for {
			err := command.Wait()
			fmt.Fprintf(os.Stderr, "level=warning msg=\"%s has ended: %v\"\n", name, err)
			time.Sleep(restartPause)
			if command, err = parts.startProcess(name, program, arguments); err != nil {
				fmt.Fprintf(os.Stderr, "level=error msg=%q\n", err)
				return
			}
		}
	}()
	return nil
}

// startOnce starts a program that keeps running after this process ends, unless it runs already.
func (parts *parts) startOnce(name string, arguments ...string) error {
	file := "/run/k3s-" + name + ".pid"
	program := filepath.Join(partsFolder, name)
	if number, err := os.ReadFile(file); err == nil {
		if running, err := os.ReadFile("/proc/" + string(number) + "/cmdline"); err == nil && strings.HasPrefix(string(running), program) {
			return nil
		}
	}
	log, err := os.OpenFile(filepath.Join(logFolder, name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(program, arguments...)
	command.Stdout, command.Stderr, command.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	go func() { _ = command.Wait() }()
	return os.WriteFile(file, []byte(fmt.Sprint(command.Process.Pid)), 0o600)
}

// output is the output of a program of the parts.
func output(input, name string, arguments ...string) (string, error) {
	command := exec.Command(filepath.Join(partsFolder, name), arguments...)
	command.Stdin = strings.NewReader(input)
	command.Env = append(os.Environ(), "ETCDCTL_API=3", "KUBECONFIG="+kubeconfigPath)
	out, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, exit.Stderr)
	}
	return string(out), err
}

func waitUntil(what string, try func() error) error {
	var err error
	for began := time.Now(); time.Since(began) < readySecondsMax*time.Second; time.Sleep(pollPause) {
		if err = try(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("timed out after %d s: %s: %w", readySecondsMax, what, err)
}

// writeFile replaces a file atomically, and only if its content differs.
func writeFile(path string, content []byte) error {
	if before, err := os.ReadFile(path); err == nil && string(before) == string(content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}
