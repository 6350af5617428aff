// Package ports chooses ports of servers that a test starts.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
)

// Linux takes ports of outgoing connections from 32768 on. No outgoing connection takes one of these between its choice and its use. Another test
// that chooses at the same time may.
const portMin, portCount = 10_000, 22_768

// attemptsMax bounds the ports that are tried for each one that is chosen.
const attemptsMax = 1_000

// Free returns ports of the loopback address that are free now. All of them are open at the same time, so that they differ.
func Free(count int) ([]int, error) {
	var ports []int
	for attempt := 0; len(ports) < count; attempt++ {
		if attempt == count*attemptsMax {
			return nil, errors.New("no port is free")
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", portMin+rand.IntN(portCount)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		} else if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// One returns one port that is free now.
func One(t testing.TB) int {
	t.Helper()
	free, err := Free(1)
	if err != nil {
		t.Fatal(err)
	}
	return free[0]
}
