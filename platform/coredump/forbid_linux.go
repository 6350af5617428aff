package coredump

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Forbid has two parts: with a limit of zero, the kernel writes no file; a process that is not dumpable is not handed to a program such as
// systemd-coredump either, for which the limit does not count.
func Forbid() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("setting the limit of core dumps: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbidding core dumps: %w", err)
	}
	return nil
}
