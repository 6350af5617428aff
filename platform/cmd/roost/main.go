// The command roost validates and renders manifests, deploys them, and edits encrypted .env files.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/dunlin-project/dunlin/platform/command"
	"github.com/dunlin-project/dunlin/platform/coredump"
)

func main() {
	if err := coredump.Forbid(); err != nil {
		fmt.Fprintf(os.Stderr, "roost: %s\n", err)
		os.Exit(command.ExitFailed)
	}
	// client-go logs to standard error. Everything important in that log is also returned as an error.
	klog.SetLogger(logr.Discard())
	os.Exit(command.Run(os.Args[1:], command.Surroundings{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Variable: os.Getenv,
		Interruptible: func() (context.Context, context.CancelFunc) {
			return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		},
	}))
}
