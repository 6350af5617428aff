package reconcile

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// memoryAPI stores the objects of a namespace like an API server, and simulates the relevant controllers: finished Jobs, rolled out Deployments,
// volumes of StatefulSets, and garbage collection.
type memoryAPI struct {
	objects map[string]Manifest
	// applied holds the fields that Roost has applied, for each object.
	applied map[string]Manifest
	uids    int
	writes  int
	// failAt is the number of the write that fails, or 0.
	failAt int
}

var errAPI = errors.New("the API server does not answer")

func newMemoryAPI() *memoryAPI {
	return &memoryAPI{objects: map[string]Manifest{}, applied: map[string]Manifest{}}
}

func (api *memoryAPI) newUID() string {
	api.uids++
	return fmt.Sprintf("uid-%06d", api.uids)
}

func (api *memoryAPI) put(object Manifest) {
	fresh := clone(object)
	metadata := fresh["metadata"].(map[string]any)
	uid := api.newUID()
	metadata["uid"], metadata["creationTimestamp"] = uid, uid
	api.objects[keyOf(fresh)] = fresh
}

func (api *memoryAPI) write(write Write) error {
	api.writes++
	if api.writes == api.failAt {
		return errAPI
	}
	key := keyOf(write.Object)
	if write.Kind == WriteDelete {
		if current, isThere := api.objects[key]; isThere && metadataText(current, "uid") == write.UID {
			api.remove(key)
		}
		return nil
	}
	if write.Kind == WriteOwner {
		if current, isThere := api.objects[key]; isThere && metadataText(current, "uid") == write.UID {
			mergeFields(current, write.Object)
		}
		return nil
	}
	if write.Kind == WriteKeepReplicas {
		api.keepReplicas(key, write.Object)
		return nil
	}
	if _, isThere := api.objects[key]; !isThere {
		api.put(write.Object)
	} else {
		current := api.objects[key]
		removeFields(current, api.applied[key], write.Object)
		setFields(current, write.Object)
	}
	api.applied[key] = clone(write.Object)
	if write.Kind == WriteApply {
		api.objects[key]["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": FieldManager, "operation": "Apply"}}
	}
	return nil
}

// keepReplicas makes another manager the owner of the number of replicas.
func (api *memoryAPI) keepReplicas(key string, object Manifest) {
	setFields(api.objects[key], object)
	if spec, has := api.applied[key]["spec"].(map[string]any); has {
		delete(spec, "replicas")
	}
}

func (api *memoryAPI) remove(key string) {
	delete(api.objects, key)
	delete(api.applied, key)
}

// setFields is server-side apply without conflicts: applied fields are set, and fields of other managers stay.
func setFields(live, applied map[string]any) {
	for name, value := range applied {
		table, isTable := value.(map[string]any)
		current, wasTable := live[name].(map[string]any)
		if isTable && wasTable {
			setFields(current, table)
		} else {
			live[name] = cloned(value)
		}
	}
}

// mergeFields is a merge patch: a null removes a field.
func mergeFields(live, patch map[string]any) {
	for name, value := range patch {
		table, isTable := value.(map[string]any)
		current, wasTable := live[name].(map[string]any)
		switch {
		case value == nil:
			delete(live, name)
		case isTable && wasTable:
			mergeFields(current, table)
		default:
			live[name] = cloned(value)
		}
	}
}

// removeFields removes fields that were applied before and are no longer applied.
func removeFields(live, before, now map[string]any) {
	for name, value := range before {
		next, stays := now[name]
		table, isTable := value.(map[string]any)
		nextTable, _ := next.(map[string]any)
		current, isLiveTable := live[name].(map[string]any)
		switch {
		case !stays:
			delete(live, name)
		case isTable && isLiveTable:
			removeFields(current, table, nextTable)
		}
	}
}

// settle does the work of the controllers of Kubernetes. Migrations fail if their command says so.
func (api *memoryAPI) settle(owner Owner) {
	for _, key := range slices.Sorted(maps.Keys(api.objects)) {
		object := api.objects[key]
		if controller := controllerOf(object); controller != nil && controller["uid"] != owner.UID {
			api.remove(key)
			continue
		}
		switch object["kind"] {
		case "Job":
			kind := "Complete"
			if strings.Contains(fmt.Sprint(object["spec"]), "must-fail") {
				kind = "Failed"
			}
			object["status"] = map[string]any{"conditions": []any{map[string]any{"type": kind, "status": "True"}}}
		case "Deployment", "StatefulSet":
			replicas := number(object, "spec", "replicas")
			object["status"] = map[string]any{"updatedReplicas": replicas, "readyReplicas": replicas}
			spec := object["spec"].(map[string]any)
			if claims, has := spec["volumeClaimTemplates"].([]any); has && len(claims) > 0 {
				api.claim(metadataText(claims[0].(Manifest), "name") + "-" + metadataText(object, "name") + "-0")
			}
		}
	}
}

