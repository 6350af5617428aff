// Package validate finds what is wrong with a manifest, without an API server. Each wrong field gets a sentence with its
// path, its value and a remedy. Where the API server checks the same rule, it answers with the same words.
package validate

import (
	"fmt"
	"strings"
)

// Problem is one wrong field.
type Problem struct {
	// Path such as spec.ports[0].port.
	Path string `json:"path"`
	// Message is what is wrong and what to do, with a semicolon between.
	Message string `json:"message"`
}

func (problem Problem) String() string { return problem.Path + ": " + problem.Message }

// problems collects them.
type problems []Problem

func (found *problems) add(path, message string) { *found = append(*found, Problem{path, message}) }

func (found *problems) addf(path, format string, values ...any) {
	found.add(path, fmt.Sprintf(format, values...))
}

// check adds the problem unless the condition holds.
func (found *problems) check(holds bool, path, format string, values ...any) {
	if !holds {
		found.addf(path, format, values...)
	}
}

// outside drops rules about fields whose structure is wrong already.
func (found problems) outside(structural problems) problems {
	var kept problems
	for _, problem := range found {
		isCovered := false
		for _, other := range structural {
			isCovered = isCovered || isWithin(problem.Path, other.Path) || isWithin(other.Path, problem.Path)
		}
		if !isCovered {
			kept = append(kept, problem)
		}
	}
	return kept
}

func isWithin(path, parent string) bool {
	rest, isPrefix := strings.CutPrefix(path, parent)
	return isPrefix && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
