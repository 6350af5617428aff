package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/centrifugal/protocol"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// base is a valid command, and what the session has sent before.
type base struct {
	command string // its members are changed one by one
	before  []string
}

// bases has one entry for each request that a Command can carry.
var bases = map[string]base{
	"connect": {command: `{"id":1,"connect":{"token":"{token:ann}","data":{"a":1},"name":"n","version":"v",
		"subs":{"optional:{u}":{"recover":true,"offset":0,"epoch":"x"}}}}`},
	"subscribe": {command: `{"id":5,"subscribe":{"channel":"tagged:{u}","data":{"a":1},
		"tf":{"op":"and","nodes":[{"key":"k","cmp":"in","vals":["v"]},{"key":"k","cmp":"eq","val":"v"}]}}}`},
	"unsubscribe": {
		before:  []string{`{"id":4,"subscribe":{"channel":"open:{u}"}}`},
		command: `{"id":5,"unsubscribe":{"channel":"open:{u}"}}`,
	},
	"publish":        {command: `{"id":5,"publish":{"channel":"open:{u}","data":{"a":1}}}`},
	"presence":       {command: `{"id":5,"presence":{"channel":"presence:{u}"}}`},
	"presence_stats": {command: `{"id":5,"presence_stats":{"channel":"presence:{u}"}}`},
	"history": {command: `{"id":5,"history":{"channel":"history:{u}","limit":1,"since":{"offset":0,"epoch":""},
		"reverse":false}}`},
	"ping":    {command: `{"id":5,"ping":{}}`},
	"send":    {command: `{"id":5,"send":{"data":{"a":1}}}`},
	"rpc":     {command: `{"id":5,"rpc":{"method":"x","data":{"a":1}}}`},
	"refresh": {command: `{"id":5,"refresh":{"token":"{token:new}"}}`},
	"sub_refresh": {
		before:  []string{`{"id":4,"subscribe":{"channel":"closed:{u}","token":"{token:sub}"}}`},
		command: `{"id":5,"sub_refresh":{"channel":"closed:{u}","token":"{token:newsub}"}}`,
	},
}

// values are what a member is in its variants, by the name of the variant.
var values = map[string]string{
	"null": `null`, "text": `"x"`, "number": `1`, "fraction": `1.5`, "negative": `-1`, "true": `true`, "list": `[1]`, "object": `{"a":1}`,
}

// memberScripts makes a script for each variant of each member of each command: absent, null, empty and of other
// types. The members are those of the protocol's own descriptors, so those that it gets later are played as well.
func memberScripts() ([]*script, error) {
	var scripts []*script
	fields := (&protocol.Command{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := string(field.Name())
		if field.Message() == nil {
			continue
		}
		base, known := bases[name]
		if !known {
			return nil, fmt.Errorf("no valid command is known for %s", name)
		}
		var document object
		if err := json.Unmarshal([]byte(base.command), &document); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		play := func(variant, encoding string, sent step) {
			scripts = append(scripts, base.script("member-"+variant, encoding, sent))
		}
		if name == "rpc" {
			jsonVariants(document, nil, fields.ByName("id"), play)
		}
		jsonVariants(document, nil, field, play)
		if err := protobufVariants(document, field, play); err != nil {
			return nil, err
		}
	}
	return scripts, nil
}

// script is a play of one variant in one encoding.
func (b base) script(name, encoding string, sent step) *script {
	one, oneHour := int64(600), int64(3600)
	s := &script{
		name: name, About: "One member is changed.", Encodings: []string{encoding},
		Tokens: map[string]tokenShape{
			"ann":    {Claims: json.RawMessage(`{"sub":"{u}-ann"}`), ExpIn: &one},
			"new":    {Claims: json.RawMessage(`{"sub":"{u}-ann"}`), ExpIn: &oneHour},
			"sub":    {Claims: json.RawMessage(`{"sub":"{u}-ann","channel":"closed:{u}"}`), ExpIn: &one},
			"newsub": {Claims: json.RawMessage(`{"sub":"{u}-ann","channel":"closed:{u}"}`), ExpIn: &oneHour},
		},
		Steps: []step{{Connect: "a"}},
	}
	opens := strings.HasPrefix(name, "member-connect")
	before := b.before
	if !opens {
		before = append([]string{`{"id":1,"connect":{"token":"{token:ann}"}}`}, before...)
	}
	for _, command := range before {
		s.Steps = append(s.Steps,
			step{Send: "a", Commands: []json.RawMessage{json.RawMessage(command)}}, step{Expect: "a", Messages: 1})
	}
	sent.Send = "a"
	s.Steps = append(s.Steps, sent, step{Expect: "a", Messages: 1})
	if !opens {
		// A refused connect ends the session at different times.
		s.Steps = append(s.Steps, step{Barrier: "a"})
	}
	return s
}

// jsonVariants plays the variants of a field, and of the fields of its messages that the document has.
func jsonVariants(document object, path []string, field protoreflect.FieldDescriptor, play func(string, string, step)) {
	path = append(slices.Clone(path), string(field.Name()))
	current, isThere := at(document, path)
	send := func(variant, value string) {
		changed, err := json.Marshal(document)
		var copied object
		if err == nil {
			err = json.Unmarshal(changed, &copied)
		}
		if err == nil {
			parent, _ := at(copied, path[:len(path)-1])
			set(parent, path[len(path)-1], value)
			changed, err = json.Marshal(copied)
		}
		if err != nil {
			panic(err) // the documents are those above
		}
		play(strings.Join(path, ".")+"-"+variant, "json", step{Commands: []json.RawMessage{changed}})
	}
	if isThere {
		send("absent", "")
	}
	own := shape(field)
	for _, variant := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(own.fitting, variant) {
			send(variant, values[variant])
		}
	}
	send("empty", own.empty)
	nested := field.Message()
	if nested == nil {
		return
	}
	for _, inner := range messagesIn(current, path, field) {
		for i := range nestedOf(field).Fields().Len() {
			jsonVariants(document, inner, nestedOf(field).Fields().Get(i), play)
		}
	}
}

