package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"sync"
	"time"
)

// ingressAddress is that of Traefik in the machine's network.
const ingressAddress = "10.77.0.1:80"

func kubectl(arguments ...string) *exec.Cmd { return exec.Command("kubectl", arguments...) }

// served is what the app answers.
type served struct{ Pod, Version, Token, Level string }

// answer is empty if the ingress controller does not serve the app.
func (app *app) answer() served {
	found, _ := ask(app.t.Context(), app.host())
	return found
}

// requestSecondsMax is after what a client gives up.
const requestSecondsMax = 8

// ask uses a connection of its own.
func ask(ctx context.Context, host string) (served, error) {
	ctx, cancel := context.WithTimeout(ctx, requestSecondsMax*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ingressAddress+"/", nil)
	if err != nil {
		return served{}, err
	}
	request.Host, request.Close = host, true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return served{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return served{}, err
	}
	var found served
	if response.StatusCode != http.StatusOK {
		return found, fmt.Errorf("status %d", response.StatusCode)
	}
	return found, json.Unmarshal(text, &found)
}

// load sends requests at a rate, each with a connection of its own, until it is ended.
type load struct {
	stop     context.CancelFunc
	pending  sync.WaitGroup
	guard    sync.Mutex
	requests int
	versions map[string]int
	failures map[string]int
	longest  time.Duration
}

func startLoad(ctx context.Context, host string, perSecond int) *load {
	ctx, stop := context.WithCancel(ctx)
	load := &load{stop: stop, versions: map[string]int{}, failures: map[string]int{}}
	load.pending.Go(func() {
		pace := time.NewTicker(time.Second / time.Duration(perSecond))
		defer pace.Stop()
		began := time.Now()
		for sent := 0; ; {
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
			}
			// A busy machine misses ticks.
			for due := int(time.Since(began).Seconds() * float64(perSecond)); sent < due; sent++ {
				load.pending.Go(func() { load.request(host) })
			}
		}
	})
	return load
}

func (load *load) request(host string) {
	began := time.Now()
	found, err := ask(context.Background(), host)
	took := time.Since(began)
	load.guard.Lock()
	defer load.guard.Unlock()
	load.requests++
	load.longest = max(load.longest, took)
	if err != nil {
		load.failures[err.Error()]++
		return
	}
	load.versions[found.Version]++
}

// end waits for the answers to all requests.
func (load *load) end() {
	load.stop()
	load.pending.Wait()
}

func (load *load) failed() int {
	count := 0
	for _, number := range load.failures {
		count += number
	}
	return count
}
