package coredump_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dunlin-project/dunlin/platform/coredump"
)

const (
	variable     = "ROOST_TEST_COREDUMP"
	forbidden    = "forbidden"
	allowed      = "allowed"
	coreBytesMax = 1 << 30
)

// TestMain is the child as well: it forbids core dumps or not, and ends by a signal that dumps core.
func TestMain(m *testing.M) {
	mode := os.Getenv(variable)
	if mode == "" {
		os.Exit(m.Run())
	}
	limit := &syscall.Rlimit{Cur: coreBytesMax, Max: coreBytesMax}
	err := syscall.Setrlimit(syscall.RLIMIT_CORE, limit)
	if err == nil && mode == forbidden {
		err = coredump.Forbid()
	}
	if err != nil {
		panic(err)
	}
	// With GOTRACEBACK=crash, the runtime ends the process by a signal that dumps core.
	panic("the test ends this process")
}

// TestNoCoreIsDumped compares with a process that does not forbid it, where this machine has such dumps.
func TestNoCoreIsDumped(t *testing.T) {
	for _, mode := range []string{allowed, forbidden} {
		child := exec.Command(os.Args[0])
		child.Env, child.Dir = append(os.Environ(), variable+"="+mode, "GOTRACEBACK=crash"), t.TempDir()
		output, err := child.CombinedOutput()
		status, isStatus := child.ProcessState.Sys().(syscall.WaitStatus)
		if !isStatus || !status.Signaled() {
			t.Fatalf("%s: %v: %s", mode, err, output)
		}
		files, globErr := filepath.Glob(filepath.Join(child.Dir, "*core*"))
		if globErr != nil {
			t.Fatal(globErr)
		}
		pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
		t.Logf("%s: dumps core: %v, files: %d, core_pattern %s", mode, status.CoreDump(), len(files), strings.TrimSpace(string(pattern)))
		if mode == forbidden && (status.CoreDump() || len(files) > 0) {
			t.Errorf("memory was dumped: %v", files)
		}
	}
}
