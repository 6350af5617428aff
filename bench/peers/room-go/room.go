package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// room ticks a world and passes each snapshot to its sessions.
type room struct {
	world          *world
	ticksPerSecond uint32
	// Marshal for every session anew, and queue.
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
}

// figures are the counters of the room since the last request.
type figures struct {
	durations, lateness []time.Duration
	encodes, inputs     uint64
}

func (r *room) run() {
	interval := time.Second / time.Duration(r.ticksPerSecond)
	message := make([]byte, 0, 64<<10)
	next := time.Now().Add(interval)
	for {
		time.Sleep(time.Until(next))
		begin := time.Now()
		message = r.tick(message[:0])
		r.note(time.Since(begin), begin.Sub(next))
		for next = next.Add(interval); time.Since(next) > interval; {
			next = next.Add(interval)
		}
	}
}

// tick takes the inputs, moves the world, and gives every session its frame.
func (r *room) tick(message []byte) []byte {
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
			r.queue(s, appendMessage(nil, r.world.marshal(nil, r.ticksPerSecond, now)))
		}
		r.count(len(r.sessions), len(inputs))
		return message
	}
	message = r.world.marshal(message, r.ticksPerSecond, now)
	shared := newFrame(message)
	for _, s := range r.sessions {
		if s.offer(shared) {
			r.replaced.Add(1)
		}
	}
	shared.release()
	r.count(1, len(inputs))
	return message
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

func (r *room) count(encodes, inputs int) {
	r.figures.Lock()
	defer r.figures.Unlock()
	r.counted.encodes += uint64(encodes)
	r.counted.inputs += uint64(inputs)
}

func (r *room) note(duration, late time.Duration) {
	r.figures.Lock()
	defer r.figures.Unlock()
	r.counted.durations = append(r.counted.durations, duration)
	r.counted.lateness = append(r.counted.lateness, late)
}

// stats answers GET /stats: all counters since the last request, and the total processor time.
type stats struct {
	Ticks      int    `json:"ticks"`
	TickP50US  int64  `json:"tick_p50_us"`
	TickP99US  int64  `json:"tick_p99_us"`
	TickMaxUS  int64  `json:"tick_max_us"`
	LateP99US  int64  `json:"late_p99_us"`
	LateMaxUS  int64  `json:"late_max_us"`
	Encodes    uint64 `json:"encodes"`
	Inputs     uint64 `json:"inputs"`
	Written    uint64 `json:"snapshots_written"`
	Replaced   uint64 `json:"snapshots_replaced"`
	Sessions   int    `json:"sessions"`
	CPUTotalNS int64  `json:"cpu_total_ns"`
}

func (r *room) stats() stats {
	r.figures.Lock()
	counted := r.counted
	r.counted = figures{}
	r.figures.Unlock()
	r.mutex.Lock()
	sessions := len(r.sessions)
	r.mutex.Unlock()
	slices.Sort(counted.durations)
	slices.Sort(counted.lateness)
	return stats{
		Ticks:      len(counted.durations),
		TickP50US:  quantile(counted.durations, 0.50),
		TickP99US:  quantile(counted.durations, 0.99),
		TickMaxUS:  quantile(counted.durations, 1),
		LateP99US:  quantile(counted.lateness, 0.99),
		LateMaxUS:  quantile(counted.lateness, 1),
		Encodes:    counted.encodes,
		Inputs:     counted.inputs,
		Written:    r.written.Swap(0),
		Replaced:   r.replaced.Swap(0),
		Sessions:   sessions,
		CPUTotalNS: processorTime().Nanoseconds(),
	}
}

func quantile(sorted []time.Duration, share float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(share*float64(len(sorted)-1))].Microseconds()
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
