package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/centrifugal/protocol"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

type messageKind int

const (
	commandKind messageKind = iota
	replyKind
)

type encoding = protocol.Type

const (
	inJSON     = protocol.TypeJSON
	inProtobuf = protocol.TypeProtobuf
)

var encodings = []encoding{inJSON, inProtobuf}

var errNothing = errors.New("no message")

// The messages of a frame up to the first error.
func decodeFrame(kind messageKind, encoding encoding, frame []byte) ([]proto.Message, error) {
	next := commandReader(encoding, frame)
	if kind == replyKind {
		next = replyReader(encoding, frame)
	}
	var messages []proto.Message
	for {
		message, err := next()
		if message != nil {
			messages = append(messages, message)
		}
		switch {
		case err == io.EOF && len(messages) == 0:
			return nil, errNothing
		case err == io.EOF:
			return messages, nil
		case err != nil:
			return messages, err
		}
	}
}

func commandReader(encoding encoding, frame []byte) func() (proto.Message, error) {
	decoder := protocol.GetCommandDecoder(encoding, frame)
	return func() (proto.Message, error) {
		command, err := decoder.Decode()
		if command == nil {
			return nil, err
		}
		return command, err
	}
}

func replyReader(encoding encoding, frame []byte) func() (proto.Message, error) {
	var decoder protocol.ReplyDecoder = protocol.NewJSONReplyDecoder(frame)
	if encoding == inProtobuf {
		decoder = protocol.NewProtobufReplyDecoder(frame)
	}
	return func() (proto.Message, error) {
		reply, err := decoder.Decode()
		if reply == nil {
			return nil, err
		}
		return reply, err
	}
}

// The frame with the meaning of the vector.
func encodeMeaning(vector vector, kind messageKind, encoding encoding) ([]byte, error) {
	// The command encoder writes the length prefix; for replies, the frame encoder does.
	frame := protocol.GetDataEncoder(encoding)
	var lines [][]byte
	for _, meaning := range vector.Meaning {
		message, err := encodeMessage(meaning, kind, encoding)
		if err != nil {
			return nil, err
		}
		lines = append(lines, message)
		if err := frame.Encode(message); err != nil {
			return nil, err
		}
	}
	if kind == commandKind && encoding == inProtobuf {
		return bytes.Join(lines, nil), nil
	}
	return frame.Finish(), nil
}

// A command in Protobuf has its length in front of it.
func encodeMessage(meaning []byte, kind messageKind, encoding encoding) ([]byte, error) {
	if kind == commandKind {
		command := &protocol.Command{}
		if err := fillMessage(command.ProtoReflect(), meaning); err != nil {
			return nil, err
		}
		switch {
		case encoding == inJSON:
			return protocol.NewJSONCommandEncoder().Encode(command)
		case hasUnorderedMap(command.ProtoReflect()):
			message, err := encodeOrdered(command)
			return append(binary.AppendUvarint(nil, uint64(len(message))), message...), err
		default:
			return protocol.NewProtobufCommandEncoder().Encode(command)
		}
	}
	reply := &protocol.Reply{}
	if err := fillMessage(reply.ProtoReflect(), meaning); err != nil {
		return nil, err
	}
	if encoding == inProtobuf && hasUnorderedMap(reply.ProtoReflect()) {
		return encodeOrdered(reply)
	}
	makeEmptyNotNull(reply)
	return protocol.GetReplyEncoder(encoding).Encode(reply)
}

// The library writes the entries of a map in any order; vectors have them sorted.
func encodeOrdered(message proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(message)
}

func hasUnorderedMap(message protoreflect.Message) bool {
	found := false
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			found = found || value.Map().Len() > 1
		case field.IsList() && field.Kind() == protoreflect.MessageKind:
			for index := range value.List().Len() {
				found = found || hasUnorderedMap(value.List().Get(index).Message())
			}
		case field.Kind() == protoreflect.MessageKind:
			found = found || hasUnorderedMap(value.Message())
		}
		return !found
	})
	return found
}

// Where a result is empty, servers write empty lists and maps in JSON, not null.
func makeEmptyNotNull(reply *protocol.Reply) {
	if result := reply.Presence; result != nil && result.Presence == nil {
		result.Presence = map[string]*protocol.ClientInfo{}
	}
	if result := reply.History; result != nil && result.Publications == nil {
		result.Publications = []*protocol.Publication{}
	}
}
