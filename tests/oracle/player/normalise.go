package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

// normaliser replaces values that differ between two runs by names.
type normaliser struct {
	replace map[string]string // ids and names of this play
	epochs  map[string]string
	ids     map[string]string // numbers for names of channels
	hasGaps bool              // offsets have gaps, and are left out
}

func (p *play) transcript(unique string) *transcript {
	n := &normaliser{replace: map[string]string{unique: "{u}"}, epochs: map[string]string{}, ids: map[string]string{}, hasGaps: p.server.hasGaps}
	names := make([]string, 0, len(p.connections))
	for name, c := range p.connections {
		names = append(names, name)
		c.mu.Lock()
		if c.clientID != "" {
			n.replace[c.clientID] = "{client:" + name + "}"
		}
		c.mu.Unlock()
	}
	sort.Strings(names)
	t := &transcript{Unordered: p.script.Unordered, Connections: map[string][]any{}}
	if len(p.answers) > 0 {
		t.Connections["api"] = n.all(p.answers)
	}
	for _, name := range names {
		c := p.connections[name]
		c.mu.Lock()
		t.Connections[name] = n.all(c.entries)
		c.mu.Unlock()
	}
	return t
}

func (n *normaliser) all(entries []any) []any {
	normalised := make([]any, 0, len(entries))
	for _, entry := range entries {
		normalised = append(normalised, n.value("", entry, false))
	}
	return normalised
}

// value normalises one value. In JSON, a field with its zero value is equal to an
// absent one, so such fields are removed, except inside payloads.
func (n *normaliser) value(key string, value any, payload bool) any {
	switch value := value.(type) {
	case object:
		result := object{}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			field := value[name]
			inPayload := payload || name == "data" || name == "conn_info" || name == "chan_info"
			if !inPayload && (isZero(field) || isEmptyPresence(key, name, field)) {
				continue
			}
			if n.hasGaps && !inPayload && name == "offset" {
				continue
			}
			if number, is := field.(json.Number); is && !inPayload && name == "id" && (key == "subscribe" || key == "push") {
				result[name] = n.channelID(number.String())
				continue
			}
			result[n.text("", name)] = n.value(name, field, inPayload)
		}
		return result
	case []any:
		result := make([]any, 0, len(value))
		for _, element := range value {
			result = append(result, n.value(key, element, payload))
		}
		return result
	case string:
		if payload {
			return n.text("", value)
		}
		return n.text(key, value)
	case json.Number:
		switch {
		case !payload && (key == "time" || key == "ttl"):
			return "{" + key + "}"
		default:
			return value
		}
	}
	return value
}

// channelID renumbers channel ids in the order of their appearance: each server assigns its own.
func (n *normaliser) channelID(id string) string {
	if _, known := n.ids[id]; !known {
		n.ids[id] = fmt.Sprintf("{channel id %d}", len(n.ids)+1)
	}
	return n.ids[id]
}

func (n *normaliser) text(key, text string) string {
	switch key {
	case "epoch":
		if n.hasGaps {
			return "{epoch}" // channels that share a stream share its epoch
		}
		if _, known := n.epochs[text]; !known {
			n.epochs[text] = fmt.Sprintf("{epoch %d}", len(n.epochs)+1)
		}
		return n.epochs[text]
	case "version", "node", "session":
		return "{" + key + "}"
	}
	for from, to := range n.replace {
		text = strings.ReplaceAll(text, from, to)
	}
	return text
}

func isZero(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case string:
		return value == ""
	case json.Number:
		return value == "0"
	case []any:
		return len(value) == 0
	}
	return false
}

// isEmptyPresence recognizes the only map that may be empty in a reply: the map of a
// presence result. Protobuf cannot distinguish it from an absent one.
func isEmptyPresence(parent, name string, field any) bool {
	empty, is := field.(object)
	return is && len(empty) == 0 && parent == "presence" && name == "presence"
}
