package validate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Swallowed returns the values and keys that YAML changes or drops without an error, by their paths: a tag, an anchor that nothing refers to, and a
// key such as y, which becomes true. No message contains the text, which may be a secret.
func Swallowed(text []byte) ([]Problem, error) {
	reading := &reading{lines: strings.Split(string(text), "\n"), aliased: map[*yamlv3.Node]bool{}}
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	for {
		var document yamlv3.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return reading.found, nil
		}
		if err != nil {
			return nil, err
		}
		reading.findAliases(&document)
		for _, root := range document.Content {
			reading.node("", root)
		}
	}
}

// reading is a file while it is searched.
type reading struct {
	lines []string
	// aliased are the nodes that aliases refer to.
	aliased map[*yamlv3.Node]bool
	found   problems
}

func (reading *reading) findAliases(node *yamlv3.Node) {
	if node.Kind == yamlv3.AliasNode {
		reading.aliased[node.Alias] = true
	}
	for _, inner := range node.Content {
		reading.findAliases(inner)
	}
}

// isTagged reports whether a node has a tag. The parser does not report the tag `!`, but a scalar begins with it.
func (reading *reading) isTagged(node *yamlv3.Node) bool {
	if node.Style&yamlv3.TaggedStyle != 0 {
		return true
	}
	if node.Kind != yamlv3.ScalarNode || node.Line < 1 || node.Line > len(reading.lines) {
		return false
	}
	line := []rune(reading.lines[node.Line-1])
	return node.Column >= 1 && node.Column <= len(line) && line[node.Column-1] == '!'
}

func (reading *reading) node(path string, node *yamlv3.Node) {
	at := path
	if at == "" {
		at = "file"
	}
	switch {
	case reading.isTagged(node):
		reading.found.add(at, "the value begins with !, and YAML takes the word for a tag and drops it; write the value in quotes")
	case node.Anchor != "" && !reading.aliased[node]:
		reading.found.add(at, "the value begins with &, and YAML takes the word for the name of an anchor and drops it; write the value in quotes")
	}
	for index, inner := range node.Content {
		switch node.Kind {
		case yamlv3.SequenceNode:
			reading.node(indexed(path, index), inner)
		case yamlv3.MappingNode:
			if index%2 == 0 {
				reading.key(path, inner)
			} else {
				reading.node(joined(path, node.Content[index-1].Value), inner)
			}
		}
	}
}

func (reading *reading) key(path string, key *yamlv3.Node) {
	if key.Kind != yamlv3.ScalarNode {
		return
	}
	reading.node(joined(path, key.Value), key)
	if key.Style != 0 {
		return
	}
	if becomes := keyText(key); becomes != key.Value {
		reading.found.addf(joined(path, key.Value), "the key is read as %s; write it in quotes", becomes)
	}
}

// keyText returns what the reader of Kubernetes, which follows YAML 1.1, makes of a key without quotes.
func keyText(key *yamlv3.Node) string {
	switch strings.ToLower(key.Value) {
	case "y", "yes", "on", "true":
		return "true"
	case "n", "no", "off", "false":
		return "false"
	}
	if key.Tag == "!!int" {
		if number, err := strconv.ParseInt(strings.ReplaceAll(key.Value, "_", ""), 0, 64); err == nil {
			return fmt.Sprint(number)
		}
	}
	return key.Value
}
