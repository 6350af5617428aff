package operator

import (
	"maps"
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// deletedVersion stands for the version of an object that was deleted.
	deletedVersion = math.MaxUint64
	// unknownVersion stands for the version of a status whose write, or the response to it, may have been lost.
	unknownVersion = math.MaxUint64
)

// subjectName names an App or a Dunlin.
type subjectName struct {
	kind string
	name types.NamespacedName
}

// recentWrites holds the versions of written objects that the cache may not have yet, by App or Dunlin. A pass removes the versions that the
// cache has. The first pass after the deletion of an App or a Dunlin removes all of its versions, so their number is bounded by the objects.
type recentWrites struct {
	mutex     sync.Mutex
	bySubject map[subjectName]map[objectName]uint64
	// statuses holds the versions of Apps and Dunlins whose status was written.
	statuses map[subjectName]uint64
}

func (recent *recentWrites) of(subject subjectName) map[objectName]uint64 {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	return maps.Clone(recent.bySubject[subject])
}

func (recent *recentWrites) add(subject subjectName, name objectName, version uint64) {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	if recent.bySubject == nil {
		recent.bySubject = map[subjectName]map[objectName]uint64{}
	}
	if recent.bySubject[subject] == nil {
		recent.bySubject[subject] = map[objectName]uint64{}
	}
	recent.bySubject[subject][name] = version
}

func (recent *recentWrites) forget(subject subjectName, name objectName) {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	delete(recent.bySubject[subject], name)
	if len(recent.bySubject[subject]) == 0 {
		delete(recent.bySubject, subject)
	}
}

func (recent *recentWrites) addStatus(subject subjectName, version uint64) {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	if recent.statuses == nil {
		recent.statuses = map[subjectName]uint64{}
	}
	recent.statuses[subject] = version
}

// forgetStatusAt reports whether a version of an App or a Dunlin includes the last write of its status, and forgets that write if so.
func (recent *recentWrites) forgetStatusAt(subject subjectName, version uint64) bool {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	if written, isThere := recent.statuses[subject]; isThere && version < written {
		return false
	}
	delete(recent.statuses, subject)
	return true
}

// forgetSubject removes the versions of a deleted App or Dunlin.
func (recent *recentWrites) forgetSubject(subject subjectName) {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	delete(recent.bySubject, subject)
	delete(recent.statuses, subject)
}
