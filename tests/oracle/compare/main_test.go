package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCompareFindsEachKindOfDifference(t *testing.T) {
	for name, example := range map[string]struct{ oracle, candidate, path string }{
		"value":         {`{"a":[{"id":1}]}`, `{"a":[{"id":2}]}`, "a[0].id"},
		"type":          {`{"a":[{"id":1}]}`, `{"a":[{"id":"1"}]}`, "a[0].id"},
		"shape":         {`{"a":[{"x":{}}]}`, `{"a":[{"x":[]}]}`, "a[0].x"},
		"missing field": {`{"a":[{"x":{"y":1}}]}`, `{"a":[{"x":{}}]}`, "a[0].x.y"},
		"extra field":   {`{"a":[{"x":{}}]}`, `{"a":[{"x":{"y":1}}]}`, "a[0].x.y"},
		"extra entry":   {`{"a":[{"x":1}]}`, `{"a":[{"x":1},{"x":1}]}`, "a[1]"},
		"large number":  {`{"a":[{"x":9007199254740993}]}`, `{"a":[{"x":9007199254740992}]}`, "a[0].x"},
	} {
		t.Run(name, func(t *testing.T) {
			found := compare(parse(t, example.oracle), parse(t, example.candidate))
			if len(found) != 1 || found[0].path != example.path {
				t.Fatalf("got %+v, want one difference at %s", found, example.path)
			}
		})
	}
}

func TestCompareOrder(t *testing.T) {
	left, right := parse(t, `{"a":[{"x":1},{"x":2}]}`), parse(t, `{"a":[{"x":2},{"x":1}]}`)
	if found := compare(left, right); len(found) != 2 {
		t.Fatalf("order doesn't matter? %+v", found)
	}
	left.Unordered = true
	if found := compare(left, right); len(found) != 0 {
		t.Fatalf("order matters where it shouldn't: %+v", found)
	}
}

func TestReport(t *testing.T) {
	oracle := map[string]*transcript{"s/json": parse(t, `{"a":[{"x":1}]}`)}
	other := map[string]*transcript{"s/json": parse(t, `{"a":[{"x":2}]}`)}
	entry := func(candidate string) []*known {
		return []*known{{Script: "s/*", Path: "a[0].x", Candidate: json.RawMessage(candidate), Reason: "a test"}}
	}
	for name, example := range map[string]struct {
		candidate map[string]*transcript
		listed    []*known
		well      bool
	}{
		"the same":                      {oracle, nil, true},
		"a difference":                  {other, nil, false},
		"a listed difference":           {other, entry("2"), true},
		"another than the listed":       {other, entry("3"), false},
		"a listed one that is gone":     {oracle, entry("2"), false},
		"a play that is missing":        {map[string]*transcript{}, nil, false},
		"listed at a path it isn't at":  {other, []*known{{Script: "s/*", Path: "a[1].x", Reason: "a test"}}, false},
		"listed with a pattern of path": {other, []*known{{Script: "*/json", Path: "a[*].x", Reason: "a test"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var printed strings.Builder
			if report(&printed, oracle, example.candidate, example.listed, false) != example.well {
				t.Fatalf("want %v, got\n%s", example.well, &printed)
			}
		})
	}
}

func TestReportEndsWithWhatDiffers(t *testing.T) {
	oracle, candidate := map[string]*transcript{}, map[string]*transcript{}
	for _, script := range []string{"first/json", "middle/json", "last/json"} {
		oracle[script] = parse(t, `{"a":[{"x":1}]}`)
		candidate[script] = oracle[script]
	}
	candidate["first/json"] = parse(t, `{"a":[{"x":2}]}`)
	const short = "DIFFERENT  first/json\n             a[0].x: oracle 1, candidate 2\ndifferent: first/json\n" +
		"3 plays: 2 the same, 0 with known differences only, 1 different; 0 stale entries\n"
	var printed strings.Builder
	report(&printed, oracle, candidate, nil, false)
	if printed.String() != short {
		t.Fatalf("got\n%s", &printed)
	}
	printed.Reset()
	report(&printed, oracle, candidate, nil, true)
	if !strings.Contains(printed.String(), "same       middle/json\n") {
		t.Fatalf("-v leaves out plays:\n%s", &printed)
	}
}

func parse(t *testing.T, connections string) *transcript {
	t.Helper()
	one := &transcript{}
	if err := unmarshal([]byte(connections), &one.Connections); err != nil {
		t.Fatal(err)
	}
	return one
}
