// Solver answers the challenge of an ACME server, in a pod that cert-manager creates. It takes the same arguments as cert-manager's own solver.
package main

import (
	"flag"
	"log"

	"github.com/cert-manager/cert-manager/pkg/issuer/acme/http/solver"
	"github.com/go-logr/logr"
)

func main() {
	var answer solver.HTTP01Solver
	flag.IntVar(&answer.ListenPort, "listen-port", 8089, "")
	flag.StringVar(&answer.Domain, "domain", "", "")
	flag.StringVar(&answer.Token, "token", "", "")
	flag.StringVar(&answer.Key, "key", "", "")
	flag.Parse()
	log.Fatal(answer.Listen(logr.Discard()))
}
