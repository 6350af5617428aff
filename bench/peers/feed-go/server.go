package main

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"
)

// server gives publications to the clients that subscribe to their channels.
type server struct {
	clients         clients
	marshalsForEach bool
	slots           int
	figures         figures

	// One publication at a time, as with a goroutine that broadcasts.
	publishing sync.Mutex
}

// push is what a client receives. Its number counts the client's messages, so that the client sees a gap.
type push struct {
	Sequence uint64 `json:"seq"`
	Push     struct {
		Channel     string `json:"channel"`
		Publication struct {
			Data json.RawMessage `json:"data"`
		} `json:"pub"`
	} `json:"push"`
}

func (s *server) publish(channel string, data json.RawMessage) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.figures.begin()
	began := time.Now()
	var message push
	message.Push.Channel, message.Push.Publication.Data = channel, data
	marshals, queued := 0, 0
	var shared []byte
	if !s.marshalsForEach {
		shared = withoutNumber(message)
		marshals = 1
	}
	visited := s.clients.visit(channel, func(c *client) {
		c.sequence++
		queued++
		if !s.marshalsForEach {
			c.offer(withNumber(c.sequence, shared))
			return
		}
		marshals++
		message.Sequence = c.sequence
		c.offer(marshalled(message))
	})
	s.figures.end(publication{visited: visited, marshals: marshals, queued: queued, took: time.Since(began)})
}

func marshalled(message push) []byte {
	text, err := json.Marshal(message)
	if err != nil {
		// The data was parsed as JSON when it arrived.
		panic(err)
	}
	return text
}

const numberZero = `{"seq":0`

// withoutNumber is a message from its first field after the number on.
func withoutNumber(message push) []byte { return marshalled(message)[len(numberZero):] }

// withNumber puts a client's number in front of a message that was marshalled once.
func withNumber(sequence uint64, rest []byte) []byte {
	const digitsMax = 20
	out := make([]byte, 0, len(numberZero)+digitsMax+len(rest))
	out = append(out, numberZero[:len(numberZero)-1]...)
	out = strconv.AppendUint(out, sequence, 10)
	return append(out, rest...)
}
