// The operator of Roost reconciles the Apps and Dunlins of namespaces.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dunlin-project/dunlin/platform/coredump"
	"github.com/dunlin-project/dunlin/platform/operator"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "roost-operator: %s\n", err)
		os.Exit(1)
	}
}

func run() error {
	if err := coredump.Forbid(); err != nil {
		return err
	}
	line := operator.NewCommandLine(flag.CommandLine)
	flag.Parse()
	options, err := line.Options()
	if err != nil {
		return err
	}
	options.Log = logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, nil))
	ctrl.SetLogger(options.Log)
	klog.SetLogger(options.Log)
	connection, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return operator.Run(ctx, connection, options)
}
