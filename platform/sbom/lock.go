package sbom

import (
	"os"
	"strconv"
	"strings"
)

// lockedSums returns the checksums in Cargo.lock, by name and version.
func lockedSums(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	var name, version string
	for line := range strings.Lines(string(text)) {
		key, quoted, isPair := strings.Cut(strings.TrimSpace(line), " = ")
		value, err := strconv.Unquote(quoted)
		if !isPair || err != nil {
			continue
		}
		switch key {
		case "name":
			name = value
		case "version":
			version = value
		case "checksum":
			sums[name+" "+version] = value
		}
	}
	return sums, nil
}
