package ports

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestPortsAreFreeAndDiffer(t *testing.T) {
	const count = 200
	free, err := Free(count)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range free {
		if port < portMin || port >= portMin+portCount || seen[port] {
			t.Errorf("port %d, after %d others", port, len(seen))
		}
		seen[port] = true
	}
	if len(seen) != count {
		t.Errorf("%d ports", len(seen))
	}
	// They are closed again. Another test may have taken one of them.
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", One(t)))
	if errors.Is(err, syscall.EADDRINUSE) {
		t.Skip("another process was faster")
	} else if err != nil {
		t.Fatal(err)
	}
	listener.Close()
}

func TestOutgoingConnectionsTakeOtherPorts(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Skip(err)
	}
	var first, last int
	if _, err := fmt.Fscan(strings.NewReader(string(text)), &first, &last); err != nil {
		t.Fatal(err)
	}
	if first < portMin+portCount && last >= portMin {
		t.Errorf("outgoing connections take ports from %d to %d", first, last)
	}
}
