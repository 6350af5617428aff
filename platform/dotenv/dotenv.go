// Package dotenv reads and writes the one dialect of .env files that Roost accepts. docs/dotenv.md describes it.
//
// The dialect is the common subset of bash, Docker Compose and the npm package dotenv. If these disagree about a line, Parse returns an error with a
// remedy, so that a value has the same meaning on a laptop and in the cluster. No error contains a value, because values are secrets.
package dotenv

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// FileBytesMax is the limit of Kubernetes for all values of a Secret together.
	FileBytesMax = 1 << 20
	// KeyBytesMax is the limit of Kubernetes for a key of a Secret.
	KeyBytesMax = 253
)

// Line is an entry or a comment. Blank lines are not kept.
type Line struct {
	// Comment is the text after `#`. It is used only if Key is empty.
	Comment string
	Key     string
	Value   string
	// Number is the number of the line in which the entry begins, from 1.
	Number int
	// differs is the problem of an entry that other programs read differently.
	differs error
}

// IsComment reports whether the line has no key.
func (line Line) IsComment() bool { return line.Key == "" }

// SyntaxError describes a line that is not in the dialect.
type SyntaxError struct {
	Line    int
	Problem string
	Remedy  string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d: %s; %s", e.Line, e.Problem, e.Remedy)
}

// Parse returns the lines of a file that a person has written, in their order.
func Parse(content []byte) ([]Line, error) { return ParseChange(content, nil) }

// ParseChange is Parse for a text that was made from other lines by Text. Lines with the content of these may have a form that other programs
// read differently, because no form is the same for all programs.
func ParseChange(content []byte, before []Line) ([]Line, error) {
	lines, err := ParseStored(content)
	if err == nil {
		err = differingText(string(content))
	}
	if err != nil {
		return nil, err
	}
	type text struct{ comment, key, value string }
	known := map[text]bool{}
	for _, line := range before {
		known[text{line.Comment, line.Key, line.Value}] = true
	}
	for _, line := range lines {
		if line.differs != nil && !known[text{line.Comment, line.Key, line.Value}] {
			return nil, line.differs
		}
	}
	return lines, nil
}

// ParseStored also accepts forms that other programs read differently: a backslash in double quotes is an escape, and nothing is special without
// quotes but a comment. It is for files that Format has written, and for those that earlier versions of Parse have accepted.
func ParseStored(content []byte) ([]Line, error) {
	if len(content) > FileBytesMax {
		problem := fmt.Sprintf("the file has %d bytes, more than %d", len(content), FileBytesMax)
		return nil, &SyntaxError{1, problem, "mount large content as a volume"}
	}
	text := strings.TrimPrefix(string(content), "\ufeff")
	if err := checkText(text); err != nil {
		return nil, err
	}
	reader := reader{rest: strings.ReplaceAll(text, "\r\n", "\n"), line: 1}
	var lines []Line
	first := map[string]int{}
	for reader.rest != "" {
		read, err := reader.next()
		if err != nil {
			return nil, err
		}
		for _, line := range read {
			if before, isThere := first[line.Key]; isThere && !line.IsComment() {
				problem := fmt.Sprintf("%s is already set in line %d", line.Key, before)
				return nil, &SyntaxError{line.Number, problem, "remove one of the two lines"}
			}
			first[line.Key] = line.Number
		}
		lines = append(lines, read...)
	}
	return lines, nil
}

// Entries returns the lines that are not comments.
func Entries(lines []Line) []Line {
	var entries []Line
	for _, line := range lines {
		if !line.IsComment() {
			entries = append(entries, line)
		}
	}
	return entries
}

// checkText rejects bytes that some programs would remove or change.
func checkText(text string) error {
	number := 1
	for position, char := range text {
		switch {
		case char == '\n':
			number++
		case char == utf8.RuneError && strings.HasPrefix(text[position:], "\ufffd"):
			// The valid encoding of the replacement character itself.
		case char == utf8.RuneError:
			return &SyntaxError{number, "the line is not UTF-8", "save the file as UTF-8"}
		case char == '\r' && !strings.HasPrefix(text[position:], "\r\n"):
			return &SyntaxError{number, "a carriage return is not followed by a line feed", `write \r in double quotes`}
		case char < ' ' && char != '\t' && char != '\r', char == 0x7f:
			problem := fmt.Sprintf("the line contains the control character U+%04X", char)
			return &SyntaxError{number, problem, "remove it, or encode the value in base64"}
		}
	}
	return nil
}

// IsKey reports whether a name is a valid name of an environment variable in every shell.
func IsKey(name string) bool {
	if name == "" || len(name) > KeyBytesMax || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	for _, char := range name {
		if !isKeyChar(char) {
			return false
		}
	}
	return true
}

func isKeyChar(char rune) bool {
	return char == '_' || char >= '0' && char <= '9' || char >= 'A' && char <= 'Z' || char >= 'a' && char <= 'z'
}
