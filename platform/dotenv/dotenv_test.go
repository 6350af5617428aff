package dotenv

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// entries is a file as `KEY=value` strings, values as they are meant.
type row struct {
	name    string
	text    string
	entries []string
	problem string // part of the error, with its line
}

var rows = []row{
	{"empty file", "", nil, ""},
	{"blank lines only", "\n  \n\t\n", nil, ""},
	{"comment only", "# hello", nil, ""},
	{"comment after blanks", "   # hello\nA=1\n", []string{"A=1"}, ""},
	{"one entry", "A=1\n", []string{"A=1"}, ""},
	{"no line end at the end", "A=1", []string{"A=1"}, ""},
	{"order stays", "B=1\nA=2\n", []string{"B=1", "A=2"}, ""},
	{"byte order mark later", "A=1\n\ufeffB=2\n", nil, "line 2: the text before `=`"},
	{"CR alone", "A=1\rB=2", nil, "line 1: a carriage return"},
	{"CR at the end of the file", "A=1\r", nil, "line 1: a carriage return"},
	{"empty value", "A=\n", []string{"A="}, ""},
	{"empty value at the end of the file", "A=", []string{"A="}, ""},
	{"empty value and blanks", "A=  \t\nB=1", []string{"A=", "B=1"}, ""},
	{"empty single quotes", "A=''", []string{"A="}, ""},
	{"empty double quotes", `A=""`, []string{"A="}, ""},
	{"leading blanks", "  \tA=1", []string{"A=1"}, ""},
	{"trailing blanks", "A=1 \t\n", []string{"A=1"}, ""},
	{"equals in the value", "A=b=c==\n", []string{"A=b=c=="}, ""},
	{"comment after a value", "A=b # c", []string{"A=b"}, ""},
	{"value begins with a hash", "A=#b", nil, "line 1: the value begins with #"},
	{"hash in single quotes", "A='b # c'", []string{"A=b # c"}, ""},
	{"hash in double quotes", `A="b # c"`, []string{"A=b # c"}, ""},
	{"comment after quotes", `A="b" # c`, []string{"A=b"}, ""},
	{"comment against quotes", `A="b"# c`, nil, "line 1: there is no space between the value and #"},
	{"text after quotes", `A="b"c`, nil, "line 1: there is text after the closing quote"},
	{"two quotes", `A="b" "c"`, nil, "line 1: there is text after the closing quote"},
	{"single quotes are literal", `A='a\nb$C"d"'`, []string{`A=a\nb$C"d"`}, ""},
	{"unknown escape", `A="C:\dir"`, nil, "line 1: a backslash in double quotes"},
	{"unknown escape in a second line", "A=\"x\n\\d\"", nil, "line 2: a backslash in double quotes"},
	{"backtick", "A=`b`", nil, "line 1: the value begins with a backtick"},
	{"multi-line double", "A=\"1\n2\n3\"\nB=4", []string{"A=1\n2\n3", "B=4"}, ""},
	{"multi-line single", "A='1\n2'\nB=4", []string{"A=1\n2", "B=4"}, ""},
	{"a PEM key", "A=\"-----BEGIN-----\nabc=\n-----END-----\n\"\n", []string{"A=-----BEGIN-----\nabc=\n-----END-----\n"}, ""},
	{"line numbers after multi-line", "A=\"1\n2\"\nB", nil, "line 3: there is no `=`"},
	{"open double quote", "A=\"1\nB=2\n", nil, `line 1: the value begins with "`},
	{"open single quote", "A='1\nB=2\n", nil, "line 1: the value begins with '"},
	{"backslash at the end of the file", `A="1\`, nil, `line 1: the value begins with "`},
	{"export", "export A=1", []string{"A=1"}, ""},
	{"export and tabs", "export \t A=1", []string{"A=1"}, ""},
	{"export is a key", "export=1", []string{"export=1"}, ""},
	{"exported is a key", "exported=1", []string{"exported=1"}, ""},
	{"export without a value", "export A", nil, "line 1: there is no `=`"},
	{"no equals", "A\n", nil, "line 1: there is no `=`"},
	{"colon", "A: 1\n", nil, "line 1: there is no `=`"},
	{"no key", "=1", nil, "line 1: the text before `=`"},
	{"digit first", "1A=1", nil, "line 1: the text before `=`"},
	{"dash in the key", "A-B=1", nil, "line 1: the text before `=`"},
	{"dot in the key", "a.b=1", nil, "line 1: the text before `=`"},
	{"unicode in the key", "Ä=1", nil, "line 1: the text before `=`"},
	{"lower case", "a_b9=1", []string{"a_b9=1"}, ""},
	{"space before equals", "A =1", nil, "line 1: there is a space before `=`"},
	{"space after equals", "A= 1", nil, "line 1: there is a space after `=`"},
	{"space after equals, quoted", `A= "1"`, nil, "line 1: there is a space after `=`"},
	{"duplicate", "A=1\nB=2\nA=3", nil, "line 3: A is already set in line 1"},
	{"duplicate with the same value", "A=1\nA=1", nil, "line 2: A is already set in line 1"},
	{"case makes keys different", "A=1\na=2", []string{"A=1", "a=2"}, ""},
	{"replacement character", "A=\ufffd", []string{"A=\ufffd"}, ""},
	{"not UTF-8", "A=1\nB=\xff", nil, "line 2: the line is not UTF-8"},
	{"NUL", "A=1\x00", nil, "line 1: the line contains the control character U+0000"},
	{"escape character", "A=\x1b[0m", nil, "line 1: the line contains the control character U+001B"},
	{"delete character", "A=\x7f", nil, "line 1: the line contains the control character U+007F"},
	{"JSON in single quotes", `A='{"a": "b # c"}'`, []string{`A={"a": "b # c"}`}, ""},
	{"key of 253 bytes", strings.Repeat("A", 253) + "=1", []string{strings.Repeat("A", 253) + "=1"}, ""},
	{"key of 254 bytes", strings.Repeat("A", 254) + "=1", nil, "line 1: the key has 254 bytes"},
	{"1 MiB", "A=" + strings.Repeat("x", FileBytesMax-3) + "\n", []string{"A=" + strings.Repeat("x", FileBytesMax-3)}, ""},
	{"1 MiB and a byte", "A=" + strings.Repeat("x", FileBytesMax-1), nil, "the file has 1048577 bytes"},
	{"ciphertext is text here", "A=ENC[AES256_GCM,data:x]", []string{"A=ENC[AES256_GCM,data:x]"}, ""},
	{"plain characters", "A=azAZ09_./:@%+,=-^?*[]!é🐦", []string{"A=azAZ09_./:@%+,=-^?*[]!é🐦"}, ""},
	{"a URL without special characters", "A=postgres://u:p@h:5432/d?x=1", []string{"A=postgres://u:p@h:5432/d?x=1"}, ""},
	{"export and quotes", "export A='{a,b}'", []string{"A={a,b}"}, ""},
	{"dollar in single quotes", "A='a$b $(id) `id` ${B}'", []string{"A=a$b $(id) `id` ${B}"}, ""},
	{"backslashes in single quotes", `A='C:\dir \n \\ x'`, []string{`A=C:\dir \n \\ x`}, ""},
	{"apostrophe in double quotes", `A="it's; a & b | c #d"`, []string{"A=it's; a & b | c #d"}, ""},
	{"comment with quotes", "A=b # it's \"c\nB='d'", []string{"A=b", "B=d"}, ""},
	{"comment line with quotes", "# it's \"c\nB='d'", []string{"B=d"}, ""},
	{"comment after quotes and a tab", "A='b'\t# c", []string{"A=b"}, ""},
	{"spaces in quotes", "A=' b '\nB=\"\tc \"", []string{"A= b ", "B=\tc "}, ""},
	{"line separator in quotes", "A='a\u2028B=1'", []string{"A=a\u2028B=1"}, ""},
	{"no-break space in quotes", "A='\u00a0b\u00a0'", []string{"A=\u00a0b\u00a0"}, ""},
	{"lines in single quotes with other quotes", "A='1\n\"2\"\n3'\nB=4", []string{"A=1\n\"2\"\n3", "B=4"}, ""},
}

const (
	special        = "line 1: the value contains a character that bash, Compose or dotenv reads differently without quotes"
	inDoubleQuotes = "line 1: a $, a backtick or a backslash is in double quotes"
)

// differing are texts that Parse refuses, because programs read them differently. The entries are those of ParseStored.
var differing = []row{
	{"byte order mark", "\ufeffA=1\n", []string{"A=1"}, "line 1: the file begins with a byte order mark"},
	{"byte order mark alone", "\ufeff", nil, "line 1: the file begins with a byte order mark"},
	{"CRLF", "A=1\r\nB=2\r\n", []string{"A=1", "B=2"}, "line 1: the line ends with CRLF"},
	{"CRLF in quotes is LF", "A='1\r\n2'\r\n", []string{"A=1\n2"}, "line 1: the line ends with CRLF"},
	{"CRLF after a quote", "A=\"1\"\r\nB=2", []string{"A=1", "B=2"}, "line 1: the line ends with CRLF"},
	{"empty value and comment", "A= # none", []string{"A="}, "line 1: a comment follows an empty value"},
	{"inner blanks", "A=one two  three\n", []string{"A=one two  three"}, special},
	{"a URL", "A=postgres://u:p@h:5432/d?x=1&y=2\n", []string{"A=postgres://u:p@h:5432/d?x=1&y=2"}, special},
	{"hash without a blank", "A=b#c", []string{"A=b#c"}, special},
	{"comment after a tab", "A=b\t# c", []string{"A=b"}, "line 1: a tab is before the comment"},
	{"two hashes", "A=b#c # d # e", []string{"A=b#c"}, special},
	{"double quotes escape", `A="a\nb\tc\rd\\e\"f\$g"`, []string{"A=a\nb\tc\rd\\e\"f$g"}, inDoubleQuotes},
	{"no expansion", `A="$HOME ${B}"`, []string{"A=$HOME ${B}"}, inDoubleQuotes},
	{"no expansion without quotes", `A=$HOME`, []string{"A=$HOME"}, special},
	{"no command", "A=\"`id`\"", []string{"A=`id`"}, inDoubleQuotes},
	{"no command without quotes", "A=$(id)", []string{"A=$(id)"}, special},
	{"backslash without quotes", `A=C:\dir`, []string{`A=C:\dir`}, special},
	{"backslash-n without quotes", `A=a\nb`, []string{`A=a\nb`}, special},
	{"quotes inside a value", `A=it's "fine"`, []string{`A=it's "fine"`}, special},
	{"unicode value", "A=Grüße 🐦 日本", []string{"A=Grüße 🐦 日本"}, special},
	{"tab inside a value", "A=a\tb", []string{"A=a\tb"}, special},
	{"JSON", `A={"a": [1, 2]}`, []string{`A={"a": [1, 2]}`}, special},
	{"hash in the middle", "A=a#b", []string{"A=a#b"}, special},
	{"dollar in double quotes", `A="a$b"`, []string{"A=a$b"}, inDoubleQuotes},
	{"escaped dollar", `A="a\$b"`, []string{"A=a$b"}, inDoubleQuotes},
	{"escaped quote", `A="a\"b"`, []string{`A=a"b`}, inDoubleQuotes},
	{"escaped backslash", `A="a\\b"`, []string{`A=a\b`}, inDoubleQuotes},
	{"escaped line feed", `A="a\nb"`, []string{"A=a\nb"}, inDoubleQuotes},
	{"escaped tab", `A="a\tb"`, []string{"A=a\tb"}, inDoubleQuotes},
	{"two dollars", "A=a$$b", []string{"A=a$$b"}, special},
	{"ampersand", "A=a&b", []string{"A=a&b"}, special},
	{"semicolon", "A=a;b", []string{"A=a;b"}, special},
	{"pipe", "A=a|b", []string{"A=a|b"}, special},
	{"redirection", "A=a<b>c", []string{"A=a<b>c"}, special},
	{"parentheses", "A=f(x)", []string{"A=f(x)"}, special},
	{"backtick inside", "A=a`b`", []string{"A=a`b`"}, special},
	{"tilde", "A=~/shop", []string{"A=~/shop"}, special},
	{"tilde after a colon", "A=/a:~/b", []string{"A=/a:~/b"}, special},
	{"braces after export", "export A={a,b}", []string{"A={a,b}"}, special},
	{"apostrophe inside", "A=it's", []string{"A=it's"}, special},
	{"quote inside", `A=a"b"`, []string{`A=a"b"`}, special},
	{"no-break space at the end", "A=a\u00a0", []string{"A=a\u00a0"}, special},
	{"no-break space at the beginning", "A=\u00a0a", []string{"A=\u00a0a"}, special},
	{"zero-width no-break space at the end", "A=a\ufeff", []string{"A=a\ufeff"}, special},
	{"single quotes end with a backslash", `A='a\'` + "\nB='b'", []string{`A=a\`, "B=b"}, "line 1: the value ends with a backslash"},
	{"line separator in a comment", "# a\u2028B=1\nA=2", []string{"A=2"}, "line 1: the comment contains a line separator of Unicode"},
	{"a variable that bash does not set", "UID=1000", []string{"UID=1000"}, "line 1: UID is a name that bash or JavaScript uses itself"},
	{"a variable that bash counts", "A=1\nSECONDS=5", []string{"A=1", "SECONDS=5"}, "line 2: SECONDS is a name that bash or JavaScript uses itself"},
	{"the prototype", "__proto__=1", []string{"__proto__=1"}, "line 1: __proto__ is a name that bash or JavaScript uses itself"},
}

func TestDialect(t *testing.T) {
	if len(rows) < 60 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			lines, err := Parse([]byte(row.text))
			if row.problem != "" {
				if err == nil || !strings.Contains(err.Error(), row.problem) {
					t.Fatalf("%v, expected %s", err, row.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if found := written(lines); !reflect.DeepEqual(found, row.entries) {
				t.Fatalf("%q, expected %q", found, row.entries)
			}
			comesBack(t, lines)
		})
	}
	for _, row := range differing {
		t.Run(row.name, func(t *testing.T) {
			if _, err := Parse([]byte(row.text)); err == nil || !strings.Contains(err.Error(), row.problem) {
				t.Fatalf("%v, expected %s", err, row.problem)
			}
			lines, err := ParseStored([]byte(row.text))
			if found := written(lines); err != nil || !reflect.DeepEqual(found, row.entries) {
				t.Fatalf("%q, expected %q, %v", found, row.entries, err)
			}
			comesBack(t, lines)
		})
	}
}

// comesBack checks that both written forms are read back as the same lines.
func comesBack(t *testing.T, lines []Line) {
	t.Helper()
	again, err := ParseStored(Format(lines))
	if err != nil || !reflect.DeepEqual(written(again), written(lines)) {
		t.Fatalf("written and read again: %q, %v", written(again), err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(string(Format(lines)), "\n"), "\n") {
		if len(lines) > 0 && line == "" {
			t.Fatal("an entry takes more than one line")
		}
	}
	again, err = ParseChange(Text(lines), lines)
	if err != nil || !reflect.DeepEqual(written(again), written(lines)) {
		t.Fatalf("written for a person and read again: %q, %v", written(again), err)
	}
}

func written(lines []Line) []string {
	var entries []string
	for _, line := range Entries(lines) {
		entries = append(entries, line.Key+"="+line.Value)
	}
	return entries
}

func TestEachErrorHasARemedyAndNoValue(t *testing.T) {
	const canary = "c4n4ry"
	for _, text := range []string{
		"A= c4n4ry", "A=`c4n4ry`", `A="c4n4ry`, "A='c4n4ry", `A="c4n4ry"x`, `A="c4n4ry\d"`, "A=#c4n4ry",
		"A=c4n4ry b", `A="c4n4ry$"`, `A='c4n4ry\'`, "A=c4n4ry\t# c4n4ry", "A= # c4n4ry", "UID=c4n4ry", "A=c4n4ry\r\n", "A=c4n4ry\u2028", "\ufeffA=c4n4ry",
		"A=c4n4ry\x00", "A=c4n4ry\xff", "A=c4n4ry\rB", "A=1\nA=c4n4ry", "c4n4ry", "c4n4ry-x=1", "A =c4n4ry",
	} {
		_, err := Parse([]byte(text))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Fatalf("%q: %v", text, err)
		}
		if syntax.Remedy == "" || syntax.Line < 1 {
			t.Errorf("%q: no remedy or no line: %+v", text, syntax)
		}
		if strings.Contains(err.Error(), canary) {
			t.Errorf("%q: the error contains the value: %v", text, err)
		}
	}
}

func TestCommentsStay(t *testing.T) {
	lines, err := Parse([]byte("# first\nA=1 # of A\n  #last  \n"))
	if err != nil {
		t.Fatal(err)
	}
	if found := string(Format(lines)); found != "# first\n# of A\nA=1\n#last\n" {
		t.Fatalf("%q", found)
	}
}

// What Format writes, Parse reads back, for values of every character that makes a difference.
func TestRandomValuesComeBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("aZ0_ \t\n\r'\"\\`#$=nrt{}()&;!ä🐦\ufffd")
	for range 5000 {
		runes := make([]rune, random.IntN(12))
		for index := range runes {
			runes[index] = alphabet[random.IntN(len(alphabet))]
		}
		value := string(runes)
		given := []Line{{Key: "A", Value: value}, {Key: "B", Value: "end"}}
		lines, err := ParseStored(Format(given))
		if err != nil || len(lines) != 2 || lines[0].Value != value || lines[1].Value != "end" {
			t.Fatalf("%q became %+v, %v", value, lines, err)
		}
		lines, err = ParseChange(Text(given), given)
		if err != nil || len(lines) != 2 || lines[0].Value != value || lines[1].Value != "end" {
			t.Fatalf("%q became %+v, %v", value, lines, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, row := range slices.Concat(rows, differing) {
		f.Add([]byte(row.text))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		lines, err := ParseStored(content)
		if err != nil {
			return
		}
		again, err := ParseStored(Format(lines))
		if len(Format(lines)) > FileBytesMax {
			return
		}
		if err != nil || !reflect.DeepEqual(written(again), written(lines)) {
			t.Fatalf("%q: %v", content, err)
		}
	})
}
