package operator_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
)

// slowServer does not answer the write of a status, and performs it when the operator has given it up, as an API server does that waits for etcd.
type slowServer struct {
	next http.RoundTripper

	mutex sync.Mutex
	// isArmed is true until a status has arrived that says that objects are being written.
	isArmed bool
	held    *http.Request
	// readAfter counts the reads of Apps after that, which have their answers.
	readAfter int
}

func (server *slowServer) wrap(next http.RoundTripper) http.RoundTripper {
	server.next = next
	return server
}

func (server *slowServer) RoundTrip(request *http.Request) (*http.Response, error) {
	isHeld, err := server.holds(request)
	if err != nil {
		return nil, err
	}
	if isHeld {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	response, err := server.next.RoundTrip(request)
	server.mutex.Lock()
	defer server.mutex.Unlock()
	if err == nil && server.held != nil && request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/apps/shop") {
		server.readAfter++
	}
	return response, err
}

func (server *slowServer) holds(request *http.Request) (bool, error) {
	server.mutex.Lock()
	defer server.mutex.Unlock()
	if !server.isArmed || request.Method != http.MethodPatch || !strings.HasSuffix(request.URL.Path, "/apps/shop/status") {
		return false, nil
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return false, err
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	if !bytes.Contains(body, []byte(reconcile.ReasonApplying)) {
		return false, nil
	}
	server.isArmed = false
	server.held = request.Clone(context.Background())
	server.held.Body = io.NopCloser(bytes.NewReader(body))
	return true, nil
}

func (server *slowServer) arm() {
	server.mutex.Lock()
	defer server.mutex.Unlock()
	server.isArmed = true
}

func (server *slowServer) hasBeenReadAfter() bool {
	server.mutex.Lock()
	defer server.mutex.Unlock()
	return server.readAfter > 0
}

// perform performs the write that was held, and returns the code of its answer.
func (server *slowServer) perform(t *testing.T) int {
	t.Helper()
	response, err := server.next.RoundTrip(server.held)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// TestALateStatusDoesNotStay has the API server perform the write of a status after the operator has given it up and has found that all is well. Nothing
// else changes after that.
func TestALateStatusDoesNotStay(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		// change has the operator write the Service again.
		change func(*world)
		// code is the answer of the late write.
		code int
	}{
		// The next pass finds that the status from before the change is right, and writes none.
		{"changed", func(world *world) {
			service := &corev1.Service{}
			if err := world.get("shop", service); err != nil {
				world.t.Fatal(err)
			}
			service.Spec.Ports[0].TargetPort = intstr.FromInt32(1)
			world.update(service)
		}, http.StatusOK},
		// The next pass writes a status, which the late one must not replace: the inventory has the UID of the new Service.
		{"deleted", func(world *world) { world.deleteOne("Service", "shop") }, http.StatusConflict},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			world, slow := newWorld(t, "late-status-"+row.name), &slowServer{}
			world.create(world.app("shop"))
			world.runBehind(slow.wrap)
			world.waitUntilWell(1)

			slow.arm()
			row.change(world)
			wait(t, "a pass has read the App again", slow.hasBeenReadAfter)
			wait(t, "the status has the Service", world.isWellWithService)
			if code := slow.perform(t); code != row.code {
				t.Fatalf("the late status was answered with %d, not %d", code, row.code)
			}
			wait(t, "the late status is gone", world.isWellWithService)
		})
	}
}

// isWellWithService reports whether the status says that all is well, and has the present Service in its inventory.
func (world *world) isWellWithService() bool {
	world.t.Helper()
	app, service := &v1alpha1.App{}, &corev1.Service{}
	if err := errors.Join(world.get("shop", app), world.get("shop", service)); err != nil {
		world.t.Fatal(err)
	}
	isInventoried := slices.ContainsFunc(app.Status.Inventory, func(object v1alpha1.ObjectRef) bool { return object.UID == string(service.UID) })
	return isInventoried && conditionsOf(app) == well
}
