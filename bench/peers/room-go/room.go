package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dunlin-project/dunlin/bench/peers/peer"
)

// room ticks a world and passes each snapshot to its sessions.
type room struct {
	world          *world
	ticksPerSecond uint32
	// Shared mode: the memory of the snapshot.
	snapshot snapshot
	// Build and marshal for every session anew, and queue.
	naive bool

	mutex    sync.Mutex
	sessions []*session

	inbox   sync.Mutex
	waiting []input
	taken   []input

	// Snapshots that were written, and snapshots that a newer one replaced.
	written, replaced atomic.Uint64

	figures sync.Mutex
	counted figures
	heap    peer.Heap
	// What was allocated until the last request.
	allocated peer.Allocated
}

// figures are the counters of the room since the last request.
type figures struct {
	durations, lateness     []time.Duration
	builds, encodes, inputs uint64
}

func (r *room) run() {
	interval := time.Second / time.Duration(r.ticksPerSecond)
	next := time.Now().Add(interval)
	for {
		time.Sleep(time.Until(next))
		begin := time.Now()
		r.tick()
		r.note(time.Since(begin), begin.Sub(next))
		for next = next.Add(interval); time.Since(next) > interval; {
			next = next.Add(interval)
		}
	}
}

// tick takes the inputs, moves the world, and gives every session its frame.
func (r *room) tick() {
	inputs := r.drain()
	for _, in := range inputs {
		r.world.apply(in)
	}
	r.world.advance()
	now := uint64(time.Now().UnixMicro())
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.naive {
		for _, s := range r.sessions {
			var own snapshot
			r.world.build(&own)
			r.queue(s, own.marshal(nil, r.ticksPerSecond, now))
		}
		r.count(len(r.sessions), len(inputs))
		return
	}
	r.world.build(&r.snapshot)
	shared := newFrame(func(out []byte) []byte { return r.snapshot.marshal(out, r.ticksPerSecond, now) })
	for _, s := range r.sessions {
		if s.offer(shared) {
			r.replaced.Add(1)
		}
	}
	shared.release()
	r.count(1, len(inputs))
}

// queue hands a frame of its own to a session; a session that is too far behind is disconnected.
func (r *room) queue(s *session, bytes []byte) {
	select {
	case s.queue <- bytes:
	default:
		go s.close()
	}
}

func (r *room) add(s *session) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sessions = append(r.sessions, s)
}

func (r *room) remove(s *session) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sessions = slices.DeleteFunc(r.sessions, func(other *session) bool { return other == s })
}

func (r *room) push(in input) {
	r.inbox.Lock()
	defer r.inbox.Unlock()
	r.waiting = append(r.waiting, in)
}

// drain returns the inputs in the inbox. It reuses the memory of the previous tick.
func (r *room) drain() []input {
	r.inbox.Lock()
	defer r.inbox.Unlock()
	r.taken, r.waiting = r.waiting, r.taken[:0]
	return r.taken
}

// count notes a tick that built and marshalled so many snapshots.
func (r *room) count(snapshots, inputs int) {
	r.figures.Lock()
	defer r.figures.Unlock()
	r.counted.builds += uint64(snapshots)
	r.counted.encodes += uint64(snapshots)
	r.counted.inputs += uint64(inputs)
}

func (r *room) note(duration, late time.Duration) {
	r.figures.Lock()
	defer r.figures.Unlock()
	r.counted.durations = append(r.counted.durations, duration)
	r.counted.lateness = append(r.counted.lateness, late)
}
