package sdk

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy is a TCP proxy in front of the server. Its connections can be cut and paused.
type proxy struct {
	listener net.Listener
	upstream string
	mu       sync.Mutex
	changed  *sync.Cond
	open     bool
	held     bool
	pings    int
	pairs    map[net.Conn]net.Conn
}

func startProxy(t *testing.T) *proxy {
	t.Helper()
	server, err := url.Parse(wsURL(t))
	check(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	p := &proxy{listener: listener, upstream: server.Host, open: true, pairs: map[net.Conn]net.Conn{}}
	p.changed = sync.NewCond(&p.mu)
	go p.accept()
	t.Cleanup(func() {
		_ = listener.Close()
		p.release()
		p.cut()
	})
	return p
}

// url is the server's WebSocket address, through this proxy.
func (p *proxy) url(t *testing.T) string {
	through, err := url.Parse(wsURL(t))
	check(t, err)
	through.Host = p.listener.Addr().String()
	return through.String()
}

// cut ends every connection and refuses new ones until restore.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = false
	for client, upstream := range p.pairs {
		_ = client.Close()
		_ = upstream.Close()
	}
}

func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = true
}

// hold keeps connections open but forwards nothing from the server until release.
func (p *proxy) hold() { p.setHeld(true) }

func (p *proxy) release() { p.setHeld(false) }

func (p *proxy) setHeld(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	p.changed.Broadcast()
}

// waitPings returns when count server pings have passed. The test's timeout bounds it.
func (p *proxy) waitPings(count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.pings < count {
		p.changed.Wait()
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		upstream, err := net.Dial("tcp", p.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		if !p.open {
			_ = client.Close()
			_ = upstream.Close()
			p.mu.Unlock()
			continue
		}
		p.pairs[client] = upstream
		p.mu.Unlock()
		go p.pass(client, upstream, func([]byte) {})
		go p.pass(upstream, client, p.fromServer)
	}
}

func (p *proxy) pass(from, to net.Conn, before func([]byte)) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		p.mu.Lock()
		delete(p.pairs, from)
		delete(p.pairs, to)
		p.mu.Unlock()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			before(buffer[:n])
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) fromServer(chunk []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isPing(chunk) {
		p.pings++
		p.changed.Broadcast()
	}
	for p.held {
		p.changed.Wait()
	}
}

// isPing recognizes a server ping on an otherwise silent connection: one WebSocket
// frame with the text `{}` in JSON, with the single byte 0 in Protobuf.
func isPing(chunk []byte) bool {
	return bytes.Equal(chunk, []byte{0x81, 2, '{', '}'}) || bytes.Equal(chunk, []byte{0x82, 1, 0})
}
