package main

import (
	"sync"
	"sync/atomic"

	"github.com/gobwas/ws"
)

// frame is one WebSocket message ready for the wire, shared by all sessions that are to send it. The last one that
// releases it gives its memory back.
type frame struct {
	bytes      []byte
	references atomic.Int32
}

var frames = sync.Pool{New: func() any { return new(frame) }}

// newFrame makes the frame of a message; it has one reference, the caller's.
func newFrame(message []byte) *frame {
	f := frames.Get().(*frame)
	f.bytes = appendMessage(f.bytes[:0], message)
	f.references.Store(1)
	return f
}

func (f *frame) retain() { f.references.Add(1) }

func (f *frame) release() {
	if f.references.Add(-1) == 0 {
		frames.Put(f)
	}
}

// appendMessage appends an unmasked binary message of one frame.
func appendMessage(out, message []byte) []byte {
	first := byte(0x80) | byte(ws.OpBinary)
	switch length := len(message); {
	case length < 126:
		out = append(out, first, byte(length))
	case length < 1<<16:
		out = append(out, first, 126, byte(length>>8), byte(length))
	default:
		out = append(out, first, 127, 0, 0, 0, 0, byte(length>>24), byte(length>>16), byte(length>>8), byte(length))
	}
	return append(out, message...)
}
