package reconcile

import "slices"

// revisionsKept is the number of earlier revisions that are kept for a rollback.
const revisionsKept = 10

// isRevision reports whether the object records a spec and its encrypted files.
func isRevision(object Manifest) bool { return object["kind"] == "ControllerRevision" }

// numbered sets the number of a revision. A new revision, or one that is rolled back to, gets the highest number. The recorded data never
// changes, because the API server refuses to change it. Files that were encrypted again have the same content.
func (decision *decision) numbered(key string, object Manifest) Manifest {
	newest := int64(0)
	for _, live := range decision.live {
		if isRevision(live) && (decision.isOwn(live) || decision.isLeft(live)) {
			newest = max(newest, revisionNumber(live))
		}
	}
	numbered := clone(object)
	current, isThere := decision.live[key]
	if !isThere || revisionNumber(current) != newest {
		newest++
	}
	numbered["revision"] = newest
	if isThere {
		numbered["data"] = cloned(current["data"])
	}
	return numbered
}

func revisionNumber(object Manifest) int64 {
	switch value := object["revision"].(type) {
	case int64:
		return value
	case float64:
		return int64(value)
	}
	return 0
}

// pruneRevisions keeps the newest revisions and deletes the others.
func (decision *decision) pruneRevisions(keys []string) {
	slices.SortFunc(keys, func(a, b string) int {
		return int(revisionNumber(decision.live[b]) - revisionNumber(decision.live[a]))
	})
	for _, key := range keys[min(revisionsKept, len(keys)):] {
		decision.delete(decision.live[key])
	}
}
