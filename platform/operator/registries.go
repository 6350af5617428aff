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
	// registrySeconds is the timeout of all calls to a registry for one image.
	registrySeconds = 20
	// silentSeconds is how long the operator does not call a registry that did not respond. Passes share a few workers, so a registry that is down
	// would block all of them.
	silentSeconds = 60
)

// silentRegistries contains the registries that did not respond.
type silentRegistries struct {
	guard sync.Mutex
	hosts map[string]silence
}

// silence is why a registry did not respond, and the time of the next call.
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

// attachedSignature reads the signature of an image. It fails at once if the registry did not respond to a recent call.
func (operator *Operator) attachedSignature(ctx context.Context, pinned image.Pinned, credentials registry.Credentials) (*image.Layout, error) {
	signatures := &operator.Signatures
	host, _, _ := strings.Cut(pinned.Repository, "/")
	if last := signatures.silent.of(host); operator.now().Before(last.until) {
		return nil, fmt.Errorf("the registry %s does not answer; the operator retries after %s: %w", host, last.until.UTC().Format(time.RFC3339), last.cause)
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
