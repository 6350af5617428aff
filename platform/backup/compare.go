package backup

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// differencesMax bounds the differences that an error message lists.
const differencesMax = 5

// saved is what a snapshot records about an entry.
type saved struct {
	size     int64
	modified time.Time
}

// Comparison is the result of comparing restored files with the manifest.
type Comparison struct {
	// Files is the number of files whose bytes were compared, and Bytes the number of bytes.
	Files int
	Bytes int64
	// Changed is the number of files that the snapshot contains in a later state than the manifest, or not at all.
	Changed     int
	Differences []string
}

// compare compares the files below root with the manifest. A file that changed between the manifest and the snapshot cannot be compared. The
// snapshot's own list shows such a file by its size and time.
func compare(manifest Manifest, listed map[string]saved, root string) (Comparison, error) {
	var result Comparison
	for _, name := range slices.Sorted(maps.Keys(manifest.Entries)) {
		expected := manifest.Entries[name]
		inSnapshot, isListed := listed[name]
		isChanged := expected.Mode.IsRegular() && (inSnapshot.size != expected.Size || !inSnapshot.modified.Equal(expected.Modified))
		if !isListed || isChanged {
			result.Changed++
			continue
		}
		found, err := entryOf(filepath.Join(root, name))
		if err != nil {
			return result, err
		}
		if difference := differenceOf(expected, found); difference != "" {
			result.Differences = append(result.Differences, name+": "+difference)
			continue
		}
		if expected.Mode.IsRegular() {
			result.Files++
			result.Bytes += expected.Size
		}
	}
	return result, nil
}

func differenceOf(expected Entry, found *Entry) string {
	switch {
	case found == nil:
		return "missing"
	case expected.Mode != found.Mode:
		return fmt.Sprintf("mode %s instead of %s", found.Mode, expected.Mode)
	case expected.Size != found.Size:
		return fmt.Sprintf("%d bytes instead of %d", found.Size, expected.Size)
	case expected.SHA256 != found.SHA256:
		return "different content"
	case expected.Target != found.Target:
		return fmt.Sprintf("a link to %s instead of %s", found.Target, expected.Target)
	}
	return ""
}

// check returns an error if the restored entries differ from the saved ones.
func (comparison Comparison) check(manifest Manifest) error {
	if count := len(comparison.Differences); count > 0 {
		return fmt.Errorf("%d of %d restored entries differ from what was saved: %s; make a new backup, and check the store of the repository",
			count, len(manifest.Entries), strings.Join(comparison.Differences[:min(count, differencesMax)], "; "))
	}
	return nil
}

// checkShare returns an error if too little was compared for a verified restore. At least half of the files, with at least half of the bytes,
// must be compared.
func (comparison Comparison) checkShare(manifest Manifest) error {
	files, bytes := manifest.filesAndBytes()
	if files == 0 || comparison.Files*2 < files || comparison.Bytes*2 < bytes {
		return fmt.Errorf("only %d of %d files, with %d of %d bytes, were compared, because the others changed while they were saved; have spec.backup.command write a dump",
			comparison.Files, files, comparison.Bytes, bytes)
	}
	return nil
}

// unsaved returns the entries that are missing in the snapshot although they still exist.
func unsaved(manifest Manifest, listed map[string]saved, root string) []string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(manifest.Entries)) {
		if _, isListed := listed[name]; isListed {
			continue
		}
		if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
			found = append(found, name)
		}
	}
	return found
}

// isEmpty reports whether a folder contains only entries that a file system or an interrupted restore creates.
func isEmpty(folder string) (bool, error) {
	names, err := ownNames(folder)
	return len(names) == 0, err
}

// ownNames returns the entries of a folder that a backup of it would contain.
func ownNames(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(entry fs.DirEntry) bool { return slices.Contains(notSaved, entry.Name()) })
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, nil
}
