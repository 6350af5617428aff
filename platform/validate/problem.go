// Package validate checks manifests without an API server. Each problem names the path of the field, its value and a remedy. If the API server checks
// the same rule, it returns the same message.
package validate

import (
	"fmt"
	"strings"
)

// Problem is a problem of one field.
type Problem struct {
	// Path is the path of the field, such as spec.ports[0].port.
	Path string `json:"path"`
	// Message describes the problem and the remedy, separated by a semicolon.
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

// outside drops problems of fields whose structure is already wrong.
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
