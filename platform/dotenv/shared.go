package dotenv

import (
	"slices"
	"strings"
	"unicode"
)

// This file decides whether bash, Docker Compose and the npm package dotenv read an entry as Parse does. testdata/readers.json has what they make of
// each form.

// ownKeys are set or kept by bash, or by JavaScript, whatever a file says.
var ownKeys = []string{
	"_", "__proto__", "BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS", "BASH_COMPAT", "BASH_LINENO",
	"BASH_SOURCE", "BASH_SUBSHELL", "BASH_VERSINFO", "BASH_XTRACEFD", "COMP_WORDBREAKS", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "LINENO",
	"OPTIND", "PIPESTATUS", "PPID", "RANDOM", "SECONDS", "SHELLOPTS", "SRANDOM", "UID",
}

const quoteRemedy = "put it in single quotes, or in double quotes if it contains '"

// noForm is the remedy for a value that the readers cannot agree on.
const noForm = "encode the value in base64"

// differs returns the problem of an entry that other readers read differently. raw is its value as it is written, after is the rest of its line.
func differs(line Line, raw, after string) error {
	fail := func(problem, remedy string) error { return &SyntaxError{line.Number, problem, remedy} }
	if strings.ContainsAny(line.Comment, "\u2028\u2029") {
		return fail("the comment contains a line separator of Unicode, at which only dotenv ends a line", "remove it")
	}
	if slices.Contains(ownKeys, line.Key) {
		return fail(line.Key+" is a name that bash or JavaScript uses itself", "choose another name")
	}
	switch {
	case line.IsComment():
	case strings.HasPrefix(raw, "'"):
		if strings.HasSuffix(line.Value, `\`) {
			return fail("the value ends with a backslash, after which Compose and dotenv do not end the quotes", noForm)
		}
	case strings.HasPrefix(raw, `"`):
		if strings.ContainsAny(raw, "$`\\") {
			return fail("a $, a backtick or a backslash is in double quotes, where bash, Compose and dotenv read it differently",
				"use single quotes; if the value contains ' as well, "+noForm)
		}
	case strings.ContainsFunc(line.Value, isSpecial):
		return fail("the value contains a character that bash, Compose or dotenv reads differently without quotes", quoteRemedy)
	case line.Value == "" && strings.Contains(after, "#"):
		return fail("a comment follows an empty value, and Compose takes it for the value", "move the comment to a line of its own")
	case strings.Contains(after, "\t#"):
		return fail("a tab is before the comment, which Compose takes for a part of the value", "write a space instead")
	}
	return nil
}

// isSpecial reports whether a character has a meaning for one of the readers in a value without quotes.
func isSpecial(char rune) bool {
	if char >= 0x80 {
		return unicode.IsSpace(char) || char == '\ufeff'
	}
	return !isKeyChar(char) && !strings.ContainsRune("./:@%+,=-^?*[]!", char)
}

// differingText returns the problem of a character that makes a whole file differ.
func differingText(content string) error {
	number := 1
	if strings.HasPrefix(content, "\ufeff") {
		return &SyntaxError{1, "the file begins with a byte order mark, which bash takes for a part of the first key", "save the file as UTF-8 without it"}
	}
	for _, char := range content {
		switch char {
		case '\n':
			number++
		case '\r':
			return &SyntaxError{number, "the line ends with CRLF, and bash takes the carriage return for a part of the value",
				"save the file with LF; in Git, `*.env text eol=lf` in .gitattributes"}
		}
	}
	return nil
}
