package backup

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Keep is how many snapshots are kept: the newest of each of the last days, weeks and months that have any. The newest of all is always kept.
type Keep struct {
	Daily, Weekly, Monthly int
	// Snapshot is the prefix of an identifier that is kept as well: the snapshot of the last verified restore.
	Snapshot string
}

// Snapshot of a repository.
type Snapshot struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	Tags []string  `json:"tags"`
}

// Short returns the short form of the identifier, as restic prints it.
func (snapshot Snapshot) Short() string { return snapshot.ID[:min(8, len(snapshot.ID))] }

// expired returns the snapshots that a policy does not keep.
func expired(snapshots []Snapshot, keep Keep) []Snapshot {
	ordered := slices.Clone(snapshots)
	slices.SortFunc(ordered, func(a, b Snapshot) int { return b.Time.Compare(a.Time) })
	isKept := map[string]bool{}
	keepNewest := func(count int, period func(time.Time) string) {
		seen := map[string]bool{}
		for _, snapshot := range ordered {
			name := period(snapshot.Time.UTC())
			if !seen[name] && len(seen) < count {
				seen[name], isKept[snapshot.ID] = true, true
			}
		}
	}
	keepNewest(1, func(time.Time) string { return "" })
	keepNewest(keep.Daily, func(when time.Time) string { return when.Format("2006-01-02") })
	keepNewest(keep.Weekly, func(when time.Time) string {
		year, week := when.ISOWeek()
		return fmt.Sprint(year, "-", week)
	})
	keepNewest(keep.Monthly, func(when time.Time) string { return when.Format("2006-01") })
	return slices.DeleteFunc(ordered, func(snapshot Snapshot) bool {
		return isKept[snapshot.ID] || keep.Snapshot != "" && strings.HasPrefix(snapshot.ID, keep.Snapshot)
	})
}
