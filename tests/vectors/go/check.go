package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Checks both frames of a vector and returns their number.
func check(vector vector, kind messageKind, canonical bool) (int, error) {
	checked := 0
	for _, encoding := range encodings {
		frame, state, err := frameOf(vector, encoding)
		if err != nil {
			return checked, err
		}
		switch state {
		case frameAbsent:
			if canonical {
				return checked, fmt.Errorf("%s: no frame; run with -fill", encoding)
			}
			continue
		case frameNull:
			err = checkCannotBeWritten(vector, kind, encoding)
		default:
			err = checkFrame(vector, kind, encoding, frame, canonical)
		}
		if err != nil {
			return checked, fmt.Errorf("%s: %w", encoding, err)
		}
		checked++
	}
	if checked == 0 {
		return 0, errors.New("no frame")
	}
	return checked, nil
}

type frameState int

const (
	frameAbsent frameState = iota
	frameNull
	framePresent
)

func frameOf(vector vector, encoding encoding) ([]byte, frameState, error) {
	field := vector.JSON
	if encoding == inProtobuf {
		field = vector.Protobuf
	}
	if encoding == inJSON && vector.JSONHex != "" {
		frame, err := hex.DecodeString(vector.JSONHex)
		return frame, framePresent, err
	}
	if field == nil {
		return nil, frameAbsent, nil
	}
	if string(field) == "null" {
		return nil, frameNull, nil
	}
	var text string
	if err := json.Unmarshal(field, &text); err != nil {
		return nil, frameAbsent, err
	}
	if encoding == inJSON {
		return []byte(text), framePresent, nil
	}
	frame, err := hex.DecodeString(text)
	return frame, framePresent, err
}

func checkFrame(vector vector, kind messageKind, encoding encoding, frame []byte, canonical bool) error {
	if vector.Differs != "" {
		return nil
	}
	messages, err := decodeFrame(kind, encoding, frame)
	if vector.Error != "" && vector.Official == "accepts" {
		return err
	}
	if (err != nil) != (vector.Error != "") {
		return fmt.Errorf("error expected: %q, error seen: %w", vector.Error, err)
	}
	if len(messages) != len(vector.Meaning) {
		return fmt.Errorf("%d messages, not %d", len(messages), len(vector.Meaning))
	}
	for index, message := range messages {
		expected, err := parseMeaning(vector.Meaning[index], message.ProtoReflect().New(), encoding)
		if err != nil {
			return err
		}
		if seen := meaningOf(message.ProtoReflect(), encoding); !equal(expected, seen) {
			return fmt.Errorf("message %d means %v, not %v", index, seen, expected)
		}
	}
	if canonical {
		return checkWritten(vector, kind, encoding, frame)
	}
	return nil
}

// Official encoders write the same bytes; in JSON the same but for the order of fields and for escapes.
func checkWritten(vector vector, kind messageKind, encoding encoding, frame []byte) error {
	written, err := encodeMeaning(vector, kind, encoding)
	if err != nil {
		return err
	}
	if encoding == inProtobuf && !bytes.Equal(written, frame) {
		return fmt.Errorf("the official encoder writes %x", written)
	}
	if encoding == inJSON && !equal(parseLines(written), parseLines(frame)) {
		return fmt.Errorf("the official encoder writes %s", written)
	}
	return nil
}

func checkCannotBeWritten(vector vector, kind messageKind, encoding encoding) error {
	if kind == commandKind {
		return nil // The official command encoder does not look at payloads.
	}
	// It accepts absent and badly encoded bytes; it rejects only bytes that are not JSON.
	written, err := encodeMeaning(vector, kind, encoding)
	if err == nil && vector.Official != "accepts" {
		return fmt.Errorf("the official encoder writes %q", written)
	}
	return nil
}

func parseLines(frame []byte) []any {
	var values []any
	for _, line := range bytes.Split(frame, []byte("\n")) {
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			value = err.Error()
		}
		values = append(values, value)
	}
	return values
}
