package dotenv

import (
	"fmt"
	"strings"
)

// reader parses a text without a BOM and with LF line endings.
type reader struct {
	rest string
	line int
}

// next parses one line, or several if a quoted value spans them. It returns a comment after a value before the entry.
func (r *reader) next() ([]Line, error) {
	r.skipBlanks()
	switch {
	case r.rest == "":
		return nil, nil
	case r.rest[0] == '\n':
		r.endLine()
		return nil, nil
	case r.rest[0] == '#':
		comment := r.takeLine()
		line := Line{Comment: strings.TrimRight(comment[1:], " \t"), Number: r.line}
		line.differs = differs(line, "", "")
		r.endLine()
		return []Line{line}, nil
	}
	number := r.line
	key, err := r.key()
	if err != nil {
		return nil, err
	}
	rest := r.rest
	value, err := r.value()
	if err != nil {
		return nil, err
	}
	raw := rest[:len(rest)-len(r.rest)]
	after, _, _ := strings.Cut(r.rest, "\n")
	comment, err := r.lineEnd()
	if err != nil {
		return nil, err
	}
	entry := Line{Key: key, Value: value, Number: number}
	entry.differs = differs(entry, raw, after)
	if comment != nil {
		remark := Line{Comment: *comment, Number: number}
		remark.differs = differs(remark, "", "")
		return []Line{remark, entry}, nil
	}
	return []Line{entry}, nil
}

// key parses the text up to and including `=`, and skips `export`.
func (r *reader) key() (string, error) {
	line := r.rest
	if end := strings.IndexByte(line, '\n'); end >= 0 {
		line = line[:end]
	}
	name, _, hasValue := strings.Cut(line, "=")
	if !hasValue {
		return "", r.fail("there is no `=`", "write KEY=value, or begin a comment with #")
	}
	r.rest = r.rest[len(name)+1:]
	if after, isExported := strings.CutPrefix(name, "export"); isExported && after != strings.TrimLeft(after, " \t") {
		name = strings.TrimLeft(after, " \t")
	}
	if trimmed := strings.TrimRight(name, " \t"); trimmed != name && IsKey(trimmed) {
		return "", r.fail("there is a space before `=`, which shells refuse", "remove it")
	}
	if len(name) > KeyBytesMax {
		return "", r.fail(fmt.Sprintf("the key has %d bytes, more than %d", len(name), KeyBytesMax), "shorten it")
	}
	if !IsKey(name) {
		remedy := "use A-Z, a-z, 0-9 and _, and begin with no digit"
		return "", r.fail("the text before `=` is not the name of an environment variable", remedy)
	}
	return name, nil
}

func (r *reader) value() (string, error) {
	if r.rest == "" {
		return "", nil
	}
	switch r.rest[0] {
	case '\'':
		return r.singleQuoted()
	case '"':
		return r.doubleQuoted()
	case '`':
		return "", r.fail("the value begins with a backtick, which only some programs take for a quote", "use ' or \"")
	}
	return r.unquoted()
}

// unquoted parses a value up to a comment or the end of the line. There are no escapes and no expansion.
func (r *reader) unquoted() (string, error) {
	line := r.takeLine()
	value := line
	for position := 0; position < len(line); position++ {
		isComment := line[position] == '#' && position > 0 && isBlank(line[position-1])
		if isComment {
			value = line[:position]
			r.rest = line[position:] + r.rest
			break
		}
	}
	trimmed := strings.TrimRight(value, " \t")
	r.rest = value[len(trimmed):] + r.rest
	if trimmed != "" && isBlank(trimmed[0]) {
		return "", r.fail("there is a space after `=`, which shells refuse", "remove it, or put the value in quotes")
	}
	if strings.HasPrefix(trimmed, "#") {
		return "", r.fail("the value begins with #, which some programs take for a comment", "put the value in quotes")
	}
	return trimmed, nil
}

// singleQuoted parses a value without escapes. It may contain line feeds.
func (r *reader) singleQuoted() (string, error) {
	end := strings.IndexByte(r.rest[1:], '\'')
	if end < 0 {
		return "", r.fail("the value begins with ' and has no closing '", "add the closing ', or use double quotes")
	}
	value := r.rest[1 : end+1]
	r.rest = r.rest[end+2:]
	r.line += strings.Count(value, "\n")
	return value, nil
}

// escapes maps the escapes of double-quoted values. Shells need `\$`; `$` alone is also a dollar sign.
var escapes = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', '\\': '\\', '"': '"', '$': '$'}

func (r *reader) doubleQuoted() (string, error) {
	var value strings.Builder
	lines := 0
	for position := 1; position < len(r.rest); position++ {
		char := r.rest[position]
		switch char {
		case '"':
			r.rest = r.rest[position+1:]
			r.line += lines
			return value.String(), nil
		case '\\':
			position++
			if position == len(r.rest) {
				continue
			}
			escaped, isKnown := escapes[r.rest[position]]
			if !isKnown {
				r.line += lines
				return "", r.fail("a backslash in double quotes is followed by neither n, r, t, \\, \" nor $",
					`write \\ for a backslash, or use single quotes`)
			}
			value.WriteByte(escaped)
		case '\n':
			lines++
			value.WriteByte(char)
		default:
			value.WriteByte(char)
		}
	}
	return "", r.fail(`the value begins with " and has no closing "`, `add the closing "`)
}

// lineEnd parses the text after a value: nothing, or a space and a comment.
func (r *reader) lineEnd() (*string, error) {
	line := r.takeLine()
	text := strings.TrimLeft(line, " \t")
	if text == "" {
		r.endLine()
		return nil, nil
	}
	if text[0] != '#' {
		return nil, r.fail("there is text after the closing quote", "put the whole value in one pair of quotes")
	}
	if text == line {
		return nil, r.fail("there is no space between the value and #", "add one, or move # into the quotes")
	}
	r.endLine()
	comment := strings.TrimRight(text[1:], " \t")
	return &comment, nil
}

// takeLine returns the rest of the line, without the line feed.
func (r *reader) takeLine() string {
	line, _, _ := strings.Cut(r.rest, "\n")
	r.rest = r.rest[len(line):]
	return line
}

func (r *reader) endLine() {
	if strings.HasPrefix(r.rest, "\n") {
		r.rest = r.rest[1:]
		r.line++
	}
}

func (r *reader) skipBlanks() { r.rest = strings.TrimLeft(r.rest, " \t") }

func (r *reader) fail(problem, remedy string) error { return &SyntaxError{r.line, problem, remedy} }

func isBlank(char byte) bool { return char == ' ' || char == '\t' }
