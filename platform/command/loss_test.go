package command

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

func TestEachRestoreSaysBeforehandWhatIsLost(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	known := &v1alpha1.BackupStatus{LastBackup: new(metav1.NewTime(now.Add(-90 * time.Minute))), LastSnapshot: "1f2e3d4c5b6a"}
	const newest = "the newest known snapshot is 1f2e3d4c5b6a of 2026-05-04T01:32:01Z (1h30m0s ago). Data that was written after "
	const unknown = "no backup is known. Data that was written after the snapshot is lost; the time of the snapshot is printed when it is restored"
	for _, row := range []struct {
		status         *v1alpha1.BackupStatus
		snapshot, want string
	}{
		{known, "latest", newest + "it is lost"},
		{known, "1f2e", newest + "it is lost"},
		{known, "aa00", newest + "snapshot aa00 is lost; the time of snapshot aa00 is printed when it is restored"},
		{nil, "latest", unknown},
		{&v1alpha1.BackupStatus{}, "aa00", unknown},
	} {
		if got := lossOf(row.status, row.snapshot, now); got != row.want {
			t.Errorf("%s: %s", row.snapshot, got)
		}
	}
}
