package backup

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The restore compares files even if the check of the repository has not read the damaged data.
func TestWhatDiffersIsFound(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	saved := site.must(site.save(Keep{}))
	snapshot, err := site.repository.find(t.Context(), saved.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	if err := site.repository.restore(t.Context(), snapshot, into); err != nil {
		t.Fatal(err)
	}
	manifest, err := readManifest(into)
	if err != nil {
		t.Fatal(err)
	}
	name := "volumes/logs/-o \"quoted\"\nline"
	entry := manifest.Entries[name]
	entry.SHA256 = strings.Repeat("0", 64)
	manifest.Entries[name] = entry
	manifest.Entries["volumes/data/tables/gone"] = Entry{}
	_, err = site.repository.compare(t.Context(), snapshot, manifest, into)
	site.fails(Report{}, err)("1 of ", "restored entries differ", "different content")
}

func TestCompare(t *testing.T) {
	when := time.Unix(1_700_000_000, 0).UTC()
	file := Entry{Mode: 0o640, Size: 3, Modified: when, SHA256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
	for _, row := range []struct {
		name                string
		entry               Entry
		listed              *saved
		content             string
		compared, changed   int
		difference, verdict string
		isEnough            bool
	}{
		{"the same", file, &saved{3, when}, "abc", 1, 0, "", "", true},
		{"different content", file, &saved{3, when}, "abd", 0, 0, "different content", "1 of 1 restored entries differ", false},
		{"shorter", file, &saved{3, when}, "ab", 0, 0, "2 bytes instead of 3", "differ", false},
		{"missing", file, &saved{3, when}, "", 0, 0, "missing", "differ", false},
		{"changed while it was saved", file, &saved{3, when.Add(1)}, "abd", 0, 1, "", "", false},
		{"deleted while it was saved", file, nil, "", 0, 1, "", "", false},
		{"another mode", Entry{Mode: 0o600, Size: 3, Modified: when, SHA256: file.SHA256}, &saved{3, when}, "abc", 0, 0, "mode -rw-r----- instead of -rw-------", "differ", false},
		{"a folder instead of a file", Entry{Mode: fs.ModeDir | 0o755}, &saved{}, "abc", 0, 0, "mode", "differ", false},
	} {
		root := t.TempDir()
		if row.content != "" {
			if err := os.WriteFile(filepath.Join(root, "file"), []byte(row.content), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		listed := map[string]saved{}
		if row.listed != nil {
			listed["file"] = *row.listed
		}
		manifest := Manifest{Entries: map[string]Entry{"file": row.entry}}
		found, err := compare(manifest, listed, root)
		if err != nil || found.Files != row.compared || found.Changed != row.changed || !strings.Contains(strings.Join(found.Differences, " "), row.difference) {
			t.Errorf("%s: %+v, %v", row.name, found, err)
		}
		if verdict := fmt.Sprint(found.check(manifest)); !strings.Contains(verdict, row.verdict) || row.verdict == "" && verdict != "<nil>" {
			t.Errorf("%s: %s", row.name, verdict)
		}
		if err := found.checkShare(manifest); (err == nil) != row.isEnough {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// A drill counts only if enough was compared.
func TestTheShareThatIsCompared(t *testing.T) {
	for _, row := range []struct {
		sizes    []int64
		compared Comparison
		isEnough bool
	}{
		{nil, Comparison{}, false},
		{[]int64{5}, Comparison{Files: 1, Bytes: 5}, true},
		{[]int64{5, 5}, Comparison{Files: 1, Bytes: 5}, true},
		{[]int64{5, 6}, Comparison{Files: 1, Bytes: 5}, false},
		{[]int64{9, 1, 1}, Comparison{Files: 1, Bytes: 9}, false},
		{[]int64{9, 1, 1}, Comparison{Files: 2, Bytes: 2}, false},
		{[]int64{0}, Comparison{Files: 1}, true},
	} {
		manifest := Manifest{Entries: map[string]Entry{"folder": {Mode: fs.ModeDir}}}
		for index, size := range row.sizes {
			manifest.Entries[fmt.Sprint(index)] = Entry{Size: size}
		}
		if err := row.compared.checkShare(manifest); (err == nil) != row.isEnough || err != nil && !strings.Contains(err.Error(), "have spec.backup.command write a dump") {
			t.Errorf("%v, %+v: %v", row.sizes, row.compared, err)
		}
	}
}
