package operator

import (
	"maps"
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// deletedVersion stands for the version of an object that was deleted.
const deletedVersion = math.MaxUint64

// recentWrites are the versions of objects that were written and that the cache may not have yet, by owner. A pass forgets
// what the cache has, so there are at most as many as objects.
type recentWrites struct {
	mutex   sync.Mutex
	byOwner map[types.UID]map[objectName]uint64
}

func (recent *recentWrites) of(owner types.UID) map[objectName]uint64 {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	return maps.Clone(recent.byOwner[owner])
}

func (recent *recentWrites) add(owner types.UID, name objectName, version uint64) {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	if recent.byOwner == nil {
		recent.byOwner = map[types.UID]map[objectName]uint64{}
	}
	if recent.byOwner[owner] == nil {
		recent.byOwner[owner] = map[objectName]uint64{}
	}
	recent.byOwner[owner][name] = version
}

func (recent *recentWrites) forget(owner types.UID, name objectName) {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	delete(recent.byOwner[owner], name)
	if len(recent.byOwner[owner]) == 0 {
		delete(recent.byOwner, owner)
	}
}
