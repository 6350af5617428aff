package main

import (
	"sync"
	"sync/atomic"
)

// frame is one message, shared by all sessions that are to send it. The last one that releases it gives its memory back.
type frame struct {
	bytes      []byte
	references atomic.Int32
}

var frames = sync.Pool{New: func() any { return new(frame) }}

// newFrame makes a frame with one reference, the caller's, of a message that marshal appends.
func newFrame(marshal func(out []byte) []byte) *frame {
	f := frames.Get().(*frame)
	f.bytes = marshal(f.bytes[:0])
	f.references.Store(1)
	return f
}

func (f *frame) retain() { f.references.Add(1) }

func (f *frame) release() {
	if f.references.Add(-1) == 0 {
		frames.Put(f)
	}
}
