// Package reconcile decides what to write so that the objects of a namespace match a spec. It is pure: it computes writes and conditions from
// the desired and the live objects. Package operator reads, writes and retries.
package reconcile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// FieldManager owns the fields that Roost applies. Fields that others set keep their owners.
const FieldManager = "roost"

// AnnotationApplied holds the hash of the last applied object. It shows that a field has to be removed, which the live object alone does not
// show.
const AnnotationApplied = v1alpha1.Group + "/applied"

// settingsKept is the number of earlier revisions whose settings are kept for a rollback.
const settingsKept = 5

// Manifest is an object as plain values.
type Manifest = map[string]any

// Owner is the App or Dunlin.
type Owner struct {
	APIVersion, Kind, Namespace, Name, UID string
	Generation                             int64
	// Orphans is true if the rendered objects outlive the owner.
	Orphans bool
}

// Input is the input of Decide.
type Input struct {
	Owner Owner
	// Desired are the rendered objects of the spec, in the order in which they are written.
	Desired []Manifest
	// Live are the objects with the label of the app, and those whose names are in Desired or Inventory.
	Live []Manifest
	// Inventory is the inventory of the previous pass.
	Inventory []v1alpha1.ObjectRef
	// SettingsProblem is why the settings could not be decrypted. If it is set, nothing is written.
	SettingsProblem string
	// Blocked is why nothing may be written, whatever the settings are.
	Blocked *Block
	// Refusal is the error of the API server for a write that would fail again.
	Refusal string
	// Pods of the workload, for the end of their logs.
	Pods []PodState
	// UnlabeledPods are the labels of pods without render.LabelKind that no other subject has.
	UnlabeledPods []map[string]string
	// Nodes of a Dunlin. Nil for an App.
	Nodes *NodesInput
	// LocalVolumes are those of pods that do not run.
	LocalVolumes []LocalVolume
	// Backup is nil if the spec has no backup.
	Backup *BackupState
	// RestoreUnfinished is true if the pods are stopped because a restore was interrupted, or if they may have only a part of a dump.
	RestoreUnfinished bool
	// Preview is nil if the App is none.
	Preview *PreviewState
	// Ends are the times at which other previews are deleted, by their names: those of Result.TakenBy.
	Ends map[string]string
}

// Block is a reason why a spec is not applied.
type Block struct {
	// Reason is ReasonSpecInvalid, ReasonExpiresTooFar, ReasonExpiresUnreadable, ReasonHostTaken, ReasonSecretRefused or ReasonImageRefused.
	Reason  string
	Message string
}

// WriteKind is the kind of a write.
type WriteKind string

// Kinds of writes.
const (
	// WriteApply is a server-side apply with FieldManager. It creates the object if it does not exist.
	WriteApply WriteKind = "apply"
	// WriteCreate creates an object that has no owner and is never changed afterwards.
	WriteCreate WriteKind = "create"
	// WriteKeepReplicas is a server-side apply with ReplicasManager.
	WriteKeepReplicas WriteKind = "keep replicas of"
	// WriteOwner is a merge patch that sets only the owner of an object, with the UID as its precondition.
	WriteOwner WriteKind = "set the owner of"
	// WriteDelete has the UID as its precondition, so it does not delete an object that was recreated.
	WriteDelete WriteKind = "delete"
)

// Write is one call of the API.
type Write struct {
	Kind   WriteKind
	Object Manifest
	UID    string
}

// Result is what to write now, and what to report.
type Result struct {
	Writes     []Write
	Conditions []Condition
	Inventory  []v1alpha1.ObjectRef
	// Processes of an App, if it has several.
	Processes []v1alpha1.ProcessStatus
	// Notes are events about the writes.
	Notes []Event
	// IsPaced is true if a rollout of nodes waits for a change that no watch reports.
	IsPaced bool
	// TakenBy are the names of Apps that have an object with a name that the spec needs.
	TakenBy []string
}

