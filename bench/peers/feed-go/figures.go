package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dunlin-project/dunlin/bench/peers/peer"
)

// windowsMax bounds the figures of a long run: later windows replace the last one.
const windowsMax = 1000

// figures counts what publications cost while the clients do not change.
type figures struct {
	written, dropped, slow atomic.Uint64
	connections            atomic.Int64
	changed                atomic.Bool

	mutex sync.Mutex
	past  []window
	now   window
	// What was counted when the window began.
	base      counts
	durations []time.Duration
	heap      peer.Heap
}

// publication is what one publication took.
type publication struct {
	visited, marshals, queued int
	took                      time.Duration
}

// window is a time in which no client came or went.
type window struct {
	Publications int `json:"publications"`
	// Clients that publications looked at, and messages that they queued.
	Visited  int `json:"visited"`
	Queued   int `json:"queued"`
	Marshals int `json:"marshals"`
	// Connections at the end, and what the last garbage collection found alive.
	Connections int64  `json:"connections"`
	LiveBytes   uint64 `json:"live_bytes"`

	TookP50US float64 `json:"took_p50_us"`
	TookP99US float64 `json:"took_p99_us"`
	counts
}

// counts are counters of the whole program.
type counts struct {
	Allocations    uint64 `json:"allocations"`
	AllocatedBytes uint64 `json:"allocated_bytes"`
	Written        uint64 `json:"written"`
	Dropped        uint64 `json:"dropped"`
	Slow           uint64 `json:"slow"`
}

func (c counts) since(base counts) counts {
	return counts{
		Allocations:    c.Allocations - base.Allocations,
		AllocatedBytes: c.AllocatedBytes - base.AllocatedBytes,
		Written:        c.Written - base.Written,
		Dropped:        c.Dropped - base.Dropped,
		Slow:           c.Slow - base.Slow,
	}
}

// clientsChanged ends the window: what clients cost when they come and go is no part of a publication.
func (f *figures) clientsChanged() { f.changed.Store(true) }

// begin notes that a publication begins.
func (f *figures) begin() {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.changed.Swap(false) {
		f.next()
	}
}

// end notes what a publication took.
func (f *figures) end(p publication) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.now.Publications++
	f.now.Visited += p.visited
	f.now.Queued += p.queued
	f.now.Marshals += p.marshals
	f.durations = append(f.durations, p.took)
	now, liveBytes := f.count()
	f.now.counts = now.since(f.base)
	f.now.Connections, f.now.LiveBytes = f.connections.Load(), liveBytes
}

// windows returns all windows so far, the current one last.
func (f *figures) windows() []window {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.next()
	return slices.Clone(f.past)
}

// next begins a window.
func (f *figures) next() {
	f.store()
	f.now, f.durations = window{}, f.durations[:0]
	f.base, _ = f.count()
}

// store keeps the current window, if anything happened in it.
func (f *figures) store() {
	if f.now.Publications == 0 {
		return
	}
	slices.Sort(f.durations)
	f.now.TookP50US, f.now.TookP99US = f.quantile(0.50), f.quantile(0.99)
	if len(f.past) == windowsMax {
		f.past = f.past[:windowsMax-1]
	}
	f.past = append(f.past, f.now)
}

func (f *figures) quantile(share float64) float64 {
	return float64(peer.Quantile(f.durations, share).Nanoseconds()) / 1e3
}

// count returns all counters, and what the last garbage collection found alive.
func (f *figures) count() (counts, uint64) {
	allocated := f.heap.Read()
	return counts{
		Allocations:    allocated.Objects,
		AllocatedBytes: allocated.Bytes,
		Written:        f.written.Load(),
		Dropped:        f.dropped.Load(),
		Slow:           f.slow.Load(),
	}, allocated.LiveBytes
}
