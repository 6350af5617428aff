// Compares two sets of transcripts field by field.
//
//	compare -known FILE[,FILE] [-v] ORACLE CANDIDATE
//
// Of several files, only the entries of the last one must occur.
//
// Prints the plays that differ, each with its differences, then the entries of the
// file of known differences that no longer occur, and a summary last. With -v it
// prints a line for every play, and the known differences as well. Exits with 1 when
// there is a difference that the file doesn't list, or an entry that no longer occurs.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
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
// values, as JSON, are compared when they are given. An optional one need not occur.
type known struct {
	Script    string          `json:"script"`
	Path      string          `json:"path"`
	Oracle    json.RawMessage `json:"oracle"`
	Candidate json.RawMessage `json:"candidate"`
	Reason    string          `json:"reason"`
	Optional  bool            `json:"optional"`
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
	knownPaths := flag.String("known", "", "files of known differences, with commas between them")
	verbose := flag.Bool("v", false, "list all plays, and the known differences")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: compare -known FILE [-v] ORACLE CANDIDATE")
	}
	var listed []*known
	paths := strings.Split(*knownPaths, ",")
	for i, path := range paths {
		var inFile []*known
		load(path, &inFile)
		for _, k := range inFile {
			k.Optional = k.Optional || i < len(paths)-1
		}
		listed = append(listed, inFile...)
	}
	for _, k := range listed {
		if k.Reason == "" {
			log.Fatalf("%s: %s %s has no reason", *knownPaths, k.Script, k.Path)
		}
	}
	var oracle, candidate map[string]*transcript
	load(flag.Arg(0), &oracle)
	load(flag.Arg(1), &candidate)
	if !report(os.Stdout, oracle, candidate, listed, *verbose) {
		os.Exit(1)
	}
}

// report prints the differences and a summary. It returns false if there is an unknown difference.
func report(to io.Writer, oracle, candidate map[string]*transcript, listed []*known, verbose bool) bool {
	same, listedOnly := 0, 0
	var different []string
	for _, script := range keys(oracle, candidate) {
		unlisted, excused := []difference{}, []difference{}
		for _, d := range compare(oracle[script], candidate[script]) {
			if isListed(listed, script, d) {
				excused = append(excused, d)
			} else {
				unlisted = append(unlisted, d)
			}
		}
		heading := "same"
		switch {
		case len(unlisted) > 0:
			different = append(different, script)
			heading = "DIFFERENT"
		case len(excused) > 0:
			listedOnly++
			heading = "known"
		default:
			same++
		}
		if verbose || len(unlisted) > 0 {
			fmt.Fprintf(to, "%-10s %s\n", heading, script)
			printDifferences(to, "", unlisted)
		}
		if verbose {
			printDifferences(to, "(known) ", excused)
		}
	}
	stale := 0
	for _, k := range listed {
		if !k.used && !k.Optional {
			stale++
			fmt.Fprintf(to, "STALE      %s %s is listed as known, but there is no such difference\n", k.Script, k.Path)
		}
	}
	if len(different) > 0 {
		fmt.Fprintf(to, "different: %s\n", strings.Join(different, ", "))
	}
	fmt.Fprintf(to, "%d plays: %d the same, %d with known differences only, %d different; %d stale entries\n",
		same+listedOnly+len(different), same, listedOnly, len(different), stale)
	return len(different) == 0 && stale == 0
}

func printDifferences(to io.Writer, prefix string, differences []difference) {
	for _, d := range differences {
		fmt.Fprintf(to, "             %s%s: oracle %s, candidate %s\n", prefix, d.path, show(d.oracle), show(d.candidate))
	}
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

// unmarshal keeps the text of numbers.
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