// nestedOf is the message of a field, or of a map's values.
func nestedOf(field protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if field.IsMap() {
		return field.MapValue().Message()
	}
	return field.Message()
}

// messagesIn returns the paths of the messages that are the value of a field. Of a list, it takes the first one.
func messagesIn(value any, path []string, field protoreflect.FieldDescriptor) [][]string {
	var paths [][]string
	switch value := value.(type) {
	case []any:
		if len(value) > 0 {
			paths = append(paths, append(slices.Clone(path), "0"))
		}
	case object:
		if !field.IsMap() {
			return [][]string{path}
		}
		if nestedOf(field) == nil {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			paths = append(paths, append(slices.Clone(path), name))
		}
	}
	return paths
}

// at returns the value at a path of a document.
func at(value any, path []string) (any, bool) {
	for _, name := range path {
		switch parent := value.(type) {
		case object:
			child, is := parent[name]
			if !is {
				return nil, false
			}
			value = child
		case []any:
			value = parent[0]
		}
	}
	return value, true
}

// set changes a member, or removes it if the value is empty.
func set(parent any, name, value string) {
	switch parent := parent.(type) {
	case object:
		if value == "" {
			delete(parent, name)
			return
		}
		parent[name] = json.RawMessage(value)
	}
}

// fieldShape has the variants that have the type of a field, and its empty value.
type fieldShape struct {
	fitting []string
	empty   string
}

func shape(field protoreflect.FieldDescriptor) fieldShape {
	switch {
	case field.IsMap():
		return fieldShape{[]string{"object"}, `{}`}
	case field.IsList():
		return fieldShape{[]string{"list"}, `[]`}
	}
	switch field.Kind() {
	case protoreflect.MessageKind:
		return fieldShape{[]string{"object"}, `{}`}
	case protoreflect.StringKind:
		return fieldShape{[]string{"text"}, `""`}
	case protoreflect.BoolKind:
		return fieldShape{[]string{"true"}, `false`}
	case protoreflect.BytesKind:
		// Any JSON is a payload; that null is one as well is a variant.
		return fieldShape{slices.DeleteFunc(slices.Collect(maps.Keys(values)), func(v string) bool { return v == "null" }), `""`}
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return fieldShape{[]string{"number"}, `0`}
	default:
		return fieldShape{[]string{"number", "negative"}, `0`}
	}
}

// protobufVariants plays the variants of the fields of a request: absent, empty on the wire, and of the other wire
// type. Protobuf has no null.
func protobufVariants(document object, command protoreflect.FieldDescriptor, play func(string, string, step)) error {
	name := string(command.Name())
	request, _ := document[name].(object)
	for i := range command.Message().Fields().Len() {
		field := command.Message().Fields().Get(i)
		rest := maps.Clone(request)
		delete(rest, string(field.Name()))
		encoded, err := json.Marshal(object{"id": document["id"], name: rest})
		if err != nil {
			return err
		}
		send := func(variant string, appended []byte) {
			play(fmt.Sprintf("%s.%s-%s", name, field.Name(), variant), "protobuf",
				step{Commands: []json.RawMessage{encoded}, appended: &appendedField{command, appended}})
		}
		number := protowire.Number(field.Number())
		zero := protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), 0)
		nothing := protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), nil)
		if isLengthDelimited(field) {
			send("empty", nothing)
			send("other", zero)
		} else {
			send("empty", zero)
			send("other", nothing)
		}
		if _, isThere := request[string(field.Name())]; isThere {
			send("absent", nil)
		}
	}
	return nil
}

func isLengthDelimited(field protoreflect.FieldDescriptor) bool {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.StringKind, protoreflect.BytesKind:
		return true
	}
	return field.IsList()
}

// appendedField is a field in its encoding, which is appended to the request of a command.
type appendedField struct {
	command protoreflect.FieldDescriptor
	bytes   []byte
}

// frame encodes a command with the field.
func (a *appendedField) frame(text string) ([]byte, error) {
	command := &protocol.Command{}
	if err := json.Unmarshal([]byte(text), command); err != nil {
		return nil, err
	}
	request, err := proto.Marshal(command.ProtoReflect().Get(a.command).Message().Interface())
	if err != nil {
		return nil, err
	}
	message := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(command.Id))
	message = protowire.AppendTag(message, a.command.Number(), protowire.BytesType)
	message = protowire.AppendBytes(message, append(request, a.bytes...))
	return append(protowire.AppendVarint(nil, uint64(len(message))), message...), nil
}
