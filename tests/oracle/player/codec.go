package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/centrifugal/protocol"
	"github.com/gorilla/websocket"
	"google.golang.org/protobuf/reflect/protoreflect"
)

type object = map[string]any

// codec carries the same commands and messages in one of the two encodings.
type codec interface {
	subprotocols() []string
	opcode() int
	// join makes one frame of commands given as JSON.
	join(commands []string) ([]byte, error)
	// raw is the frame that the step defines byte by byte for this encoding.
	raw(s step) *string
	// split returns the messages of a frame; a ping is an empty object.
	split(frame []byte) ([]object, error)
	// empty is a frame with an empty command: a pong.
	empty() []byte
}

type jsonCodec struct{}

func (jsonCodec) subprotocols() []string { return nil }
func (jsonCodec) opcode() int            { return websocket.TextMessage }
func (jsonCodec) raw(s step) *string     { return s.JSON }
func (jsonCodec) empty() []byte          { return []byte("{}") }

func (jsonCodec) join(commands []string) ([]byte, error) {
	var frame bytes.Buffer
	for i, command := range commands {
		if i > 0 {
			frame.WriteByte('\n')
		}
		if err := json.Compact(&frame, []byte(command)); err != nil {
			return nil, err
		}
	}
	return frame.Bytes(), nil
}

func (jsonCodec) split(frame []byte) ([]object, error) {
	var messages []object
	for _, line := range bytes.Split(bytes.TrimSuffix(frame, []byte("\n")), []byte("\n")) {
		message, err := decodeObject(line)
		if err != nil {
			return messages, fmt.Errorf("not a JSON object: %q", line)
		}
		messages = append(messages, message)
	}
	return messages, nil
}

type protobufCodec struct{}

func (protobufCodec) subprotocols() []string { return []string{"centrifuge-protobuf"} }
func (protobufCodec) opcode() int            { return websocket.BinaryMessage }
func (protobufCodec) raw(s step) *string     { return s.Protobuf }
func (protobufCodec) empty() []byte          { return []byte{0} }

func (protobufCodec) join(commands []string) ([]byte, error) {
	var frame []byte
	for _, text := range commands {
		command := &protocol.Command{}
		if err := json.Unmarshal([]byte(text), command); err != nil {
			return nil, err
		}
		encoded, err := command.MarshalVT()
		if err != nil {
			return nil, err
		}
		frame = binary.AppendUvarint(frame, uint64(len(encoded)))
		frame = append(frame, encoded...)
	}
	return frame, nil
}

// split converts Protobuf messages to the structure of the JSON encoding.
func (protobufCodec) split(frame []byte) ([]object, error) {
	var messages []object
	for len(frame) > 0 {
		size, width := binary.Uvarint(frame)
		if width <= 0 || uint64(len(frame)-width) < size {
			return messages, errors.New("not length-delimited Protobuf")
		}
		body := frame[width : uint64(width)+size]
		frame = frame[uint64(width)+size:]
		reply := &protocol.Reply{}
		if err := reply.UnmarshalVT(body); err != nil {
			return messages, fmt.Errorf("not a Reply: %w", err)
		}
		if len(body) > 0 && hasUnknownFields(reply.ProtoReflect()) {
			return messages, errors.New("a Reply with unknown fields")
		}
		encoded, err := json.Marshal(reply)
		if err != nil {
			return messages, fmt.Errorf("a Reply whose data isn't JSON: %w", err)
		}
		message, err := decodeObject(encoded)
		if err != nil {
			return messages, err
		}
		messages = append(messages, message)
	}
	return messages, nil
}

func hasUnknownFields(message protoreflect.Message) bool {
	if len(message.GetUnknown()) > 0 {
		return true
	}
	unknown := false
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			if field.MapValue().Message() != nil {
				value.Map().Range(func(_ protoreflect.MapKey, entry protoreflect.Value) bool {
					unknown = unknown || hasUnknownFields(entry.Message())
					return !unknown
				})
			}
		case field.Message() != nil && field.IsList():
			for i := range value.List().Len() {
				unknown = unknown || hasUnknownFields(value.List().Get(i).Message())
			}
		case field.Message() != nil:
			unknown = hasUnknownFields(value.Message())
		}
		return !unknown
	})
	return unknown
}

// decodeObject keeps the text of numbers.
func decodeObject(raw []byte) (object, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var decoded object
	if err := decoder.Decode(&decoded); err != nil {
		return nil, err
	}
	if decoded == nil {
		return nil, errors.New("null")
	}
	if decoder.More() {
		return nil, errors.New("more than one value")
	}
	return decoded, nil
}
