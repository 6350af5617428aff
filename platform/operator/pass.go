package operator

import (
	"context"
	"maps"
	"net"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	// againSeconds is the pause before a pass that nothing announces: a key that is mounted, a name that becomes free.
	againSeconds = 30
)

// Pass reads, decides and writes once. It returns the pause until the next pass, or 0 if only an event asks for one.
func (operator *Operator) Pass(ctx context.Context, kind string, name types.NamespacedName) (time.Duration, error) {
	subject, err := operator.read(ctx, kind, name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil || subject.object.GetDeletionTimestamp() != nil {
		// Kubernetes deletes what it owns.
		return 0, err
	}
	input := reconcile.Input{Owner: subject.owner()}
	if input.Blocked, err = operator.blocked(ctx, subject); err != nil {
		return 0, err
	}
	if input.Blocked == nil {
		if input.Blocked, err = operator.refusedSecret(ctx, subject); err != nil {
			return 0, err
		}
	}
	var found decrypted
	if input.Blocked == nil {
		if found, err = operator.settings(ctx, subject); err != nil {
			return 0, err
		}
		input.SettingsProblem = found.problem
	}
	var revision string
	if input.Blocked == nil && input.SettingsProblem == "" {
		if input.Desired, revision, err = subject.desired(found.values, found.files, operator.Cluster); err != nil {
			return 0, err
		}
		if input.Blocked, err = operator.refusedImage(ctx, subject, input.Desired); err != nil {
			return 0, err
		}
		if input.Blocked != nil {
			input.Desired, revision = nil, ""
		}
	}
	live, err := operator.liveObjects(ctx, subject, input.Desired)
	if err != nil {
		return 0, err
	}
	input.Live = slices.Collect(maps.Values(live))
	pods, err := operator.pods(ctx, subject)
	if err != nil {
		return 0, err
	}
	mayStrand, err := operator.giveUpStranded(ctx, subject, pods)
	if err != nil {
		return 0, err
	}
	input.Pods = podStates(pods)
	if input.LocalVolumes, err = operator.localVolumes(ctx, pods); err != nil {
		return 0, err
	}
	input.LocalVolumes = subject.present(input.LocalVolumes)
	backup, err := operator.backupStatus(ctx, subject, input, render.RepositoryOf(subject.backup, found.values.Repository))
	if err != nil {
		return 0, err
	}
	input.RestoreUnfinished = backup != nil && backup.Operation.IsEnded() && (backup.RestoreUnfinished || loadUnfinished(subject.backup, backup))
	if input.Backup = backupState(subject, backup, live, operator.now()); input.Backup != nil {
		input.Backup.Waiting, input.Backup.DefaultImage = waitingBackup(pods), operator.Cluster.DefaultBackupImage()
	}
	pause, err := operator.perform(ctx, subject, input, live, outcome{revision, found.from, backup, operator.dunlinStatus(ctx, subject, pods)})
	if mayStrand && (pause == 0 || pause > againSeconds*time.Second) {
		// Nodes are not watched.
		pause = againSeconds * time.Second
	}
	return pause, err
}

// outcome is what the status names beside the conditions.
type outcome struct {
	revision, files string
	backup          *v1alpha1.BackupStatus
	dunlin          *v1alpha1.DunlinStatus
}

// perform writes what is decided, then the status.
func (operator *Operator) perform(ctx context.Context, subject *subject, input reconcile.Input, live map[objectName]reconcile.Manifest, outcome outcome) (time.Duration, error) {
	result := reconcile.Decide(input)
	var failure error
	performed := 0
	for _, write := range result.Writes {
		if failure = operator.write(ctx, subject, write, live); failure != nil {
			break
		}
		performed++
	}
	operator.record(subject, reconcile.WriteEvents(*subject.status, outcome.revision, input.Live, result.Writes[:performed]))
	if failure != nil {
		if input.Refusal = refusalOf(failure); input.Refusal == "" {
			return 0, failure
		}
		result.Conditions = reconcile.Decide(input).Conditions
	}
	if err := operator.report(ctx, subject, result, outcome); err != nil {
		return 0, err
	}
	if hasNextPhase(subject.status.Backup, outcome.backup) {
		return time.Millisecond, failure
	}
	pause := pauseAfter(result, input)
	if outcome.dunlin != nil && (pause == 0 || pause > againSeconds*time.Second) {
		// Nobody announces how many sessions a node has.
		pause = againSeconds * time.Second
	}
	return pause, failure
}

func pauseAfter(result reconcile.Result, input reconcile.Input) time.Duration {
	waitsFor := []string{
		reconcile.ReasonNameTaken, reconcile.ReasonHostTaken, reconcile.ReasonSettingsUnreadable, reconcile.ReasonWaitingForDeletion,
		reconcile.ReasonSecretRefused, reconcile.ReasonImageRefused,
	}
	for _, condition := range result.Conditions {
		if slices.Contains(waitsFor, condition.Reason) {
			return againSeconds * time.Second
		}
	}
	if len(input.LocalVolumes) > 0 {
		// Nodes are not watched.
		return againSeconds * time.Second
	}
	if backup := input.Backup; backup != nil {
		return time.Duration(backup.ExpiresSeconds()) * time.Second
	}
	return 0
}

// Operator keeps namespaces as their Apps and Dunlins have them.
type Operator struct {
	// Reader may be a cache of what is watched. Live asks the API server.
	Reader, Live client.Reader
	Writer       client.Client
	// Namespaces that are looked after.
	Namespaces []string
	// IdentityFile has the age identities that decrypt settings.
	IdentityFile string
	Cluster      render.Cluster
	Signatures   Signatures
	// Recorder takes events. Without it there are none.
	Recorder record.EventRecorder
	// Now is the clock. The system's without it.
	Now func() time.Time

	// DialNode connects to the internal port of a node. The system's way without it.
	DialNode func(ctx context.Context, network, address string) (net.Conn, error)

	recent  recentWrites
	answers answers
}

func (operator *Operator) now() time.Time {
	if operator.Now != nil {
		return operator.Now()
	}
	return time.Now()
}
