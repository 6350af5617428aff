// Compares the vectors of schema/vectors/protocol with the codec of the official Go client and of Centrifugo.
//
//	go run . FOLDER        reads every frame and writes every meaning with that codec, and compares
//	go run . -fill FOLDER  writes the frames that a vector lacks, as that codec writes them
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
)

// A vector has a frame and its meaning. A frame is absent if the vector does not concern that encoding, and null if no
// such frame exists.
type vector struct {
	Name     string            `json:"name"`
	Meaning  []json.RawMessage `json:"meaning"`
	Chosen   []string          `json:"chosen,omitempty"`
	Skipped  json.RawMessage   `json:"skipped,omitempty"`
	JSON     json.RawMessage   `json:"json,omitempty"`
	JSONHex  string            `json:"json_hex,omitempty"`
	Protobuf json.RawMessage   `json:"protobuf,omitempty"`
	Error    string            `json:"error,omitempty"`
	// Official is "accepts" if official decoders read a frame that Dunlin refuses.
	Official string `json:"official,omitempty"`
	// Differs is the reason why official decoders read something else; such a frame is not compared.
	Differs string `json:"differs,omitempty"`
}

type vectorFile struct {
	About   string   `json:"about"`
	Vectors []vector `json:"vectors"`
}

// For each file: the type of its messages, and whether official encoders write identical frames.
var kinds = map[string]struct {
	kind      messageKind
	canonical bool
}{
	"commands.json":           {commandKind, true},
	"commands-lenient.json":   {commandKind, false},
	"commands-malformed.json": {commandKind, false},
	"replies.json":            {replyKind, true},
	"pushes.json":             {replyKind, true},
}

func main() {
	fill := flag.Bool("fill", false, "write the frames that vectors lack")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: go run . [-fill] FOLDER")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *fill); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(folder string, fill bool) error {
	names, err := vectorFiles(folder)
	if err != nil {
		return err
	}
	checked, failures := 0, 0
	for _, name := range names {
		about := kinds[name]
		path := filepath.Join(folder, name)
		file, err := read(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if fill {
			if err := fillFile(path, file, about.kind); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			continue
		}
		for _, vector := range file.Vectors {
			count, err := check(vector, about.kind, about.canonical)
			checked += count
			if err != nil {
				failures++
				fmt.Fprintf(os.Stderr, "%s: %s: %v\n", name, vector.Name, err)
			}
		}
	}
	if failures > 0 {
		return fmt.Errorf("%d vectors differ from the official Go codec", failures)
	}
	if fill {
		return nil
	}
	patches, err := checkPatches(filepath.Join(folder, "..", "delta", "patches.json"))
	if err != nil {
		return err
	}
	fmt.Printf("Go: %d frames and %d patches agree\n", checked, patches)
	return nil
}

// The files of the folder. An unknown file is an error.
func vectorFiles(folder string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range paths {
		name := filepath.Base(path)
		if _, known := kinds[name]; !known {
			return nil, fmt.Errorf("%s: nobody knows what this file holds", path)
		}
		names = append(names, name)
	}
	if len(names) != len(kinds) {
		return nil, fmt.Errorf("%s: %d of %d vector files", folder, len(names), len(kinds))
	}
	sort.Strings(names)
	return names, nil
}

func read(path string) (*vectorFile, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var file vectorFile
	return &file, decoder.Decode(&file)
}
