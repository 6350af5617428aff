package main

import (
	"slices"
	"syscall"
	"time"

	"github.com/dunlin-project/dunlin/bench/peers/peer"
)

// stats answers GET /stats: all counters since the last request, and the total processor time.
type stats struct {
	Ticks     int    `json:"ticks"`
	TickP50US int64  `json:"tick_p50_us"`
	TickP99US int64  `json:"tick_p99_us"`
	TickMaxUS int64  `json:"tick_max_us"`
	LateP99US int64  `json:"late_p99_us"`
	LateMaxUS int64  `json:"late_max_us"`
	Builds    uint64 `json:"builds"`
	Encodes   uint64 `json:"encodes"`
	// Objects and bytes that the program has allocated.
	Allocations    uint64 `json:"allocations"`
	AllocatedBytes uint64 `json:"allocated_bytes"`

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
	allocated := r.heap.Read()
	before := r.allocated
	r.allocated = allocated
	r.figures.Unlock()
	r.mutex.Lock()
	sessions := len(r.sessions)
	r.mutex.Unlock()
	slices.Sort(counted.durations)
	slices.Sort(counted.lateness)
	return stats{
		Ticks:     len(counted.durations),
		TickP50US: peer.Quantile(counted.durations, 0.50).Microseconds(),
		TickP99US: peer.Quantile(counted.durations, 0.99).Microseconds(),
		TickMaxUS: peer.Quantile(counted.durations, 1).Microseconds(),
		LateP99US: peer.Quantile(counted.lateness, 0.99).Microseconds(),
		LateMaxUS: peer.Quantile(counted.lateness, 1).Microseconds(),
		Builds:    counted.builds,
		Encodes:   counted.encodes,

		Allocations:    allocated.Objects - before.Objects,
		AllocatedBytes: allocated.Bytes - before.Bytes,

		Inputs:     counted.inputs,
		Written:    r.written.Swap(0),
		Replaced:   r.replaced.Swap(0),
		Sessions:   sessions,
		CPUTotalNS: processorTime().Nanoseconds(),
	}
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
