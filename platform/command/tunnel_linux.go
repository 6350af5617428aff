package command

import "syscall"

// apart keeps ssh from the signals of the terminal, because an interrupted command still needs its tunnel to clean up. ssh ends with the command.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
