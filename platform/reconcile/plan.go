// Package reconcile decides what to write so that a namespace has what a spec renders to. It is pure: from what is desired
// and what is live to writes and conditions. Package operator reads, writes and repeats.
package reconcile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// FieldManager owns what Roost applies. Fields that others set stay theirs.
const FieldManager = "roost"

// AnnotationApplied is the hash of what was applied last. It shows that a field is to be removed, which the object alone does not.
const AnnotationApplied = v1alpha1.Group + "/applied"

// settingsKept are the settings of earlier revisions that stay for a rollback.
const settingsKept = 5

// Manifest is an object as plain values.
type Manifest = map[string]any

// Owner is the App or Dunlin.
type Owner struct {
	APIVersion, Kind, Namespace, Name, UID string
	Generation                             int64
	// Orphans is whether what is rendered outlives the owner.
	Orphans bool
}

// Input is what a decision depends on.
type Input struct {
	Owner Owner
	// Desired is what the spec renders to, in the order in which it is written.
	Desired []Manifest
	// Live are the objects with the label of the app, and those that have a name of Desired or of Inventory.
	Live []Manifest
	// Inventory is that of the earlier pass.
	Inventory []v1alpha1.ObjectRef
	// SettingsProblem is why the settings could not be decrypted. Nothing is written then.
	SettingsProblem string
	// Blocked is why nothing may be written, whatever the settings.
	Blocked *Block
	// Refusal is what the API server answered to a write that it will not take the next time either.
	Refusal string
	// Pods of the workload, for their last words.
	Pods []PodState
	// Nodes of a Dunlin. Nil for an App.
	Nodes *NodesInput
	// LocalVolumes are those of pods that do not run.
	LocalVolumes []LocalVolume
	// Backup is there if the spec has one.
	Backup *BackupState
	// RestoreUnfinished is whether the pods are stopped because a restore was interrupted, or may have only a part of a dump.
	RestoreUnfinished bool
}

// Block is a reason why a spec is not applied.
type Block struct {
	// Reason is ReasonSpecInvalid, ReasonHostTaken, ReasonSecretRefused or ReasonImageRefused.
	Reason  string
	Message string
}

// WriteKind is what is done to an object.
type WriteKind string

// Kinds of writes.
const (
	// WriteApply is a server-side apply with FieldManager. If the object is not there yet, it is made.
	WriteApply WriteKind = "apply"
	// WriteCreate makes an object that is never changed afterwards, and has no owner.
	WriteCreate WriteKind = "create"
	// WriteKeepReplicas is a server-side apply with ReplicasManager.
	WriteKeepReplicas WriteKind = "keep replicas of"
	// WriteOwner is a merge patch of who owns an object, and of nothing else, with the UID as its precondition.
	WriteOwner WriteKind = "set the owner of"
	// WriteDelete has the UID as its precondition, so that an object made since is not deleted.
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
	// Notes are events about the writes.
	Notes []Event
	// IsPaced is whether a rollout of nodes waits for something that nobody announces.
	IsPaced bool
}

// Decide compares what is desired with what is live.
func Decide(input Input) Result {
	live := map[string]Manifest{}
	for _, object := range input.Live {
		live[keyOf(object)] = object
	}
	decision := &decision{input: input, live: live, wanted: map[string]Manifest{}}
	if !decision.isStopped() {
		decision.applyAll()
	}
	decision.bind()
	if !decision.isStopped() {
		decision.prune()
	}
	return Result{
		Writes: decision.writes, Conditions: decision.conditions(), Inventory: decision.inventory(),
		Notes: decision.notes, IsPaced: decision.hold != "",
	}
}

// decision is a Result while it is made.
type decision struct {
	input Input
	live  map[string]Manifest
	// wanted are the desired objects.
	wanted map[string]Manifest
	writes []Write
	// taken are objects of others under a name that is needed.
	taken []string
	// leaving are objects of an earlier owner of the same name, which Kubernetes is about to delete.
	leaving []string
	// migration is that of the desired revision.
	migration jobState
	// migrationJob is its name.
	migrationJob string
	// hold is what a rollout of nodes waits for, and notes are events about it.
	hold  string
	notes []Event
}

// isStopped is whether what is live stays as it is.
func (decision *decision) isStopped() bool {
	return decision.input.SettingsProblem != "" || decision.input.Blocked != nil
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

// create makes a claim. It has no owner, because data is not deleted with an App. One that was made for another App is not touched.
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

// needsTakenClaim is whether an object is a restore into a claim that is not the app's.
func (decision *decision) needsTakenClaim(object Manifest) bool {
	isRestore := object["kind"] == "Job" && label(object, render.LabelPart) == render.PartBackup
	return isRestore && slices.ContainsFunc(decision.taken, func(taken string) bool { return strings.HasPrefix(taken, "PersistentVolumeClaim/") })
}

// prune deletes what is provably own and not wanted any more.
func (decision *decision) prune() {
	if len(decision.writes) > 0 || decision.isHeld() {
		// First what is needed, then what is not: pods of the old revision go on to use it.
		return
	}
	var settings, revisions []string
	for _, key := range slices.Sorted(maps.Keys(decision.live)) {
		object := decision.live[key]
		if decision.wanted[key] != nil || !decision.isOwn(object) || !isPrunable(object) {
			continue
		}
		switch {
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
	// A rollout may still need those of the revision before.
	for len(settings) > settingsKept*2 && decision.isRolledOut() {
		decision.delete(decision.live[settings[0]])
		settings = settings[1:]
	}
}

// isHeld is whether the desired revision is not the one that runs.
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

// inventory has what is own and live.
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

// stamp adds who owns the object and the hash of what is applied.
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

// covers is whether the live value has every field that is desired. Fields that are not desired belong to others.
func covers(live, desired any) bool {
	switch desired := desired.(type) {
	case map[string]any:
		table, isTable := live.(map[string]any)
		if !isTable {
			return len(desired) == 0
		}
		for name, value := range desired {
			if !covers(table[name], value) {
				return false
			}
		}
		return true
	case []any:
		list, isList := live.([]any)
		if !isList || len(list) != len(desired) {
			return len(desired) == 0 && len(list) == 0
		}
		for index := range desired {
			if !covers(list[index], desired[index]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(live, desired)
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
