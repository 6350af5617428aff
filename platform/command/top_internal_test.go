package command

import (
	"context"
	"fmt"
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
