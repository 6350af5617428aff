package reconcile

import "slices"

// revisionsKept are the earlier revisions that a rollback can go to.
const revisionsKept = 10

// isRevision is whether the object records a spec and its encrypted files.
func isRevision(object Manifest) bool { return object["kind"] == "ControllerRevision" }

// numbered gives a revision its number: a new one, or one that comes back, is the newest. What a revision recorded first
// stays, because the API server refuses to change it. Files that were encrypted anew have the same content.
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

// pruneRevisions keeps the newest ones.
func (decision *decision) pruneRevisions(keys []string) {
	slices.SortFunc(keys, func(a, b string) int {
		return int(revisionNumber(decision.live[b]) - revisionNumber(decision.live[a]))
	})
	for _, key := range keys[min(revisionsKept, len(keys)):] {
		decision.delete(decision.live[key])
	}
}
