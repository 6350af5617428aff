package render_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

func TestARevisionReturnsSpecAndFiles(t *testing.T) {
	app := v1alpha1.AppSpec{Image: "shop:1", EnvFiles: v1alpha1.EnvFiles{"shop.env"}}
	files := map[string]string{"shop.env": "TOKEN=ENC[x]\n"}
	kept, err := render.History("App", "web", "shop", "0123456789", app, files)
	if err != nil || kept.Name != "shop-app-0123456789" || kept.Namespace != "web" {
		t.Fatalf("%v, %v", kept, err)
	}
	var record render.Record
	if err := json.Unmarshal(kept.Data.Raw, &record); err != nil {
		t.Fatal(err)
	}
	back, err := record.App("web", "shop")
	if err != nil || !reflect.DeepEqual(back.Spec, app) || !reflect.DeepEqual(record.Files, files) || back.Name != "shop" {
		t.Errorf("%v, %v, %v", back, record.Files, err)
	}
	if _, err := (render.Record{Spec: json.RawMessage(`{"nodes":"three"}`)}).Dunlin("web", "realtime"); err == nil {
		t.Error("a spec with a wrong type was read")
	}
}

func TestFilesOfAnAppHaveABound(t *testing.T) {
	name := "config/shop.env"
	overhead := len(render.FilesKey(name))
	full := strings.Repeat("x", render.FilesBytesMax-overhead)
	first, err := render.Files("web", "shop", map[string]string{name: full})
	if err != nil || first.Data["config..shop.env"] != full || !*first.Immutable {
		t.Fatal(err)
	}
	_, err = render.Files("web", "shop", map[string]string{name: full + "x"})
	if err == nil || err.Error() != "the files have 1048577 bytes, more than the limit of 1048576 for a ConfigMap; encrypted values are a third longer; mount large content as a volume" {
		t.Error(err)
	}
	if _, err = render.Files("web", "shop", map[string]string{"a b.env": "A=b\n"}); err == nil || !strings.Contains(err.Error(), "rename the file, with only letters") {
		t.Error(err)
	}
}

func TestOtherFilesHaveAnotherName(t *testing.T) {
	names := map[string]bool{}
	for _, files := range []map[string]string{{"a.env": "A=b\n"}, {"a.env": "A=c\n"}, {"b.env": "A=b\n"}, {"a.env": "A=b\n"}} {
		made, err := render.Files("web", "shop", files)
		if err != nil {
			t.Fatal(err)
		}
		names[made.Name] = true
	}
	if len(names) != 3 {
		t.Errorf("%v", names)
	}
}

// A revision has the files as JSON, in which a line break takes two bytes.
func TestFilesHaveABoundInARevision(t *testing.T) {
	const name = "shop.txt"
	overhead := len(`{"` + name + `":""}`)
	full := strings.Repeat("\n", (render.RecordBytesMax-overhead)/2)
	if _, err := render.Files("web", "shop", map[string]string{name: full}); err != nil {
		t.Fatal(err)
	}
	_, err := render.Files("web", "shop", map[string]string{name: full + "\n"})
	if err == nil || !strings.HasPrefix(err.Error(), "the files take 1310721 bytes in a revision, more than the limit of 1310720: in its JSON, a line break takes 2 bytes") {
		t.Error(err)
	}
}

// The operator takes files that `roost deploy` has not written, and etcd refuses a revision that is too large for it.
func TestARevisionHasABound(t *testing.T) {
	spec := map[string]string{"image": "shop:1"}
	overhead := len(`{"spec":{"image":"shop:1"},"files":{"a.env":"A=b","shop.txt":""}}`)
	history := func(content string) error {
		_, err := render.History("App", "web", "shop", "0123456789", spec, map[string]string{"a.env": "A=b", "shop.txt": content})
		return err
	}
	full := strings.Repeat("\n", (render.RevisionBytesMax-overhead)/2)
	if (render.RevisionBytesMax-overhead)%2 == 1 {
		full += "x"
	}
	if err := history(full); err != nil {
		t.Fatal(err)
	}
	var large *render.RevisionTooLargeError
	if err := history(full + "x"); !errors.As(err, &large) || large.Bytes != render.RevisionBytesMax+1 || large.Largest != "shop.txt" || large.SpecBytes != len(`{"image":"shop:1"}`) {
		t.Errorf("%v, %+v", err, large)
	}
}
