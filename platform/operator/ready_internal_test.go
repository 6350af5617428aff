package operator

import (
	"context"
	"net/http"
	"testing"
)

// caches are filled when the channel is closed.
type caches chan struct{}

func (caches caches) WaitForCacheSync(ctx context.Context) bool {
	select {
	case <-caches:
		return true
	case <-ctx.Done():
		return false
	}
}

func TestAnOperatorIsReadyWhenItsCachesAreFilled(t *testing.T) {
	filling := make(caches)
	check, request := areSynced(filling), requestOf(t, t.Context(), http.MethodGet, "/readyz")
	if err := check(request); err == nil || err.Error() != "the caches are not filled yet" {
		t.Errorf("%v", err)
	}
	close(filling)
	if err := check(request); err != nil {
		t.Error(err)
	}
}
