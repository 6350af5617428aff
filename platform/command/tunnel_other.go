//go:build !linux

package command

import "syscall"

// apart changes nothing on systems other than Linux.
func apart() *syscall.SysProcAttr { return nil }
