package operator_test

import (
	"fmt"
	"os"
	"testing"
)

const (
	// callsBetween is the distance of the calls that fail in the short form of the test.
	callsBetween = 67
	// callsMin is less than the operator needs.
	callsMin = 100
)

// isWhole is whether the tests run in their whole form, which takes minutes.
func isWhole() bool { return os.Getenv("ROOST_TEST_WHOLE") != "" }

// TestAnErrorAtEachCall lets each call of the operator fail in turn: before the server has it, and after the server has done
// it. The end is the same, with no object too few or too many. The short form takes a fixed sample of the calls.
func TestAnErrorAtEachCall(t *testing.T) {
	t.Parallel()
	reference := newWorld(t, "errors")
	reference.changeTwice()
	want, calls := hashless(reference.names("shop")), reference.calls.count()
	if calls < callsMin {
		t.Fatalf("the operator has made %d calls, fewer than %d", calls, callsMin)
	}
	step := callsBetween
	if isWhole() {
		step = 1
	}
	t.Logf("each of %d calls, in steps of %d", calls, step)
	for _, isLost := range []bool{false, true} {
		for failAt := 1; failAt <= calls; failAt += step {
			name := fmt.Sprintf("errors-%v-%d", isLost, failAt)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				world := newWorld(t, name)
				world.calls.reset(failAt, isLost)
				world.changeTwice()
				if !world.calls.hasFailed() {
					t.Error("no call has failed")
				}
				if found := hashless(world.names("shop")); found != want {
					t.Errorf("%s\nexpected: %s", found, want)
				}
				if status, message := world.status(world.app("shop")); status != well {
					t.Errorf("%s\n%s", status, message)
				}
			})
		}
	}
}

// changeTwice makes an app and takes parts of it away, so that there are writes of each kind.
func (world *world) changeTwice() {
	world.t.Helper()
	world.create(world.large())
	world.converge("App", "shop")
	world.shrink()
	world.converge("App", "shop")
}
