package command

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// listingClient has many Apps, and counts lists.
type listingClient struct {
	client.Client
	apps, lists int
}

func (listing *listingClient) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	listing.lists++
	if apps, isApps := list.(*v1alpha1.AppList); isApps {
		for index := range listing.apps {
			app := v1alpha1.App{}
			app.Namespace, app.Name = "web", fmt.Sprint("shop", index)
			apps.Items = append(apps.Items, app)
		}
	}
	return nil
}

// TestTopMakesOneListOfEachKind counts them with one App and with 50.
func TestTopMakesOneListOfEachKind(t *testing.T) {
	for _, apps := range []int{1, 50} {
		listing := &listingClient{apps: apps}
		cluster := &cluster{Client: listing}
		// Apps, Dunlins, metrics, pods, Deployments, StatefulSets, ReplicaSets.
		if _, err := cluster.usages(t.Context(), podQuery{namespace: "web"}, nil); err != nil || listing.lists != 7 {
			t.Errorf("%d lists for %d Apps, %v", listing.lists, apps, err)
		}
	}
}

func TestTopOfAPodThatIsNotThere(t *testing.T) {
	for _, apps := range []int{0, 1} {
		cluster := &cluster{Client: &listingClient{apps: apps}}
		if _, err := cluster.usages(t.Context(), podQuery{namespace: "web", pod: "shop-1"}, nil); err == nil || !strings.HasPrefix(err.Error(), "there is no pod shop-1 ") {
			t.Errorf("%d Apps: %v", apps, err)
		}
	}
}

// TestTopOfAProcessNeedsAName finds that before it asks the API server.
func TestTopOfAProcessNeedsAName(t *testing.T) {
	command := (&program{}).topCommand()
	if err := command.Flags().Set("process", "worker"); err != nil {
		t.Fatal(err)
	}
	if err := command.Args(command, nil); err == nil || err.Error() != errProcessOfNone.Error() {
		t.Errorf("%v", err)
	}
	if err := command.Args(command, []string{"shop"}); err != nil {
		t.Error(err)
	}
}
