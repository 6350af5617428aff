package coredump

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Forbid disables core dumps. With a limit of zero, the kernel writes no file. The kernel also does not pipe the dump of a process that is not dumpable
// to a program such as systemd-coredump, which ignores the limit.
func Forbid() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("setting the limit of core dumps: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbidding core dumps: %w", err)
	}
	return nil
}