// Decide compares the desired objects with the live ones.
func Decide(input Input) Result {
	live := map[string]Manifest{}
	for _, object := range input.Live {
		live[keyOf(object)] = object
	}
	decision := &decision{input: input, live: live, wanted: map[string]Manifest{}}
	decision.input.Desired = decision.unlabeled().applyTo(input.Desired)
	if !decision.isStopped() {
		decision.applyAll()
	}
	if decision.isNameTaken() {
		decision.writes = nil
	}
	decision.bind()
	if !decision.isStopped() {
		decision.prune()
	}
	return Result{
		Writes: decision.writes, Conditions: decision.conditions(), Inventory: decision.inventory(),
		Processes: decision.processes(), Notes: decision.notes, IsPaced: decision.hold != "",
		TakenBy: decision.takenBy(),
	}
}

// decision is a Result under construction.
type decision struct {
	input Input
	live  map[string]Manifest
	// wanted are the desired objects.
	wanted map[string]Manifest
	writes []Write
	// taken are foreign objects with a name that the spec needs.
	taken []string
	// leaving are objects of an earlier owner of the same name, which Kubernetes is about to delete.
	leaving []string
	// migration is the state of the desired revision's migration.
	migration jobState
	// migrationJob is the name of its Job.
	migrationJob string
	// hold is what a rollout of nodes waits for, and notes are events about it.
	hold  string
	notes []Event
}

// isStopped reports whether the live objects stay as they are.
func (decision *decision) isStopped() bool {
	return decision.input.SettingsProblem != "" || decision.input.Blocked != nil || decision.isNameTaken()
}

// isNameTaken reports whether a foreign object has a name that the spec needs. Then nothing is written: a part of the objects would be worse than
// none. For example, the pods of a Dunlin would get the requests of an App with the same name. A taken claim prevents only the restore into it.
func (decision *decision) isNameTaken() bool {
	return slices.ContainsFunc(decision.taken, func(key string) bool { return !isClaim(key) })
}

func isClaim(kindAndName string) bool {
	return strings.HasPrefix(kindAndName, "PersistentVolumeClaim/")
}

func (decision *decision) applyAll() {
	isHeld := false
	for _, object := range decision.input.Desired {
		key := keyOf(object)
		decision.wanted[key] = object
		if isWorkload(object) && isHeld {
			continue
		}
		decision.apply(key, object)
		if annotation(object, render.AnnotationPhase) == render.PhaseBeforeRollout {
			decision.migration, decision.migrationJob = jobStateOf(decision.live[key]), metadataText(object, "name")
			isHeld = decision.migration != jobSucceeded
		}
	}
}

func (decision *decision) apply(key string, object Manifest) {
	if isRevision(object) {
		object = decision.numbered(key, object)
	}
	if object["kind"] == "PersistentVolumeClaim" {
		decision.create(key, object)
		return
	}
	if decision.needsTakenClaim(object) {
		return
	}
	current, isThere := decision.live[key]
	object = decision.paced(markAutoscaled(object), current)
	stamped := stamp(object, decision.input.Owner)
	switch {
	case !isThere:
	case decision.belongsToEarlierOwner(current):
		decision.leaving = append(decision.leaving, key)
		return
	case !decision.isOwn(current) && !decision.isRegained(current) && !decision.isLeft(current):
		decision.taken = append(decision.taken, key)
		return
	case annotation(object, render.AnnotationOnce) != "":
		return
	case annotation(current, AnnotationApplied) == annotation(stamped, AnnotationApplied) && covers(current, stamped):
		return
	default:
		decision.keepReplicas(current, stamped)
	}
	decision.writes = append(decision.writes, Write{Kind: WriteApply, Object: stamped})
}

// create creates a claim. The claim has no owner, because data is not deleted with an App. A claim that was created for another App is not
// touched.
func (decision *decision) create(key string, object Manifest) {
	current, isThere := decision.live[key]
	switch {
	case !isThere:
		made := clone(object)
		made["metadata"].(map[string]any)["annotations"] = map[string]any{render.AnnotationOnce: "true", render.AnnotationAppUID: decision.input.Owner.UID}
		decision.writes = append(decision.writes, Write{Kind: WriteCreate, Object: made})
	case annotation(current, render.AnnotationAppUID) != decision.input.Owner.UID:
		decision.taken = append(decision.taken, key)
	}
}

