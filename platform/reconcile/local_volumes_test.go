package reconcile

import (
	"strings"
	"testing"
)

func conditionOf(result Result, kind string) Condition {
	for _, condition := range result.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return Condition{}
}

func TestNodesThatAreLost(t *testing.T) {
	const taken = "2026-05-04T10:00:00Z"
	notReady := func(seconds int64) func(*LocalVolume) {
		return func(v *LocalVolume) { v.NotReadySeconds, v.NotReadySince = &seconds, "2026-05-04T11:54:59Z" }
	}
	volume := LocalVolume{Pod: "shop-0", Claim: "data-shop-0", Volume: "pvc-1", Node: "m2", IsNodeThere: true}
	for _, row := range []struct {
		name   string
		change func(*LocalVolume)
		backup *BackupState
		// words of the message. Empty: the node is not lost.
		words []string
	}{
		{"ready", func(*LocalVolume) {}, nil, nil},
		{"not ready, at the bound", notReady(300), nil, nil},
		{"not ready for longer", notReady(301), nil,
			[]string{"shop-0 waits for node m2, which has not been ready since 2026-05-04T11:54:59Z", "volume pvc-1 of claim data-shop-0", "Nothing is deleted", "no backup"}},
		{"gone", func(v *LocalVolume) { v.IsNodeThere = false }, nil, []string{"m2, which does not exist any more", "no backup"}},
		{"gone, with a backup that only the app can read", func(v *LocalVolume) { v.IsNodeThere = false },
			&BackupState{FirstPod: "shop-0", AgeSeconds: new(int64(5))}, []string{"no backup"}},
		{"gone, with a repository that is empty", func(v *LocalVolume) { v.IsNodeThere = false }, &BackupState{FirstPod: "shop-0", HasRepository: true}, []string{"no backup"}},
		{"gone, with a backup", func(v *LocalVolume) { v.IsNodeThere = false }, &BackupState{FirstPod: "shop-0", HasRepository: true, LastBackup: taken},
			[]string{"The last backup is of 2026-05-04T10:00:00Z; a restore loses data that was written after it, and no restore was verified yet"}},
		{"gone, with a verified one", func(v *LocalVolume) { v.IsNodeThere = false },
			&BackupState{FirstPod: "shop-0", HasRepository: true, LastBackup: taken, VerifiedAgeSeconds: new(int64(9))}, []string{"2026-05-04T10:00:00Z; a restore loses data that was written after it"}},
		{"gone, and its pod is never saved", func(v *LocalVolume) { v.IsNodeThere, v.Pod, v.Claim = false, "shop-1", "data-shop-1" },
			&BackupState{FirstPod: "shop-0", HasRepository: true, LastBackup: taken}, []string{"There is no backup of it that roost can restore: only the volumes of shop-0 are saved"}},
	} {
		changed := volume
		row.change(&changed)
		input := Input{
			LocalVolumes: []LocalVolume{volume, changed}, Backup: row.backup,
			Pods: []PodState{{Name: "shop-0", Waiting: "Unschedulable", LastOutput: "0/2 nodes are available"}},
		}
		result := Decide(input)
		degraded := conditionOf(result, ConditionDegraded)
		reason := ReasonPodFailing
		if row.words != nil {
			reason = ReasonNodeLost
		}
		if !degraded.Holds || degraded.Reason != reason {
			t.Errorf("%s: %+v", row.name, degraded)
		}
		for _, word := range row.words {
			if !strings.Contains(degraded.Message, word) {
				t.Errorf("%s: %q lacks %q", row.name, degraded.Message, word)
			}
		}
		if len(result.Writes) > 0 {
			t.Errorf("%s: %v", row.name, result.Writes)
		}
		// Later, the message is the same.
		if seconds := changed.NotReadySeconds; seconds != nil {
			*seconds += 3600
		}
		if later := conditionOf(Decide(input), ConditionDegraded); row.words != nil && later != degraded {
			t.Errorf("%s: an hour later: %+v", row.name, later)
		}
	}
}

// The pod of a backup waits for the same node, but the message names the app's own pod.
func TestTheLostVolumeOfTheAppIsNamed(t *testing.T) {
	own, job := LocalVolume{Pod: "shop-gen2-0"}, LocalVolume{Pod: "shop-backup-1-x", Job: "shop-backup-1"}
	for _, volumes := range [][]LocalVolume{{own, job}, {job, own}} {
		if found := lostVolume(volumes); found.Pod != own.Pod {
			t.Errorf("%+v", found)
		}
	}
	if found := lostVolume([]LocalVolume{job}); found == nil || found.Pod != job.Pod {
		t.Errorf("%+v", found)
	}
}
