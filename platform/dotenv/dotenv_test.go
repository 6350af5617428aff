package dotenv

import (
	"errors"
	"math/rand/v2"
	"reflect"
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
	{"byte order mark", "\ufeffA=1\n", []string{"A=1"}, ""},
	{"byte order mark alone", "\ufeff", nil, ""},
	{"byte order mark later", "A=1\n\ufeffB=2\n", nil, "line 2: the text before `=`"},
	{"CRLF", "A=1\r\nB=2\r\n", []string{"A=1", "B=2"}, ""},
	{"CRLF in quotes is LF", "A='1\r\n2'\r\n", []string{"A=1\n2"}, ""},
	{"CRLF after a quote", "A=\"1\"\r\nB=2", []string{"A=1", "B=2"}, ""},
	{"CR alone", "A=1\rB=2", nil, "line 1: a carriage return"},
	{"CR at the end of the file", "A=1\r", nil, "line 1: a carriage return"},
	{"empty value", "A=\n", []string{"A="}, ""},
	{"empty value at the end of the file", "A=", []string{"A="}, ""},
	{"empty value and blanks", "A=  \t\nB=1", []string{"A=", "B=1"}, ""},
	{"empty value and comment", "A= # none", []string{"A="}, ""},
	{"empty single quotes", "A=''", []string{"A="}, ""},
	{"empty double quotes", `A=""`, []string{"A="}, ""},
	{"leading blanks", "  \tA=1", []string{"A=1"}, ""},
	{"trailing blanks", "A=1 \t\n", []string{"A=1"}, ""},
	{"inner blanks", "A=one two  three\n", []string{"A=one two  three"}, ""},
	{"equals in the value", "A=b=c==\n", []string{"A=b=c=="}, ""},
	{"a URL", "A=postgres://u:p@h:5432/d?x=1&y=2\n", []string{"A=postgres://u:p@h:5432/d?x=1&y=2"}, ""},
	{"hash without a blank", "A=b#c", []string{"A=b#c"}, ""},
	{"comment after a value", "A=b # c", []string{"A=b"}, ""},
	{"comment after a tab", "A=b\t# c", []string{"A=b"}, ""},
	{"two hashes", "A=b#c # d # e", []string{"A=b#c"}, ""},
	{"value begins with a hash", "A=#b", nil, "line 1: the value begins with #"},
	{"hash in single quotes", "A='b # c'", []string{"A=b # c"}, ""},
	{"hash in double quotes", `A="b # c"`, []string{"A=b # c"}, ""},
	{"comment after quotes", `A="b" # c`, []string{"A=b"}, ""},
	{"comment against quotes", `A="b"# c`, nil, "line 1: there is no space between the value and #"},
	{"text after quotes", `A="b"c`, nil, "line 1: there is text after the closing quote"},
	{"two quotes", `A="b" "c"`, nil, "line 1: there is text after the closing quote"},
	{"single quotes are literal", `A='a\nb$C"d"'`, []string{`A=a\nb$C"d"`}, ""},
	{"double quotes escape", `A="a\nb\tc\rd\\e\"f\$g"`, []string{"A=a\nb\tc\rd\\e\"f$g"}, ""},
	{"no expansion", `A="$HOME ${B}"`, []string{"A=$HOME ${B}"}, ""},
	{"no expansion without quotes", `A=$HOME`, []string{"A=$HOME"}, ""},
	{"no command", "A=\"`id`\"", []string{"A=`id`"}, ""},
	{"no command without quotes", "A=$(id)", []string{"A=$(id)"}, ""},
	{"unknown escape", `A="C:\dir"`, nil, "line 1: a backslash in double quotes"},
	{"unknown escape in a second line", "A=\"x\n\\d\"", nil, "line 2: a backslash in double quotes"},
	{"backslash without quotes", `A=C:\dir`, []string{`A=C:\dir`}, ""},
	{"backslash-n without quotes", `A=a\nb`, []string{`A=a\nb`}, ""},
	{"quotes inside a value", `A=it's "fine"`, []string{`A=it's "fine"`}, ""},
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
	{"unicode value", "A=Grüße 🐦 日本", []string{"A=Grüße 🐦 日本"}, ""},
	{"replacement character", "A=\ufffd", []string{"A=\ufffd"}, ""},
	{"not UTF-8", "A=1\nB=\xff", nil, "line 2: the line is not UTF-8"},
	{"NUL", "A=1\x00", nil, "line 1: the line contains the control character U+0000"},
	{"escape character", "A=\x1b[0m", nil, "line 1: the line contains the control character U+001B"},
	{"delete character", "A=\x7f", nil, "line 1: the line contains the control character U+007F"},
	{"tab inside a value", "A=a\tb", []string{"A=a\tb"}, ""},
	{"JSON", `A={"a": [1, 2]}`, []string{`A={"a": [1, 2]}`}, ""},
	{"JSON in single quotes", `A='{"a": "b # c"}'`, []string{`A={"a": "b # c"}`}, ""},
	{"key of 253 bytes", strings.Repeat("A", 253) + "=1", []string{strings.Repeat("A", 253) + "=1"}, ""},
	{"key of 254 bytes", strings.Repeat("A", 254) + "=1", nil, "line 1: the key has 254 bytes"},
	{"1 MiB", "A=" + strings.Repeat("x", FileBytesMax-3) + "\n", []string{"A=" + strings.Repeat("x", FileBytesMax-3)}, ""},
	{"1 MiB and a byte", "A=" + strings.Repeat("x", FileBytesMax-1), nil, "the file has 1048577 bytes"},
	{"ciphertext is text here", "A=ENC[AES256_GCM,data:x]", []string{"A=ENC[AES256_GCM,data:x]"}, ""},
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
			again, err := Parse(Format(lines))
			if err != nil || !reflect.DeepEqual(written(again), row.entries) {
				t.Fatalf("written and read again: %q, %v", written(again), err)
			}
			for _, line := range strings.Split(strings.TrimSuffix(string(Format(lines)), "\n"), "\n") {
				if len(lines) > 0 && line == "" {
					t.Fatal("an entry takes more than one line")
				}
			}
		})
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
		lines, err := Parse(Format([]Line{{Key: "A", Value: value}, {Key: "B", Value: "end"}}))
		if err != nil || len(lines) != 2 || lines[0].Value != value || lines[1].Value != "end" {
			t.Fatalf("%q became %+v, %v", value, lines, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, row := range rows {
		f.Add([]byte(row.text))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		lines, err := Parse(content)
		if err != nil {
			return
		}
		again, err := Parse(Format(lines))
		if len(Format(lines)) > FileBytesMax {
			return
		}
		if err != nil || !reflect.DeepEqual(written(again), written(lines)) {
			t.Fatalf("%q: %v", content, err)
		}
	})
}
