package main

import (
	"encoding/json"
	"fmt"
	"os"

	fdelta "github.com/shadowspore/fossil-delta"
)

// Applies the patches of a file with the decoder of the official Go client, and returns their number.
func checkPatches(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var file struct {
		Vectors []struct {
			Name  string  `json:"name"`
			Old   string  `json:"old"`
			New   string  `json:"new"`
			Patch *string `json:"patch"`
		} `json:"vectors"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return 0, err
	}
	checked := 0
	for _, vector := range file.Vectors {
		if vector.Patch == nil {
			continue
		}
		made, err := fdelta.Apply([]byte(vector.Old), []byte(*vector.Patch))
		if err != nil {
			return checked, fmt.Errorf("%s: %w", vector.Name, err)
		}
		if string(made) != vector.New {
			return checked, fmt.Errorf("%s: the patch makes %q", vector.Name, made)
		}
		checked++
	}
	return checked, nil
}
