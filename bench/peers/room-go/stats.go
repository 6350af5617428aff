package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"syscall"
	"time"
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
	allocations, allocated := r.heap.since()
	r.figures.Unlock()
	r.mutex.Lock()
	sessions := len(r.sessions)
	r.mutex.Unlock()
	slices.Sort(counted.durations)
	slices.Sort(counted.lateness)
	return stats{
		Ticks:     len(counted.durations),
		TickP50US: quantile(counted.durations, 0.50),
		TickP99US: quantile(counted.durations, 0.99),
		TickMaxUS: quantile(counted.durations, 1),
		LateP99US: quantile(counted.lateness, 0.99),
		LateMaxUS: quantile(counted.lateness, 1),
		Builds:    counted.builds,
		Encodes:   counted.encodes,

		Allocations:    allocations,
		AllocatedBytes: allocated,

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

// heap counts what the program allocates, without stopping it.
type heap struct {
	objects, bytes uint64
}

// since returns the objects and bytes that were allocated since the last call.
func (h *heap) since() (objects, bytes uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	objects, bytes = samples[0].Value.Uint64()-h.objects, samples[1].Value.Uint64()-h.bytes
	h.objects, h.bytes = samples[0].Value.Uint64(), samples[1].Value.Uint64()
	return objects, bytes
}

// noteFigures appends the figures of a request to a file of PEER_STATS, a folder, if it is set: the load generator keeps some of them.
func noteFigures(name string, figures stats) error {
	folder := os.Getenv("PEER_STATS")
	if folder == "" {
		return nil
	}
	file, err := os.OpenFile(filepath.Join(folder, fmt.Sprintf("%s-%d.json", name, os.Getpid())), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(file).Encode(figures); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
