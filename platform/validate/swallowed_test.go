package validate_test

import (
	"strings"
	"testing"

	"github.com/dunlin-project/dunlin/platform/validate"
)

const (
	tagDropped    = "the value begins with !, and YAML takes the word for a tag and drops it; write the value in quotes"
	anchorDropped = "the value begins with &, and YAML takes the word for the name of an anchor and drops it; write the value in quotes"
)

// TestYAMLSwallowsNothing changes the spec of an App.
func TestYAMLSwallowsNothing(t *testing.T) {
	app := string(manifest(t, "App", nil))
	for _, row := range []struct{ name, lines, path, message string }{
		{"a tag alone", "  env: { KEY: !c4n4ry }", "spec.env.KEY", tagDropped},
		{"a tag and a word", "  env: { KEY: !c4n4ry word }", "spec.env.KEY", tagDropped},
		{"a tag in a list", "  args: [a, !c4n4ry b]", "spec.args[1]", tagDropped},
		{"a tag of YAML", "  env: { KEY: !!str c4n4ry }", "spec.env.KEY", tagDropped},
		{"a tag without a name", "  env: { KEY: ! c4n4ry }", "spec.env.KEY", tagDropped},
		{"a tag of a mapping", "  env: !c4n4ry { KEY: a }", "spec.env", tagDropped},
		{"a tag of a block", "  env:\n    KEY: !c4n4ry |\n      a", "spec.env.KEY", tagDropped},
		{"a tag of a key", "  env: { !c4n4ry KEY: a }", "spec.env.KEY", tagDropped},
		{"a tag in full", "  env: { KEY: !<c4n4ry> a }", "spec.env.KEY", tagDropped},
		{"an anchor alone", "  env: { KEY: &c4n4ry }", "spec.env.KEY", anchorDropped},
		{"an anchor and a word", "  env: { KEY: &c4n4ry word }", "spec.env.KEY", anchorDropped},
		{"an anchor in a list", "  args: [&c4n4ry b]", "spec.args[0]", anchorDropped},
		{"an anchor that is used", "  args: [&a b, *a]", "", ""},
		{"a merge", "  args: [x]\n  env: &env { A: b }\n  resources: {}\n  migrate: { command: [x] }\n  update: { <<: {} }", "spec.env", anchorDropped},
		{"tags and anchors in quotes", `  env: { A: "!c4n4ry word", B: '&c4n4ry word', C: "*c4n4ry" }`, "", ""},
		{"tags in text", "  env: { A: a !b, B: a&b, C: a *b }\n  args:\n  - |\n    !c4n4ry\n    &a", "", ""},
		{"a key that is true", "  env: { Y: a }", "spec.env.Y", "the key is read as true; write it in quotes"},
		{"a key that is false", "  env: { off: a }", "spec.env.off", "the key is read as false; write it in quotes"},
		{"a key that is a number", "  env: { 0x10: a }", "spec.env.0x10", "the key is read as 16; write it in quotes"},
		{"a key in quotes", `  env: { "Y": a }`, "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			found := validate.File([]byte(app + row.lines + "\n"))[0].Problems
			if row.path == "" {
				if len(found) != 0 {
					t.Fatalf("%v", found)
				}
				return
			}
			if want := (validate.Problem{Path: row.path, Message: row.message}); len(found) != 1 || found[0] != want {
				t.Fatalf("%v\nexpected: %v", found, want)
			}
			if strings.Contains(found[0].String(), "c4n4ry") {
				t.Errorf("the message contains the text: %v", found[0])
			}
		})
	}
}

func TestOwnFilesSwallowNothing(t *testing.T) {
	var into struct {
		Recipients []string `json:"recipients"`
	}
	for _, row := range []struct{ text, problem string }{
		{"recipients: [age1a]", ""},
		{"recipients:\n- !age1a", "recipients[0]: " + tagDropped},
		{"recipients: &age1a", "recipients: " + anchorDropped},
		{"recipients: [", "correct the YAML"},
		{"other: 1", "unknown field"},
	} {
		text := ""
		if err := validate.Decode([]byte(row.text), &into); err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, row.problem) || row.problem == "" && text != "" {
			t.Errorf("%q: %s\nexpected: %s", row.text, text, row.problem)
		}
	}
}