// claim returns a claim as the controller of StatefulSets creates it: with labels, without an owner.
func (api *memoryAPI) claim(name string) {
	if _, isThere := api.objects["PersistentVolumeClaim/"+name]; !isThere {
		api.put(Manifest{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{
			"name": name, "namespace": "web", "labels": map[string]any{render.LabelApp: "shop", render.LabelPart: "main"},
		}})
	}
}

// list returns the objects that the operator reads: objects with the label, and those with a needed or recorded name.
func (api *memoryAPI) list(desired []Manifest, inventory ...v1alpha1.ObjectRef) []Manifest {
	needed := map[string]bool{}
	for _, recorded := range inventory {
		needed[recorded.Kind+"/"+recorded.Name] = true
	}
	for _, object := range desired {
		needed[keyOf(object)] = true
	}
	var found []Manifest
	for key, object := range api.objects {
		isCached := label(object, render.LabelApp) == "shop" && label(object, render.LabelManagedBy) == render.ManagedBy
		if !isCached && !needed[key] {
			continue
		}
		read := clone(object)
		if isCached {
			// Objects in the operator's cache have no managed fields.
			delete(read["metadata"].(map[string]any), "managedFields")
		}
		found = append(found, read)
	}
	return found
}

// snapshot returns the state without UIDs.
func (api *memoryAPI) snapshot() map[string]string {
	state := map[string]string{}
	for key, object := range api.objects {
		plain := clone(object)
		metadata := plain["metadata"].(map[string]any)
		delete(metadata, "uid")
		delete(metadata, "creationTimestamp")
		delete(metadata, "managedFields")
		delete(metadata, "ownerReferences")
		if annotations, has := metadata["annotations"].(map[string]any); has {
			delete(annotations, AnnotationApplied)
			delete(annotations, AnnotationOwner)
		}
		if annotation(object, AnnotationReplicas) != "" {
			// The number of replicas depends on the state before the autoscaler.
			delete(plain["spec"].(map[string]any), "replicas")
		}
		delete(plain, "status")
		state[key] = fmt.Sprint(plain)
	}
	return state
}

// world is an App or a Dunlin, its namespace and an operator that may crash.
type world struct {
	api   *memoryAPI
	owner Owner
	app   *v1alpha1.App
	// dunlin is set instead of the app.
	dunlin *v1alpha1.Dunlin
	values settings.Settings
	// inventory is that of the status.
	inventory []v1alpha1.ObjectRef
	// rendered is cached until change is called. Rendering takes most of the time of a sequence.
	rendered []Manifest
}

// change must be called before the spec or the settings are changed.
func (world *world) change() { world.rendered = nil }

func (world *world) desired() []Manifest {
	if world.rendered != nil {
		return world.rendered
	}
	objects, err := world.render()
	if err != nil {
		panic(err)
	}
	var manifests []Manifest
	for _, object := range objects {
		manifest, err := render.Manifest(object)
		if err != nil {
			panic(err)
		}
		manifests = append(manifests, manifest)
	}
	world.rendered = manifests
	return manifests
}

func (world *world) render() ([]runtime.Object, error) {
	if world.dunlin != nil {
		return render.Dunlin(world.dunlin, world.values, render.Cluster{})
	}
	return render.App(world.app, world.values, render.Cluster{})
}

func (world *world) deletionPolicy() string {
	if world.dunlin != nil {
		return world.dunlin.Spec.DeletionPolicy
	}
	return world.app.Spec.DeletionPolicy
}

// pass reads, decides and writes once. The operator crashes after `writesMax` writes.
func (world *world) pass(writesMax int) (Result, error) {
	world.owner.Orphans = world.deletionPolicy() == v1alpha1.DeletionPolicyOrphan
	desired := world.desired()
	result := Decide(Input{Owner: world.owner, Desired: desired, Live: world.api.list(desired, world.inventory...), Inventory: world.inventory})
	for index, write := range result.Writes {
		if index == writesMax {
			return result, nil
		}
		if err := world.api.write(write); err != nil {
			return result, err
		}
	}
	// The status is written last.
	world.inventory = result.Inventory
	return result, nil
}

const passesMax = 12

// converge repeats passes until one writes nothing.
func (world *world) converge() (Result, error) {
	for range passesMax {
		result, err := world.pass(1 << 20)
		world.api.settle(world.owner)
		if err == nil && len(result.Writes) == 0 && len(world.leaving(result)) == 0 {
			// Repeat the pass after the controllers have acted.
			if result, err = world.pass(1 << 20); err == nil && len(result.Writes) == 0 {
				return result, nil
			}
		}
	}
	return Result{}, fmt.Errorf("no end after %d passes", passesMax)
}

func (world *world) leaving(result Result) string {
	for _, condition := range result.Conditions {
		if condition.Reason == ReasonWaitingForDeletion {
			return condition.Message
		}
	}
	return ""
}