// needsTakenClaim reports whether an object is a restore into a claim that is not the app's.
func (decision *decision) needsTakenClaim(object Manifest) bool {
	isRestore := object["kind"] == "Job" && label(object, render.LabelPart) == render.PartBackup
	return isRestore && slices.ContainsFunc(decision.taken, isClaim)
}

// prune deletes objects that are provably own and no longer wanted.
func (decision *decision) prune() {
	if len(decision.writes) > 0 || decision.isHeld() {
		// Write needed objects before pruning: pods of the old revision still use the old ones.
		return
	}
	var settings, revisions []string
	for _, key := range slices.Sorted(maps.Keys(decision.live)) {
		object := decision.live[key]
		if decision.wanted[key] != nil || !decision.isOwn(object) || !isPrunable(object) {
			continue
		}
		switch {
		case decision.isStillNeeded(object):
		case isSettings(object):
			settings = append(settings, key)
		case isRevision(object):
			revisions = append(revisions, key)
		default:
			decision.delete(object)
		}
	}
	decision.pruneRevisions(revisions)
	slices.SortFunc(settings, func(a, b string) int { return decision.olderFirst(a, b) })
	// A rollout may still need the settings of the previous revision.
	for len(settings) > settingsKept*2 && decision.isRolledOut() {
		decision.delete(decision.live[settings[0]])
		settings = settings[1:]
	}
}

// isStillNeeded reports whether the pods of a process that is no longer wanted serve until those of the desired ones are ready: it may be renamed. With
// update.recreate, no two versions may run.
func (decision *decision) isStillNeeded(object Manifest) bool {
	if label(object, render.LabelProcess) == "" || decision.isRolledOut() {
		return false
	}
	isRecreate := func(workload Manifest) bool {
		spec, _ := workload["spec"].(map[string]any)
		strategy, _ := spec["strategy"].(map[string]any)
		return strategy["type"] == "Recreate"
	}
	return !slices.ContainsFunc(decision.workloads(), isRecreate)
}

// isHeld reports whether the desired revision is not the running one.
func (decision *decision) isHeld() bool {
	return decision.migration == jobRunning || decision.migration == jobFailed || len(decision.leaving) > 0
}

func (decision *decision) delete(object Manifest) {
	decision.writes = append(decision.writes, Write{Kind: WriteDelete, Object: object, UID: metadataText(object, "uid")})
}

func (decision *decision) olderFirst(a, b string) int {
	ageOf := func(key string) string { return metadataText(decision.live[key], "creationTimestamp") }
	if order := strings.Compare(ageOf(a), ageOf(b)); order != 0 {
		return order
	}
	return strings.Compare(a, b)
}

// inventory returns the live objects that are own.
func (decision *decision) inventory() []v1alpha1.ObjectRef {
	var found []v1alpha1.ObjectRef
	for _, key := range slices.Sorted(maps.Keys(decision.live)) {
		object := decision.live[key]
		if decision.isOwn(object) || decision.wanted[key] != nil && decision.isRegained(object) {
			version, _ := object["apiVersion"].(string)
			kind, _ := object["kind"].(string)
			found = append(found, v1alpha1.ObjectRef{
				APIVersion: version, Kind: kind, Name: metadataText(object, "name"), UID: metadataText(object, "uid"),
			})
		}
	}
	return found
}

// stamp adds the owner of the object and the hash of the applied object.
func stamp(object Manifest, owner Owner) Manifest {
	stamped := clone(object)
	metadata := stamped["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	if owner.Orphans {
		annotations[AnnotationOwner] = owner.mark()
	} else {
		metadata["ownerReferences"] = []any{owner.reference()}
	}
	annotations[AnnotationApplied] = hashOf(stamped)
	return stamped
}

func hashOf(object Manifest) string {
	// Plain values of JSON always encode, with sorted keys.
	text, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("a manifest does not encode: %v", err))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16]
}

func clone(value Manifest) Manifest { return cloned(value).(Manifest) }

func cloned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for name, field := range value {
			copied[name] = cloned(field)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for index, element := range value {
			copied[index] = cloned(element)
		}
		return copied
	}
	return value
}
