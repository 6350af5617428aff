package main

import (
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	writePatience   = 5 * time.Second
	messageBytesMax = 4 << 10
	queueFramesMax  = 256
)

// session is one player's connection: a goroutine that reads inputs and one that writes frames.
type session struct {
	conn *websocket.Conn
	room *room

	// Shared mode: the newest frame, until the writer takes it.
	mutex  sync.Mutex
	latest *frame
	wake   chan struct{}

	// Naive mode: every frame.
	queue chan []byte

	gone     chan struct{}
	goneOnce sync.Once
}

func newSession(r *room, conn *websocket.Conn) *session {
	return &session{
		conn:  conn,
		room:  r,
		wake:  make(chan struct{}, 1),
		queue: make(chan []byte, queueFramesMax),
		gone:  make(chan struct{}),
	}
}

// offer puts a frame into the slot; returns whether it took the place of one that was not sent.
func (s *session) offer(f *frame) bool {
	f.retain()
	s.mutex.Lock()
	before := s.latest
	s.latest = f
	s.mutex.Unlock()
	if before != nil {
		before.release()
		return true
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return false
}

func (s *session) take() *frame {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	f := s.latest
	s.latest = nil
	return f
}

func (s *session) writeLatest() {
	for {
		select {
		case <-s.gone:
			return
		case <-s.wake:
		}
		f := s.take()
		if f == nil {
			continue
		}
		ok := s.write(f.bytes)
		f.release()
		if !ok {
			return
		}
	}
}

func (s *session) writeQueue() {
	for {
		select {
		case <-s.gone:
			return
		case bytes := <-s.queue:
			if !s.write(bytes) {
				return
			}
		}
	}
}

func (s *session) write(bytes []byte) bool {
	_ = s.conn.SetWriteDeadline(time.Now().Add(writePatience))
	if err := s.conn.WriteMessage(websocket.BinaryMessage, bytes); err != nil {
		s.close()
		return false
	}
	s.room.written.Add(1)
	return true
}

// read takes inputs until the connection ends.
func (s *session) read() {
	defer s.close()
	s.conn.SetReadLimit(messageBytesMax)
	for {
		kind, message, err := s.conn.ReadMessage()
		if err != nil {
			return
		}
		if in, ok := parseInput(message); ok && kind == websocket.BinaryMessage {
			s.room.push(in)
		}
	}
}

func (s *session) close() {
	s.goneOnce.Do(func() {
		close(s.gone)
		s.room.remove(s)
		_ = s.conn.Close()
	})
}
