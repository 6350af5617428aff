package render_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/dunlin-project/dunlin/platform/render"
)

// TestOwnNamesAreAllThatAnotherAppCouldHave compares the list with the objects of all cases: an App of the name of one of them would have an object of the
// same kind and name. A hash at the end keeps names apart.
func TestOwnNamesAreAllThatAnotherAppCouldHave(t *testing.T) {
	isHashed := regexp.MustCompile(`-[0-9a-f]{10}$`)
	// kinds are those of objects with the name of their App, by which a clash is possible.
	kinds := map[string]bool{}
	ends := map[string][]string{}
	for _, file := range cases(t) {
		for _, object := range rendered(t, file) {
			found, err := meta.Accessor(object)
			if err != nil {
				t.Fatal(err)
			}
			owner, kind := found.GetLabels()[render.LabelApp], object.GetObjectKind().GroupVersionKind().Kind
			end, isLonger := strings.CutPrefix(found.GetName(), owner+"-")
			switch {
			case found.GetName() == owner && found.GetLabels()[render.LabelKind] == "App":
				kinds[kind] = true
			case isLonger && !isHashed.MatchString(end):
				ends[kind] = append(ends[kind], end)
			}
		}
	}
	if !kinds["Deployment"] || !kinds["Service"] || len(ends) < 3 {
		t.Fatalf("%v, %v", kinds, ends)
	}
	for kind := range kinds {
		for _, end := range ends[kind] {
			if name := "app-" + end; !slices.Contains(render.OwnNames("app"), name) && !strings.HasPrefix(name, render.ProcessName("app", "")) {
				t.Errorf("OwnNames lacks %s: it is a %s of another App as well", name, kind)
			}
		}
	}
}
