package sdk

import (
	"encoding/json"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// isCluster is whether the server under test is several nodes of a cluster. On one node, the publications of a channel have the
// offsets 1, 2, 3 and so on. In a cluster, the channels of a namespace share a stream: the offsets of a channel rise and have
// gaps, so a publication is found by the offset that the HTTP API returned for it.
var isCluster = os.Getenv("DUNLIN_CLUSTER") != ""

// recorded has the offsets that the HTTP API returned in a cluster, by channel.
var recorded = struct {
	sync.Mutex
	offsets map[string][]uint64
}{offsets: map[string][]uint64{}}

// recordOffset records the offset of the channel's next publication.
func recordOffset(t *testing.T, channel string, offset uint64) {
	t.Helper()
	recorded.Lock()
	defer recorded.Unlock()
	offsets := append(recorded.offsets[channel], offset)
	if isCluster && (offset == 0 || !slices.IsSorted(offsets)) {
		t.Fatalf("%s: offsets %v", channel, offsets)
	}
	recorded.offsets[channel] = offsets
}

// recordHistory does it for the first count publications of a channel, which have been published without a result of their own.
// A history that is read on another node may be some milliseconds old.
func recordHistory(t *testing.T, channel string, count int) {
	t.Helper()
	var history struct{ Publications []position }
	for end := time.Now().Add(deadline); len(history.Publications) < count; {
		if time.Now().After(end) {
			t.Fatalf("%s: %d publications of %d", channel, len(history.Publications), count)
		}
		check(t, json.Unmarshal(api(t, "history", object{"channel": channel, "limit": -1}), &history))
	}
	for _, publication := range history.Publications {
		recordOffset(t, channel, publication.Offset)
	}
}

// numberOf is the number of the publication with this offset: 1 is the first one of the channel, 0 none.
func numberOf(channel string, offset uint64) int {
	if !isCluster {
		return int(offset)
	}
	recorded.Lock()
	defer recorded.Unlock()
	return slices.Index(recorded.offsets[channel], offset) + 1
}

// offsetOf is the offset of the publication with this number.
func offsetOf(channel string, number int) uint64 {
	if !isCluster {
		return uint64(number)
	}
	recorded.Lock()
	defer recorded.Unlock()
	return recorded.offsets[channel][number-1]
}
