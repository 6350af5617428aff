// Coredns is CoreDNS with the plugins that a cluster's own names need, and no others. The released program has those of many
// clouds, whose libraries take longer to compile than all the rest.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	dnsserver.Directives = []string{"health", "ready", "errors", "kubernetes"}
	coremain.Run()
}
