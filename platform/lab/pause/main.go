// Pause is the process that holds the namespaces of a pod.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGINT)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-ends:
			return
		case <-children:
			for {
				if process, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); process <= 0 || err != nil {
					break
				}
			}
		}
	}
}
