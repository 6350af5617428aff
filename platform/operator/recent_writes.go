package operator

import (
	"maps"
	"math"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
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

// recentWrites holds the versions of written objects that the cache may not have yet, by App or Dunlin. A pass removes the versions of objects that
// the cache has. The first pass after the deletion of an App or a Dunlin removes all of its versions, so their number is bounded by the objects.
type recentWrites struct {
	mutex     sync.Mutex
	bySubject map[subjectName]map[objectName]uint64
	// statuses holds the newest versions of Apps and Dunlins whose status a pass has read or written.
	statuses map[subjectName]uint64
	// sent holds the statuses whose writes are not answered yet.
	sent map[subjectName]v1alpha1.Status
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

// sendStatus is called before a status is written, and addStatus after it.
func (recent *recentWrites) sendStatus(subject subjectName, status v1alpha1.Status) {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	if recent.sent == nil {
		recent.sent = map[subjectName]v1alpha1.Status{}
	}
	recent.sent[subject] = status
}

func (recent *recentWrites) addStatus(subject subjectName, version uint64) {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	delete(recent.sent, subject)
	recent.setStatus(subject, version)
}

func (recent *recentWrites) setStatus(subject subjectName, version uint64) {
	if recent.statuses == nil {
		recent.statuses = map[subjectName]uint64{}
	}
	recent.statuses[subject] = version
}

// readStatusAt reports whether a version of an App or a Dunlin includes the last write of its status. If so, it notes that a pass has read this version.
func (recent *recentWrites) readStatusAt(subject subjectName, version uint64) bool {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	if version < recent.statuses[subject] {
		return false
	}
	recent.setStatus(subject, version)
	return true
}

// isStatusUnknown reports whether a version of an App or a Dunlin has a status that no pass has read or written.
func (recent *recentWrites) isStatusUnknown(subject subjectName, version uint64, status v1alpha1.Status) bool {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	if sent, isSent := recent.sent[subject]; isSent && equality.Semantic.DeepEqual(sent, status) {
		// A watch may be faster than the answer of the write.
		return false
	}
	known := recent.statuses[subject]
	return known == unknownVersion || version > known
}

// forgetSubject removes the versions of a deleted App or Dunlin.
func (recent *recentWrites) forgetSubject(subject subjectName) {
	recent.mutex.Lock()
	defer recent.mutex.Unlock()
	delete(recent.bySubject, subject)
	delete(recent.statuses, subject)
	delete(recent.sent, subject)
}
