package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// A meaning is a JSON object with the fields that are set, by name. Bytes are a string, or {"hex": "…"} if they are
// no UTF-8. Where a frame is JSON, payloads are compared as the values they are, not as bytes.

// The meaning of a message of that type.
func parseMeaning(text []byte, message protoreflect.Message, encoding encoding) (map[string]any, error) {
	if err := fillMessage(message, text); err != nil {
		return nil, err
	}
	return meaningOf(message, encoding), nil
}

func meaningOf(message protoreflect.Message, encoding encoding) map[string]any {
	meaning := map[string]any{}
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		name := string(field.Name())
		switch {
		case field.IsList():
			list := []any{}
			for index := range value.List().Len() {
				list = append(list, meaningOfValue(field, value.List().Get(index), encoding))
			}
			meaning[name] = list
		case field.IsMap():
			entries := map[string]any{}
			value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				entries[key.String()] = meaningOfValue(field.MapValue(), value, encoding)
				return true
			})
			meaning[name] = entries
		default:
			meaning[name] = meaningOfValue(field, value, encoding)
		}
		return true
	})
	return meaning
}

func meaningOfValue(field protoreflect.FieldDescriptor, value protoreflect.Value, encoding encoding) any {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return meaningOf(value.Message(), encoding)
	case protoreflect.BytesKind:
		return meaningOfBytes(value.Bytes(), encoding)
	default:
		return value.Interface()
	}
}

func meaningOfBytes(payload []byte, encoding encoding) any {
	if encoding == inJSON && json.Valid(payload) {
		return parseLines(bytes.ReplaceAll(payload, []byte("\n"), nil))
	}
	if utf8.Valid(payload) {
		return string(payload)
	}
	return "hex " + hex.EncodeToString(payload)
}

func equal(one, other any) bool {
	return reflect.DeepEqual(one, other)
}

// Sets the fields of message that meaning names.
func fillMessage(message protoreflect.Message, meaning []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(meaning, &fields); err != nil {
		return err
	}
	for name, text := range fields {
		field := message.Descriptor().Fields().ByName(protoreflect.Name(name))
		if field == nil {
			return fmt.Errorf("%s has no field %q", message.Descriptor().Name(), name)
		}
		if err := fillField(message, field, text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func fillField(message protoreflect.Message, field protoreflect.FieldDescriptor, text []byte) error {
	switch {
	case field.IsList():
		var items []json.RawMessage
		if err := json.Unmarshal(text, &items); err != nil {
			return err
		}
		list := message.Mutable(field).List()
		for _, item := range items {
			value, err := valueOf(field, item, list.NewElement)
			if err != nil {
				return err
			}
			list.Append(value)
		}
	case field.IsMap():
		var entries map[string]json.RawMessage
		if err := json.Unmarshal(text, &entries); err != nil {
			return err
		}
		target := message.Mutable(field).Map()
		for key, text := range entries {
			value, err := valueOf(field.MapValue(), text, target.NewValue)
			if err != nil {
				return err
			}
			target.Set(protoreflect.ValueOfString(key).MapKey(), value)
		}
	default:
		value, err := valueOf(field, text, func() protoreflect.Value { return message.NewField(field) })
		if err != nil {
			return err
		}
		message.Set(field, value)
	}
	return nil
}

func valueOf(field protoreflect.FieldDescriptor, text []byte, empty func() protoreflect.Value) (protoreflect.Value, error) {
	switch field.Kind() {
	case protoreflect.MessageKind:
		value := empty()
		return value, fillMessage(value.Message(), text)
	case protoreflect.StringKind:
		var content string
		err := json.Unmarshal(text, &content)
		return protoreflect.ValueOfString(content), err
	case protoreflect.BytesKind:
		content, err := payloadOf(text)
		return protoreflect.ValueOfBytes(content), err
	case protoreflect.BoolKind:
		content, err := strconv.ParseBool(string(text))
		return protoreflect.ValueOfBool(content), err
	case protoreflect.Uint32Kind:
		number, err := strconv.ParseUint(string(text), 10, 32)
		return protoreflect.ValueOfUint32(uint32(number)), err
	case protoreflect.Uint64Kind:
		number, err := strconv.ParseUint(string(text), 10, 64)
		return protoreflect.ValueOfUint64(number), err
	case protoreflect.Int32Kind:
		number, err := strconv.ParseInt(string(text), 10, 32)
		return protoreflect.ValueOfInt32(int32(number)), err
	case protoreflect.Int64Kind, protoreflect.Sint64Kind:
		number, err := strconv.ParseInt(string(text), 10, 64)
		return protoreflect.ValueOfInt64(number), err
	default:
		return protoreflect.Value{}, fmt.Errorf("nobody knows how to read a %s", field.Kind())
	}
}

func payloadOf(text []byte) ([]byte, error) {
	var content string
	if err := json.Unmarshal(text, &content); err == nil {
		return []byte(content), nil
	}
	var binary struct {
		Hex string `json:"hex"`
	}
	if err := json.Unmarshal(text, &binary); err != nil {
		return nil, err
	}
	return hex.DecodeString(binary.Hex)
}
