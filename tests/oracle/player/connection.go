package main

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// connection is one client of a play. It records the server's messages in order.
type connection struct {
	socket     *websocket.Conn
	codec      codec
	manualPong bool

	mu       sync.Mutex
	writing  sync.Mutex
	changed  chan struct{}
	entries  []any // what the transcript gets
	messages int   // replies and pushes recorded
	awaited  int   // of these, how many the script has asked for
	pings    int
	asked    int // pings the script has asked for
	clientID string
	closed   bool
}

func dial(url string, origin string, c codec, manualPong bool) (*connection, error) {
	dialer := websocket.Dialer{HandshakeTimeout: 10 * time.Second, Subprotocols: c.subprotocols()}
	header := http.Header{}
	if origin != "" {
		header.Set("Origin", origin)
	}
	conn := &connection{codec: c, manualPong: manualPong, changed: make(chan struct{}, 1)}
	socket, answer, err := dialer.Dial(url, header)
	if err != nil {
		if answer == nil {
			return nil, err
		}
		conn.closed = true
		conn.record(object{"refused": answer.StatusCode})
		return conn, nil
	}
	conn.socket = socket
	go conn.read()
	return conn, nil
}

func (c *connection) read() {
	for {
		kind, frame, err := c.socket.ReadMessage()
		if err != nil {
			c.end(err)
			return
		}
		if kind != c.codec.opcode() {
			c.record(object{"malformed": "frame of the wrong opcode"})
		}
		messages, err := c.codec.split(frame)
		if err != nil {
			c.record(object{"malformed": err.Error()})
		}
		for _, message := range messages {
			c.take(message)
		}
	}
}

// take records a message; a ping is counted, and answered unless the script does.
func (c *connection) take(message object) {
	if len(message) == 0 {
		c.mu.Lock()
		c.pings++
		c.mu.Unlock()
		c.signal()
		if !c.manualPong {
			_ = c.write(c.codec.empty())
		}
		return
	}
	c.mu.Lock()
	c.messages++
	if result, is := message["connect"].(object); is {
		c.clientID, _ = result["client"].(string)
	}
	c.mu.Unlock()
	c.record(message)
}

func (c *connection) end(err error) {
	entry := object{"close": object{"code": "none", "reason": ""}}
	var closing *websocket.CloseError
	if errors.As(err, &closing) {
		entry = object{"close": object{"code": closing.Code, "reason": closing.Text}}
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.record(entry)
	_ = c.socket.Close()
}

func (c *connection) record(entry object) {
	c.mu.Lock()
	c.entries = append(c.entries, entry)
	c.mu.Unlock()
	c.signal()
}

func (c *connection) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *connection) write(frame []byte) error {
	if c.socket == nil {
		return nil
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.socket.WriteMessage(c.codec.opcode(), frame)
}

// wait returns when the condition holds (true) or the deadline has passed.
func (c *connection) wait(condition func() bool) bool {
	timeout := time.NewTimer(expectDeadline)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		holds := condition()
		c.mu.Unlock()
		if holds {
			return true
		}
		select {
		case <-c.changed:
		case <-timeout.C:
			return false
		}
	}
}

// expect waits for what the step names; the transcript shows what was missing.
func (c *connection) expect(s step) {
	what := object{}
	ended := false
	if s.Messages > 0 {
		c.mu.Lock()
		c.awaited += s.Messages
		wanted := c.awaited
		c.mu.Unlock()
		if !c.wait(func() bool { ended = c.closed; return c.messages >= wanted || c.closed }) {
			what["missing"] = "messages"
		}
	}
	if s.Pings > 0 {
		c.mu.Lock()
		c.asked += s.Pings
		wanted := c.asked
		c.mu.Unlock()
		if !c.wait(func() bool { ended = c.closed; return c.pings >= wanted || c.closed }) {
			what["missing"] = "pings"
		} else if !ended {
			what["pinged"] = s.Pings
		}
	}
	if s.Close && !c.wait(func() bool { return c.closed }) {
		what["missing"] = "close"
	}
	if len(what) > 0 {
		c.record(what)
	}
}

// barrier sends a command whose only effect is its reply, and waits for that reply.
// All earlier messages of the server are in the transcript then.
func (c *connection) barrier(id int) error {
	command, err := c.codec.join([]string{barrierCommand(id)})
	if err != nil {
		return err
	}
	if err := c.write(command); err != nil {
		return nil // closed; the transcript says so
	}
	if !c.wait(func() bool { return c.closed || c.answered(id) }) {
		c.record(object{"missing": "barrier"})
	}
	c.mu.Lock()
	c.awaited = c.messages
	c.mu.Unlock()
	return nil
}

func (c *connection) answered(id int) bool {
	for _, entry := range c.entries {
		if message, is := entry.(object); is && sameNumber(message["id"], id) {
			return true
		}
	}
	return false
}

// drop ends the connection without a close frame, like a network failure.
func (c *connection) drop() {
	if c.socket != nil {
		_ = c.socket.UnderlyingConn().Close()
	}
	c.wait(func() bool { return c.closed })
}
