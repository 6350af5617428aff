package dotenv

import "strings"

// Format writes each line as one line of the file, in a form that Parse, shells and sops parse to the same value.
func Format(lines []Line) []byte {
	var text strings.Builder
	for _, line := range lines {
		if line.IsComment() {
			text.WriteString("#" + line.Comment + "\n")
		} else {
			text.WriteString(line.Key + "=" + Quote(line.Value) + "\n")
		}
	}
	return []byte(text.String())
}

// Quote returns the simplest form of a value that has the same meaning in the dialect and in a shell.
func Quote(value string) string {
	switch {
	case isPlain(value):
		return value
	case !strings.ContainsAny(value, "'\n\r\t"):
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
