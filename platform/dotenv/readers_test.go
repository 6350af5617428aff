package dotenv

import (
	_ "embed"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"
	"unicode/utf8"
)

var textsFile = flag.String("texts", "", "write the texts of the tables to this file, for testdata/record, and check nothing")

//go:embed testdata/readers.json
var recorded []byte

// TestOtherProgramsReadTheSame compares Parse with what the npm package dotenv, Docker Compose and bash made of each text: what Parse takes means the
// same to all of them, and what it refuses as read differently does not.
func TestOtherProgramsReadTheSame(t *testing.T) {
	var texts []string
	for _, row := range slices.Concat(rows, differing) {
		if len(row.text) < 1000 && utf8.ValidString(row.text) {
			texts = append(texts, row.text)
		}
	}
	if *textsFile != "" {
		text, err := json.Marshal(texts)
		if err == nil {
			err = os.WriteFile(*textsFile, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	var readings []struct {
		Text                  string
		Dotenv, Compose, Bash map[string]string
	}
	if err := json.Unmarshal(recorded, &readings); err != nil {
		t.Fatal(err)
	}
	if len(readings) != len(texts) {
		t.Fatalf("%d texts are recorded, and there are %d; run dotenv/testdata/record", len(readings), len(texts))
	}
	accepted, refused := 0, 0
	for index, reading := range readings {
		if reading.Text != texts[index] {
			t.Fatalf("%q is not recorded; run dotenv/testdata/record", texts[index])
		}
		stored, err := ParseStored([]byte(reading.Text))
		if err != nil {
			continue
		}
		values := map[string]string{}
		for _, line := range Entries(stored) {
			values[line.Key] = line.Value
		}
		isSame := true
		for _, other := range []map[string]string{reading.Dotenv, reading.Compose, reading.Bash} {
			isSame = isSame && other != nil && maps.Equal(other, values)
		}
		_, err = Parse([]byte(reading.Text))
		switch {
		case err == nil && !isSame:
			t.Errorf("%q is %q, but to others:\ndotenv  %q\nCompose %q\nbash    %q", reading.Text, values, reading.Dotenv, reading.Compose, reading.Bash)
		case err != nil && isSame:
			t.Errorf("%q is the same to all, but refused: %s", reading.Text, err)
		case err == nil:
			accepted++
		default:
			refused++
		}
	}
	t.Logf("%d texts are the same to all, %d are refused as different", accepted, refused)
	if accepted < 40 || refused < 40 {
		t.Errorf("%d are accepted, %d refused", accepted, refused)
	}
}
