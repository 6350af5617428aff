package render_test

import (
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/dunlin-project/dunlin/platform/render"
)

// TestAnOwnNameIsAnyThatAnotherAppCouldHave has the objects of all cases: an App of the name of one of them would have an object of the same kind and name. A
// hash at the end keeps names apart.
func TestAnOwnNameIsAnyThatAnotherAppCouldHave(t *testing.T) {
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
			if name := "app-" + end; !render.IsOwnName("app", name) {
				t.Errorf("%s is no own name, but a %s has it", name, kind)
			}
		}
	}
	for _, name := range []string{"app", "app-pr-42", "app-gen", "app-gen2x", "app-generation", "other-pods"} {
		if render.IsOwnName("app", name) {
			t.Errorf("%s is an own name", name)
		}
	}
}
