package settings

import (
	"bytes"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"time"
)

const (
	metadataPrefix = "sops_"
	sealedPrefix   = "ENC["
	// formatVersion is the version of sops whose format this package writes.
	formatVersion = "3.13.3"
	// EncryptedBytesMax is the maximum size of an encrypted file: base64 makes the values a third longer, and each value has a nonce and a tag.
	EncryptedBytesMax = 8 << 20
)

// rawLine is a line as sops parses it: quotes are part of the value, and `\n` is a line feed.
type rawLine struct {
	isComment bool
	key       string
	value     string
}

// recipientKey is the data key, encrypted for a recipient.
type recipientKey struct {
	recipient string
	armored   string
}

// encryptedFile is an .env file, or a file as a whole, in the format of sops.
type encryptedFile struct {
	lines        []rawLine
	recipients   []recipientKey
	modified     time.Time
	mac          string
	rule         cryptRule
	macEncrypted bool
	// isContent means that the file is encrypted as a whole: its only line has the key data.
	isContent bool
}

// cryptRule selects the keys that are encrypted. At most one field is set.
type cryptRule struct {
	name    string
	text    string
	pattern *regexp.Regexp
}

const (
	unencryptedSuffix = "unencrypted_suffix"
	encryptedSuffix   = "encrypted_suffix"
	unencryptedRegex  = "unencrypted_regex"
	encryptedRegex    = "encrypted_regex"
)

func newCryptRule(name, text string) (cryptRule, error) {
	rule := cryptRule{name: name, text: text}
	if name == unencryptedRegex || name == encryptedRegex {
		pattern, err := regexp.Compile(text)
		if err != nil {
			return rule, fmt.Errorf("%s is not a regular expression: %w", name, err)
		}
		rule.pattern = pattern
	}
	return rule, nil
}

// isEncrypted reports whether the value of a key is encrypted. Comments have no key.
func (rule cryptRule) isEncrypted(line rawLine) bool {
	switch rule.name {
	case unencryptedSuffix:
		return line.isComment || !strings.HasSuffix(line.key, rule.text)
	case encryptedSuffix:
		return !line.isComment && strings.HasSuffix(line.key, rule.text)
	case unencryptedRegex:
		return line.isComment || !rule.pattern.MatchString(line.key)
	case encryptedRegex:
		return !line.isComment && rule.pattern.MatchString(line.key)
	}
	return true
}

// IsEncrypted reports whether the content contains metadata of sops.
func IsEncrypted(content []byte) bool {
	return bytes.HasPrefix(content, []byte(metadataPrefix)) || bytes.Contains(content, []byte("\n"+metadataPrefix))
}

// rawLines parses lines as sops does, or returns an error with the number of the first line that sops cannot parse.
func rawLines(content []byte) ([]rawLine, error) {
	var lines []rawLine
	for index, text := range strings.Split(string(content), "\n") {
		text = strings.TrimSuffix(text, "\r")
		switch key, value, hasValue := strings.Cut(text, "="); {
		case text == "":
		case text[0] == '#':
			lines = append(lines, rawLine{isComment: true, value: text[1:]})
		case hasValue:
			lines = append(lines, rawLine{key: key, value: strings.ReplaceAll(value, `\n`, "\n")})
		default:
			return nil, fmt.Errorf("line %d has no `=`; restore the file from Git", index+1)
		}
	}
	return lines, nil
}

func formatRaw(lines []rawLine) []byte {
	var text strings.Builder
	for _, line := range lines {
		if line.isComment {
			text.WriteString("#" + line.value + "\n")
		} else {
			text.WriteString(line.key + "=" + strings.ReplaceAll(line.value, "\n", `\n`) + "\n")
		}
	}
	return []byte(text.String())
}

// parseEncrypted splits a file into its lines and its metadata.
func parseEncrypted(content []byte) (*encryptedFile, error) {
	if len(content) > EncryptedBytesMax {
		return nil, fmt.Errorf("the file has %d bytes, more than %d; split it", len(content), EncryptedBytesMax)
	}
	lines, err := rawLines(content)
	if err != nil {
		return nil, err
	}
	file := &encryptedFile{}
	metadata := map[string]string{}
	for _, line := range lines {
		name, isMetadata := strings.CutPrefix(line.key, metadataPrefix)
		if line.isComment || !isMetadata {
			file.lines = append(file.lines, line)
			continue
		}
		if _, isThere := metadata[name]; isThere {
			return nil, fmt.Errorf("%s%s is set twice; restore the file from Git", metadataPrefix, name)
		}
		metadata[name] = line.value
	}
	return file, file.readMetadata(metadata)
}

var recipientField = regexp.MustCompile(`^age__list_(\d{1,3})__map_(recipient|enc)$`)

func (file *encryptedFile) readMetadata(metadata map[string]string) error {
	rules := 0
	recipients := map[string]recipientKey{}
	for _, name := range sortedKeys(metadata) {
		value := metadata[name]
		var err error
		switch name {
		case "version":
		case "mac":
			file.mac = value
		case "lastmodified":
			file.modified, err = time.Parse(time.RFC3339, value)
		case "mac_only_encrypted":
			file.macEncrypted = value == "true"
		case unencryptedSuffix, encryptedSuffix, unencryptedRegex, encryptedRegex:
			rules++
			file.rule, err = newCryptRule(name, value)
		default:
			field := recipientField.FindStringSubmatch(name)
			if field == nil {
				return fmt.Errorf("%s%s has a type that Roost does not support; encrypt the file for age recipients with `roost secrets encrypt`", metadataPrefix, name)
			}
			key := recipients[field[1]]
			if field[2] == "enc" {
				key.armored = value
			} else {
				key.recipient = value
			}
			recipients[field[1]] = key
		}
		if err != nil {
			return fmt.Errorf("%s%s: %w; restore the file from Git", metadataPrefix, name, err)
		}
	}
	for index := range len(recipients) {
		file.recipients = append(file.recipients, recipients[fmt.Sprint(index)])
	}
	switch {
	case rules > 1:
		return fmt.Errorf("the file has %d rules about which keys are encrypted; restore it from Git", rules)
	case rules == 0:
		file.rule, _ = newCryptRule(unencryptedSuffix, "_unencrypted")
	}
	if file.mac == "" || file.modified.IsZero() || len(file.recipients) == 0 {
		return fmt.Errorf("the lines sops_mac, sops_lastmodified or sops_age… are missing, so the file is truncated; restore it from Git")
	}
	return nil
}

// format writes the file as sops does, metadata last.
func (file *encryptedFile) format() []byte {
	if file.isContent {
		return file.formatContent()
	}
	metadata := map[string]string{
		"lastmodified": file.modified.Format(time.RFC3339),
		"mac":          file.mac,
		"version":      formatVersion,
		file.rule.name: file.rule.text,
	}
	if file.macEncrypted {
		metadata["mac_only_encrypted"] = "true"
	}
	for index, key := range file.recipients {
		metadata[fmt.Sprintf("age__list_%d__map_enc", index)] = key.armored
		metadata[fmt.Sprintf("age__list_%d__map_recipient", index)] = key.recipient
	}
	lines := append([]rawLine(nil), file.lines...)
	for _, name := range sortedKeys(metadata) {
		lines = append(lines, rawLine{key: metadataPrefix + name, value: metadata[name]})
	}
	return formatRaw(lines)
}

func sortedKeys[Value any](values map[string]Value) []string {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// keyOf returns the key without `export`, which sops treats as a part of the key.
func keyOf(line rawLine) string {
	words := strings.Fields(line.key)
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}
