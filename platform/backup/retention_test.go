package backup

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRetention(t *testing.T) {
	// 31 March 2026 is a Tuesday. Names are the number of days before it, and the hour unless it is 3.
	day := func(days, hour int, name string) Snapshot {
		return Snapshot{ID: name, Time: time.Date(2026, 3, 31, hour, 0, 0, 0, time.UTC).AddDate(0, 0, -days)}
	}
	var year []Snapshot
	for days := range 365 {
		year = append(year, day(days, 3, fmt.Sprint(days)))
	}
	for _, row := range []struct {
		name      string
		snapshots []Snapshot
		keep      Keep
		left      string
	}{
		{"nothing", nil, Keep{Daily: 7, Weekly: 4, Monthly: 6}, ""},
		{"the newest is kept", []Snapshot{day(3, 3, "3"), day(0, 3, "0"), day(1, 3, "1")}, Keep{}, "0"},
		{"the newer of one day", []Snapshot{day(0, 3, "0"), day(0, 4, "0 at 4"), day(1, 4, "1 at 4"), day(1, 3, "1")}, Keep{Daily: 7}, "0 at 4, 1 at 4"},
		// The days before 29, 22 and 15 March, which are Sundays, and the last days of months.
		{"a year of days", year, Keep{Daily: 7, Weekly: 4, Monthly: 6}, "0, 1, 2, 3, 4, 5, 6, 9, 16, 31, 59, 90, 121, 151"},
		{"days without a backup do not count", []Snapshot{day(0, 3, "0"), day(30, 3, "30"), day(60, 3, "60"), day(61, 3, "61")}, Keep{Daily: 3}, "0, 30, 60"},
		{"the verified one is kept", []Snapshot{day(0, 3, "0abc"), day(1, 3, "1abcdef0"), day(2, 3, "2abc")}, Keep{Daily: 1, Snapshot: "1abc"}, "0abc, 1abcdef0"},
		{"a week can have two years", []Snapshot{day(90, 3, "31 December"), day(89, 3, "1 January"), day(93, 3, "28 December")}, Keep{Weekly: 9}, "1 January, 28 December"},
	} {
		isGone := map[string]bool{}
		for _, snapshot := range expired(row.snapshots, row.keep) {
			isGone[snapshot.ID] = true
		}
		var left []string
		for _, snapshot := range row.snapshots {
			if !isGone[snapshot.ID] {
				left = append(left, snapshot.ID)
			}
		}
		if text := strings.Join(left, ", "); text != row.left {
			t.Errorf("%s: %q is left, want %q", row.name, text, row.left)
		}
	}
}
