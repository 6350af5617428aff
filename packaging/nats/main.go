// Command nats-server is the NATS server with shorter elections: after a crash of the server that leads a stream, the others
// elect another within about a second, instead of 4 to 8. What that costs: docs/clustering.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/nats-io/nats-server/v2/server"
)

// The server has no setting for its elections. These are its own variables (server/raft.go).
var (
	//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
	minElectionTimeout time.Duration
	//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
	maxElectionTimeout time.Duration
	//go:linkname hbInterval github.com/nats-io/nats-server/v2/server.hbInterval
	hbInterval time.Duration
)

func main() {
	// Before the server starts, since its goroutines read them without locks.
	minElectionTimeout, maxElectionTimeout, hbInterval = 600*time.Millisecond, 1500*time.Millisecond, 150*time.Millisecond
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "nats-server: %v\n", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	flags := flag.NewFlagSet("nats-server", flag.ExitOnError)
	version := func() { fmt.Printf("nats-server: v%s, short elections\n", server.VERSION) }
	options, err := server.ConfigureOptions(flags, arguments, func() { version(); os.Exit(0) }, flags.Usage, flags.Usage)
	if err != nil {
		return err
	}
	if options.CheckConfig {
		fmt.Printf("nats-server: the configuration file %s is valid\n", options.ConfigFile)
		return nil
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	if err := server.Run(s); err != nil {
		return err
	}
	s.WaitForShutdown()
	return nil
}
