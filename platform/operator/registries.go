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
	registrySeconds = 20
	// silentSeconds is how long a registry that has not answered is not called again. Passes share a few workers, so a registry that is down
	// would stop those of all Apps.
	silentSeconds = 60
)

// silentRegistries are those that have not answered, with the time of the next call.
type silentRegistries struct {
	guard sync.Mutex
	hosts map[string]silence
}

// silence is why a registry has not answered, and when it is called again.
type silence struct {
	until time.Time
	cause error
}

func (silent *silentRegistries) of(host string) silence {
	silent.guard.Lock()
	defer silent.guard.Unlock()
	return silent.hosts[host]
}

func (silent *silentRegistries) set(host string, now silence) {
	silent.guard.Lock()
	defer silent.guard.Unlock()
	if silent.hosts == nil {
		silent.hosts = map[string]silence{}
	}
	silent.hosts[host] = now
}

// attachedSignature reads the signature of an image, unless its registry was silent a moment ago.
func (operator *Operator) attachedSignature(ctx context.Context, pinned image.Pinned, credentials registry.Credentials) (*image.Layout, error) {
	signatures := &operator.Signatures
	host, _, _ := strings.Cut(pinned.Repository, "/")
	if last := signatures.silent.of(host); operator.now().Before(last.until) {
		return nil, fmt.Errorf("the registry %s does not answer; it is asked again after %s: %w", host, last.until.UTC().Format(time.RFC3339), last.cause)
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
		signatures.silent.set(host, silence{until: operator.now().Add(silentSeconds * time.Second), cause: err})
	}
	return layout, err
}
