// Compares two sets of transcripts field by field.
//
//	compare -known FILE ORACLE CANDIDATE
//
// Prints a line per script and every difference. Exits with 1 when there is a
// difference that the file of known differences doesn't list, or when the file
// lists one that isn't there any more.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path"
	"sort"
	"strings"
)

type transcript struct {
	Unordered   bool             `json:"unordered"`
	Connections map[string][]any `json:"connections"`
}

// known is a difference with its reason. Script and Path may hold `*`; the two
// values, as JSON, are compared when they are given.
type known struct {
	Script    string          `json:"script"`
	Path      string          `json:"path"`
	Oracle    json.RawMessage `json:"oracle"`
	Candidate json.RawMessage `json:"candidate"`
	Reason    string          `json:"reason"`
	used      bool
}

type difference struct {
	path              string
	oracle, candidate any
}

// absent stands for a field or entry that one side doesn't have.
const absent = "(absent)"

func main() {
	log.SetFlags(0)
	knownPath := flag.String("known", "", "file of known differences")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: compare -known FILE ORACLE CANDIDATE")
	}
	var listed []*known
	load(*knownPath, &listed)
	for _, k := range listed {
		if k.Reason == "" {
			log.Fatalf("%s: %s %s has no reason", *knownPath, k.Script, k.Path)
		}
	}
	var oracle, candidate map[string]*transcript
	load(flag.Arg(0), &oracle)
	load(flag.Arg(1), &candidate)
	if !report(oracle, candidate, listed) {
		os.Exit(1)
	}
}

// report prints the table and says whether all is well.
func report(oracle, candidate map[string]*transcript, listed []*known) bool {
	same, listedOnly, different := 0, 0, 0
	for _, script := range keys(oracle, candidate) {
		unlisted, excused := []difference{}, []difference{}
		for _, d := range compare(oracle[script], candidate[script]) {
			if isListed(listed, script, d) {
				excused = append(excused, d)
			} else {
				unlisted = append(unlisted, d)
			}
		}
		switch {
		case len(unlisted) > 0:
			different++
			fmt.Printf("DIFFERENT  %s\n", script)
		case len(excused) > 0:
			listedOnly++
			fmt.Printf("known      %s\n", script)
		default:
			same++
			fmt.Printf("same       %s\n", script)
		}
		for _, d := range unlisted {
			fmt.Printf("             %s: oracle %s, candidate %s\n", d.path, show(d.oracle), show(d.candidate))
		}
		for _, d := range excused {
			fmt.Printf("             (known) %s: oracle %s, candidate %s\n", d.path, show(d.oracle), show(d.candidate))
		}
	}
	stale := 0
	for _, k := range listed {
		if !k.used {
			stale++
			fmt.Printf("STALE      %s %s is listed as known, but there is no such difference\n", k.Script, k.Path)
		}
	}
	fmt.Printf("\n%d plays: %d the same, %d with known differences only, %d different; %d stale entries\n",
		same+listedOnly+different, same, listedOnly, different, stale)
	return different == 0 && stale == 0
}

func compare(oracle, candidate *transcript) []difference {
	if oracle == nil || candidate == nil {
		return []difference{{"(script)", present(oracle), present(candidate)}}
	}
	var found []difference
	for _, name := range keys(oracle.Connections, candidate.Connections) {
		left, right := oracle.Connections[name], candidate.Connections[name]
		if oracle.Unordered {
			left, right = sorted(left), sorted(right)
		}
		walk(name, left, right, &found)
	}
	return found
}

// walk compares two values of any shape.
func walk(where string, left, right any, found *[]difference) {
	switch left := left.(type) {
	case map[string]any:
		if right, is := right.(map[string]any); is {
			for _, key := range keys(left, right) {
				l, inLeft := left[key]
				r, inRight := right[key]
				walkField(where+"."+key, l, inLeft, r, inRight, found)
			}
			return
		}
	case []any:
		if right, is := right.([]any); is {
			for i := range max(len(left), len(right)) {
				walkField(fmt.Sprintf("%s[%d]", where, i), at(left, i), i < len(left), at(right, i), i < len(right), found)
			}
			return
		}
	}
	if show(left) != show(right) {
		*found = append(*found, difference{where, left, right})
	}
}

func walkField(where string, left any, inLeft bool, right any, inRight bool, found *[]difference) {
	switch {
	case inLeft && inRight:
		walk(where, left, right, found)
	case inLeft:
		*found = append(*found, difference{where, left, absent})
	case inRight:
		*found = append(*found, difference{where, absent, right})
	}
}

func isListed(listed []*known, script string, d difference) bool {
	for _, k := range listed {
		if matches(k.Script, script) && matches(k.Path, d.path) &&
			(k.Oracle == nil || show(d.oracle) == compact(k.Oracle)) &&
			(k.Candidate == nil || show(d.candidate) == compact(k.Candidate)) {
			k.used = true
			return true
		}
	}
	return false
}

// matches compares names segment by segment; only `*` is special in a pattern.
func matches(pattern, name string) bool {
	escaped := strings.NewReplacer("[", `\[`, "]", `\]`, "?", `\?`).Replace(pattern)
	matched, err := path.Match(escaped, name)
	return err == nil && matched
}

func load(from string, into any) {
	raw, err := os.ReadFile(from)
	if err != nil {
		log.Fatal(err)
	}
	if err := unmarshal(raw, into); err != nil {
		log.Fatalf("%s: %v", from, err)
	}
}

// unmarshal keeps numbers as they are written.
func unmarshal(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return decoder.Decode(into)
}

func keys[V any](maps ...map[string]V) []string {
	seen := map[string]bool{}
	var all []string
	for _, m := range maps {
		for key := range m {
			if !seen[key] {
				seen[key] = true
				all = append(all, key)
			}
		}
	}
	sort.Strings(all)
	return all
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

func sorted(list []any) []any {
	ordered := append([]any(nil), list...)
	sort.SliceStable(ordered, func(i, j int) bool { return show(ordered[i]) < show(ordered[j]) })
	return ordered
}

func present(t *transcript) any {
	if t == nil {
		return absent
	}
	return "(played)"
}

func show(value any) string {
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(encoded)
}

func compact(raw json.RawMessage) string {
	var value any
	if unmarshal(raw, &value) != nil {
		return string(raw)
	}
	return show(value)
}
