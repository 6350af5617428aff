package backup

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestTheNewestBackupOfANode(t *testing.T) {
	for _, row := range []struct {
		name  string
		files map[string]string
		// seconds since 1970, or a word of the error.
		seconds int64
		word    string
	}{
		{"numbers are no words", map[string]string{"9": "1700000000\n3\n", "10": "1700003600\n3\n"}, 1700003600, ""},
		{"one is being made", map[string]string{"1": "1700000000\n", "2.tmp": "1700003600\n"}, 1700000000, ""},
		{"a version before the time", map[string]string{"1": "schema_version 2.0\n1700000000\n"}, 1700000000, ""},
		{"none", map[string]string{"1.tmp": "1700000000\n"}, 0, "meta contains no backup"},
		{"no time", map[string]string{"1": "private/1/CURRENT crc32 5\n"}, 0, "1 contains no time"},
		{"no folder", nil, 0, "no such file"},
	} {
		site := &site{t: t}
		folder := t.TempDir()
		for name, text := range row.files {
			site.write(filepath.Join(folder, "meta", name), text)
		}
		made, err := newestBackup(folder)
		switch {
		case row.word == "" && (err != nil || made.Unix() != row.seconds):
			t.Errorf("%s: %s, %v", row.name, made, err)
		case row.word != "" && (err == nil || !strings.Contains(err.Error(), row.word)):
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
