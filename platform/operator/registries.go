package operator

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/dunlin-project/dunlin/platform/image"
	"github.com/dunlin-project/dunlin/platform/registry"
)

const (
	// registrySeconds bounds all calls of a registry for one image.
	registrySeconds = 5
	// silentSeconds is how long a registry that has not answered is not called again. Passes share a few workers, so a registry that is down
	// would stop those of all Apps.
	silentSeconds = 60
)

// silentRegistries are those that have not answered, with the time of the next call.
type silentRegistries struct {
	guard sync.Mutex
	until map[string]time.Time
}

func (silent *silentRegistries) nextCall(host string) time.Time {
	silent.guard.Lock()
	defer silent.guard.Unlock()
	return silent.until[host]
}

func (silent *silentRegistries) set(host string, until time.Time) {
	silent.guard.Lock()
	defer silent.guard.Unlock()
	if silent.until == nil {
		silent.until = map[string]time.Time{}
	}
	silent.until[host] = until
}

// attachedSignature reads the signature of an image, unless its registry was silent a moment ago.
func (operator *Operator) attachedSignature(ctx context.Context, pinned image.Pinned, credentials registry.Credentials) (*image.Layout, error) {
	signatures := &operator.Signatures
	host, _, _ := strings.Cut(pinned.Repository, "/")
	if next := signatures.silent.nextCall(host); operator.now().Before(next) {
		return nil, fmt.Errorf("the registry %s does not answer; it is asked again after %s", host, next.UTC().Format(time.RFC3339))
	}
	limit := signatures.Timeout
	if limit == 0 {
		limit = registrySeconds * time.Second
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	layout, err := signatures.Registry.Attachment(bounded, pinned, "sig", credentials)
	var failed *url.Error
	if errors.As(err, &failed) && ctx.Err() == nil {
		signatures.silent.set(host, operator.now().Add(silentSeconds*time.Second))
	}
	return layout, err
}
