package dotenv

import "strings"

// Format writes each line as one line of the file, in a form that ParseStored and sops parse to the same value.
func Format(lines []Line) []byte { return format(lines, stored) }

// Text writes lines for a person, in forms that Parse accepts and all programs read alike. A value that has no such form is written as by Format.
func Text(lines []Line) []byte { return format(lines, Quote) }

func format(lines []Line, quote func(string) string) []byte {
	var text strings.Builder
	for _, line := range lines {
		if line.IsComment() {
			text.WriteString("#" + line.Comment + "\n")
		} else {
			text.WriteString(line.Key + "=" + quote(line.Value) + "\n")
		}
	}
	return []byte(text.String())
}

// Quote returns the simplest form of a value that all programs read alike, or else the stored form.
func Quote(value string) string {
	isText := !strings.Contains(value, "\r")
	switch {
	case isPlain(value):
		return value
	case isText && !strings.Contains(value, "'") && !strings.HasSuffix(value, `\`):
		return "'" + value + "'"
	case isText && !strings.ContainsAny(value, "\"$`\\"):
		return `"` + value + `"`
	}
	return stored(value)
}

// stored returns a form of one line.
func stored(value string) string {
	switch {
	case isPlain(value):
		return value
	case !strings.ContainsAny(value, "'\n\r"):
		return "'" + value + "'"
	}
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "\n", `\n`, "\r", `\r`, "\t", `\t`)
	return `"` + escaped.Replace(value) + `"`
}

// isPlain reports whether the value needs no quotes in the dialect and in shells.
func isPlain(value string) bool {
	for _, char := range value {
		if !isKeyChar(char) && !strings.ContainsRune("./:@%+,=-", char) {
			return false
		}
	}
	return true
}
