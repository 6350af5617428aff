package operator

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	// againSeconds is the interval of passes for changes without an event, such as a mounted key or a name that becomes free.
	againSeconds = 30
	// pacedSeconds is the interval of passes while a rollout of nodes waits for sessions.
	pacedSeconds = 2
)

// Pass reconciles an App or a Dunlin once. It returns the pause until the next pass, or 0 if the next pass follows an event.
func (operator *Operator) Pass(ctx context.Context, kind string, name types.NamespacedName) (time.Duration, error) {
	subject, err := operator.read(ctx, kind, name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil || subject.object.GetDeletionTimestamp() != nil {
		// Kubernetes deletes the objects that it owns.
		return 0, err
	}
	preview := operator.previewState(subject)
	if isOver, err := operator.expire(ctx, subject, preview); isOver || err != nil {
		return 0, err
	}
	input := reconcile.Input{Owner: subject.owner(), Inventory: subject.status.Inventory, Preview: preview}
	if input.Blocked, err = operator.blocked(ctx, subject); err != nil {
		return 0, err
	}
	var mounted map[string]string
	if input.Blocked == nil {
		if mounted, input.Blocked, err = operator.mountedSecret(ctx, subject); err != nil {
			return 0, err
		}
	}
	var found decrypted
	if input.Blocked == nil {
		if found, err = operator.settings(ctx, subject); err != nil {
			return 0, err
		}
		input.SettingsProblem, found.values.Mounted = found.problem, mounted
	}
	var revision string
	if input.Blocked == nil && input.SettingsProblem == "" {
		if input.Desired, revision, input.Blocked, err = operator.desired(ctx, subject, found); err != nil {
			return 0, err
		}
	}
	live, err := operator.liveObjects(ctx, subject, input.Desired)
	if err != nil {
		return 0, err
	}
	input.Live = slices.Collect(maps.Values(live))
	owners := podOwnersOf(live, subject.object.GetUID())
	var pods []corev1.Pod
	if pods, input.UnlabeledPods, err = operator.pods(ctx, subject, owners); err != nil {
		return 0, err
	}
	if pods, err = operator.podsAtEnd(ctx, subject, live, pods); err != nil {
		return 0, err
	}
	mayStrand, err := operator.giveUpStranded(ctx, subject, pods)
	if err != nil {
		return 0, err
	}
	input.Pods = podStates(pods, operator.now())
	var dunlin *v1alpha1.DunlinStatus
	input.Nodes, dunlin = operator.nodesInput(ctx, subject, pods, live)
	if input.LocalVolumes, err = operator.localVolumes(ctx, pods); err != nil {
		return 0, err
	}
	input.LocalVolumes = subject.present(input.LocalVolumes)
	backup := operator.backupStatus(subject, input, backupPods(pods), owners, render.RepositoryOf(subject.backup, found.values.Repository))
	input.RestoreUnfinished = backup != nil && backup.Operation.IsEnded() && (backup.RestoreUnfinished || loadUnfinished(subject.backup, backup))
	if input.Backup = backupState(subject, backup, live, operator.now()); input.Backup != nil {
		input.Backup.Waiting, input.Backup.DefaultImage = waitingBackup(pods), operator.Cluster.DefaultBackupImage()
	}
	return operator.perform(ctx, subject, input, live, outcome{revision, found.from, backup, dunlin, mayStrand})
}

// desired renders a subject, or returns why its objects must not be written.
func (operator *Operator) desired(ctx context.Context, subject *subject, found decrypted) ([]reconcile.Manifest, string, *reconcile.Block, error) {
	desired, revision, err := subject.desired(found.values, found.files, operator.Cluster)
	var large *render.RevisionTooLargeError
	if errors.As(err, &large) {
		return nil, "", &reconcile.Block{Reason: reconcile.ReasonSpecInvalid, Message: subject.whyTooLarge(large)}, nil
	}
	if err != nil {
		return nil, "", nil, err
	}
	block, err := operator.refusedImage(ctx, subject, desired)
	if block != nil || err != nil {
		return nil, "", block, err
	}
	return desired, revision, nil, nil
}

// outcome contains the parts of the status other than the conditions.
type outcome struct {
	revision, files string
	backup          *v1alpha1.BackupStatus
	dunlin          *v1alpha1.DunlinStatus
	// mayStrand is true if a pod waits for a node that is not ready.
	mayStrand bool
}

// perform makes the decided writes, and then writes the status.
func (operator *Operator) perform(ctx context.Context, subject *subject, input reconcile.Input, live map[objectName]reconcile.Manifest, outcome outcome) (time.Duration, error) {
	result := reconcile.Decide(input)
	if len(result.TakenBy) > 0 {
		input.Ends = operator.endsOf(ctx, subject.object.GetNamespace(), result.TakenBy)
		result = reconcile.Decide(input)
	}
	var failure error
	performed := 0
	for _, write := range result.Writes {
		if failure = operator.write(ctx, subject, write, live); failure != nil {
			break
		}
		performed++
	}
	operator.record(subject, reconcile.WriteEvents(*subject.status, outcome.revision, input.Live, result.Writes[:performed]))
	if failure == nil {
		operator.record(subject, result.Notes)
	}
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
	return pauseAfter(result, input, subject, outcome.mayStrand), failure
}

// pauseAfter returns the shortest pause until a change that causes no event, or 0.
func pauseAfter(result reconcile.Result, input reconcile.Input, subject *subject, mayStrand bool) time.Duration {
	var pauses []int64
	waitsFor := []string{
		reconcile.ReasonNameTaken, reconcile.ReasonHostTaken, reconcile.ReasonSettingsUnreadable, reconcile.ReasonWaitingForDeletion,
		reconcile.ReasonSecretRefused, reconcile.ReasonImageRefused,
	}
	for _, condition := range result.Conditions {
		if slices.Contains(waitsFor, condition.Reason) {
			pauses = append(pauses, againSeconds)
		}
	}
	if len(result.Writes) > 0 {
		// The watch of a written object has an event, unless a cache is filled again after the object was written and deleted.
		pauses = append(pauses, againSeconds)
	}
	if len(input.LocalVolumes) > 0 || mayStrand {
		// Nodes are not watched.
		pauses = append(pauses, againSeconds)
	}
	if backup := input.Backup; backup != nil && backup.ExpiresSeconds() > 0 {
		pauses = append(pauses, backup.ExpiresSeconds())
	}
	if input.Preview != nil {
		pauses = append(pauses, input.Preview.NextSeconds())
	}
	for _, pod := range input.Pods {
		if late := pod.NotReady; late != nil && late.Seconds < reconcile.NotReadySeconds {
			pauses = append(pauses, reconcile.NotReadySeconds-late.Seconds)
		}
	}
	if input.Nodes != nil {
		pauses = append(pauses, nodesSeconds(result, subject))
	}
	if len(pauses) == 0 {
		return 0
	}
	return time.Duration(slices.Min(pauses)) * time.Second
}

// nodesSeconds returns the interval at which the nodes of a Dunlin are read. A change of their sessions causes no event.
func nodesSeconds(result reconcile.Result, subject *subject) int64 {
	dunlin, _ := subject.object.(*v1alpha1.Dunlin)
	switch {
	case result.IsPaced:
		return pacedSeconds
	case dunlin != nil && dunlin.Spec.Autoscaling != nil:
		return int64(figuresAge / time.Second)
	}
	return againSeconds
}

// Operator reconciles the Apps and Dunlins of namespaces.
type Operator struct {
	// Reader may be a cache. Live reads from the API server.
	Reader, Live client.Reader
	Writer       client.Client
	// Namespaces are the namespaces to reconcile.
	Namespaces []string
	// IdentityFile is the file with the age identities that decrypt settings, if Namespaces has one namespace. NAMESPACE.txt in its folder
	// comes first.
	IdentityFile string
	Cluster      render.Cluster
	Signatures   Signatures
	// Recorder receives events. Nil: no events.
	Recorder record.EventRecorder
	// Now returns the time. Nil: the system clock.
	Now func() time.Time
	// ServerNow returns the time of the API server. Nil: it is not asked.
	ServerNow func(ctx context.Context) (time.Time, error)

	// DialNode connects to the internal port of a node. Nil: a net.Dialer.
	DialNode func(ctx context.Context, network, address string) (net.Conn, error)

	// isIndexed is true if Reader can select objects by fieldApp, and Apps and Dunlins by fieldHosts.
	isIndexed bool

	recent  recentWrites
	answers answers
}

func (operator *Operator) now() time.Time {
	if operator.Now != nil {
		return operator.Now()
	}
	return time.Now()
}
