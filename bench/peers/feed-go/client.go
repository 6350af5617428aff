package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	writePatience   = 10 * time.Second
	pingInterval    = 54 * time.Second
	messageBytesMax = 64 << 10
	// A client whose queue is full this often in a row is disconnected.
	failuresMax = 3
)

// client is a connection: a goroutine that reads commands, and one that writes what waits in its queue.
type client struct {
	server *server
	conn   *websocket.Conn
	queue  chan []byte

	// Of the goroutine that publishes.
	sequence uint64
	failures int

	mutex    sync.RWMutex
	channels map[string]struct{}

	gone     chan struct{}
	goneOnce sync.Once
}

func newClient(s *server, conn *websocket.Conn) *client {
	return &client{
		server:   s,
		conn:     conn,
		queue:    make(chan []byte, s.slots),
		channels: make(map[string]struct{}),
		gone:     make(chan struct{}),
	}
}

func (c *client) addChannel(channel string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.channels[channel] = struct{}{}
}

func (c *client) hasChannel(channel string) bool {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	_, found := c.channels[channel]
	return found
}

func (c *client) allChannels() []string {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	all := make([]string, 0, len(c.channels))
	for channel := range c.channels {
		all = append(all, channel)
	}
	return all
}

// offer queues a publication; a client that does not keep up is disconnected.
func (c *client) offer(message []byte) {
	select {
	case c.queue <- message:
		c.failures = 0
	default:
		c.server.figures.dropped.Add(1)
		if c.failures++; c.failures == failuresMax {
			c.server.figures.slow.Add(1)
			go c.close()
		}
	}
}

// reply queues an answer, for which it waits: the client has asked for it.
func (c *client) reply(answer []byte) {
	select {
	case c.queue <- answer:
	case <-c.gone:
	}
}

func (c *client) write() {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	for {
		kind, message := websocket.PingMessage, []byte(nil)
		select {
		case <-c.gone:
			return
		case message = <-c.queue:
			kind = websocket.TextMessage
		case <-ping.C:
		}
		_ = c.conn.SetWriteDeadline(time.Now().Add(writePatience))
		if err := c.conn.WriteMessage(kind, message); err != nil {
			c.close()
			return
		}
		c.server.figures.written.Add(1)
	}
}

// command is what a client may ask for.
type command struct {
	ID        uint32    `json:"id"`
	Connect   *struct{} `json:"connect"`
	Subscribe *struct {
		Channel string `json:"channel"`
	} `json:"subscribe"`
	Publish *struct {
		Channel string          `json:"channel"`
		Data    json.RawMessage `json:"data"`
	} `json:"publish"`
}

// read takes commands, one a line, until the connection ends.
func (c *client) read() {
	defer c.close()
	c.conn.SetReadLimit(messageBytesMax)
	for {
		_, message, err := c.conn.ReadMessage()
		if err != nil {
			return
		}
		for line := range bytes.Lines(message) {
			var asked command
			if err := json.Unmarshal(line, &asked); err != nil {
				return
			}
			c.do(&asked)
		}
	}
}

func (c *client) do(asked *command) {
	var answer string
	switch {
	case asked.Connect != nil:
		answer = fmt.Sprintf(`"connect":{"client":%q,"version":"feed-go"}`, c.conn.RemoteAddr())
	case asked.Subscribe != nil:
		c.server.clients.subscribe(c, asked.Subscribe.Channel)
		c.server.figures.clientsChanged()
		answer = `"subscribe":{}`
	case asked.Publish != nil:
		c.server.publish(asked.Publish.Channel, asked.Publish.Data)
		answer = `"publish":{}`
	default:
		return
	}
	c.reply(fmt.Appendf(nil, `{"id":%d,%s}`, asked.ID, answer))
}

// close ends the connection and all that is known of it.
func (c *client) close() {
	c.goneOnce.Do(func() {
		close(c.gone)
		c.server.clients.remove(c)
		c.server.figures.connections.Add(-1)
		c.server.figures.clientsChanged()
		_ = c.conn.Close()
	})
}
