package peer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"time"
)

// Heap reads what the program has allocated, without stopping it.
type Heap struct {
	samples []metrics.Sample
}

// Allocated counts from the beginning of the program.
type Allocated struct {
	Objects, Bytes uint64
	// LiveBytes is what the last garbage collection found alive.
	LiveBytes uint64
}

// Read reads the counters. Its memory is that of the first call.
func (h *Heap) Read() Allocated {
	if h.samples == nil {
		h.samples = []metrics.Sample{
			{Name: "/gc/heap/allocs:objects"},
			{Name: "/gc/heap/allocs:bytes"},
			{Name: "/gc/heap/live:bytes"},
		}
	}
	metrics.Read(h.samples)
	return Allocated{
		Objects:   h.samples[0].Value.Uint64(),
		Bytes:     h.samples[1].Value.Uint64(),
		LiveBytes: h.samples[2].Value.Uint64(),
	}
}

// Quantile returns the duration that this share of the sorted ones does not exceed; zero if there are none.
func Quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(share*float64(len(sorted)-1))]
}

// NoteFigures appends a line to the server's file in PEER_STATS, a folder, if it is set: bench/peers/compare reads it.
func NoteFigures(name string, figures any) error {
	folder := os.Getenv("PEER_STATS")
	if folder == "" {
		return nil
	}
	path := filepath.Join(folder, fmt.Sprintf("%s-%d.json", name, os.Getpid()))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(file).Encode(figures); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}
