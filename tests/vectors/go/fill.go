package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
)

// Adds missing frames to the vectors of a file. Vectors for one encoding only are not changed.
func fillFile(path string, file *vectorFile, kind messageKind) error {
	if !kinds[filepath.Base(path)].canonical {
		return nil
	}
	for index := range file.Vectors {
		vector := &file.Vectors[index]
		if vector.JSON == nil {
			frame, err := firstOfMany(*vector, kind)
			if err != nil {
				return err
			}
			vector.JSON = quote(string(frame))
		}
		if vector.Protobuf == nil {
			frame, err := encodeMeaning(*vector, kind, inProtobuf)
			if err != nil {
				return err
			}
			vector.Protobuf = quote(hex.EncodeToString(frame))
		}
	}
	return os.WriteFile(path, format(file), 0o644)
}

// The library writes the entries of a map in any order in JSON. Of many attempts, the frame that is first in byte
// order has them sorted.
func firstOfMany(vector vector, kind messageKind) ([]byte, error) {
	const attempts = 256
	var first []byte
	for range attempts {
		frame, err := encodeMeaning(vector, kind, inJSON)
		if err != nil {
			return nil, err
		}
		if first == nil || bytes.Compare(frame, first) < 0 {
			first = frame
		}
	}
	return first, nil
}

// One vector on each line.
func format(file *vectorFile) []byte {
	var out bytes.Buffer
	out.WriteString("{\n  \"about\": ")
	out.Write(quote(file.About))
	out.WriteString(",\n  \"vectors\": [\n")
	for index, vector := range file.Vectors {
		if index > 0 {
			out.WriteString(",\n")
		}
		out.WriteString("    ")
		out.Write(marshal(vector))
	}
	out.WriteString("\n  ]\n}\n")
	return out.Bytes()
}

func quote(text string) json.RawMessage {
	return marshal(text)
}

// JSON without the escapes that only HTML needs.
func marshal(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // Strings and structs of strings can always be written.
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
