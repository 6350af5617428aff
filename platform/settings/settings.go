package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/dunlin-project/dunlin/platform/dotenv"
)

// Settings are the environment of an app.
type Settings struct {
	// Secret becomes a Secret.
	Secret map[string]string
	// Plain becomes a ConfigMap.
	Plain map[string]string
	// Repository contains the keys of the backup repository. The app does not get them.
	Repository map[string]string
	// Mounted is the content of a Secret that Roost does not manage. A rollback cannot restore it, so it is not part of a revision.
	Mounted map[string]string
	// SecretFiles and PlainFiles are the contents of the files that pods mount, by their names beside the manifest.
	SecretFiles, PlainFiles map[string]string
}

// BytesMax is the maximum size of all values together. It is the limit of Kubernetes for one Secret.
const BytesMax = 1 << 20

// File is one .env file after decryption.
type File struct {
	Name string
	Decrypted
}

// PlainFile parses a file that is not encrypted. The whole file is readable in the Git repository, so it contains no secret.
func PlainFile(name string, content []byte) (File, error) {
	return plainFile(name, content, dotenv.Parse)
}

// AppliedPlainFile is PlainFile for a file that is in the cluster. It also accepts what earlier versions accepted, so that an update of the operator
// changes no app.
func AppliedPlainFile(name string, content []byte) (File, error) {
	return plainFile(name, content, dotenv.ParseStored)
}

func plainFile(name string, content []byte, parse func([]byte) ([]dotenv.Line, error)) (File, error) {
	lines, err := parse(content)
	if err == nil {
		err = refuseCiphertext(lines)
	}
	if err != nil {
		return File{}, fmt.Errorf("%s: %w", name, err)
	}
	return File{name, Decrypted{Lines: lines}}, nil
}

// Merge combines the files of an app with the values of its manifest. Each key may be set only once.
func Merge(files []File, env map[string]string) (Settings, error) {
	merged := Settings{Secret: map[string]string{}, Plain: map[string]string{}}
	places := map[string]string{}
	add := func(target map[string]string, key, value, place string) error {
		if before, isThere := places[key]; isThere {
			return fmt.Errorf("%s: %s is already set in %s; remove one of the two", place, key, before)
		}
		places[key] = place
		target[key] = value
		return nil
	}
	size := 0
	for _, file := range files {
		for _, line := range dotenv.Entries(file.Lines) {
			target := merged.Plain
			if file.Secrets[line.Key] {
				target = merged.Secret
			}
			if err := add(target, line.Key, line.Value, file.Name); err != nil {
				return Settings{}, err
			}
			size += len(line.Key) + len(line.Value)
		}
	}
	for _, key := range sortedKeys(env) {
		if err := refuseCiphertext([]dotenv.Line{{Key: key, Value: env[key]}}); err != nil {
			return Settings{}, fmt.Errorf("spec.env: %w", err)
		}
		if err := add(merged.Plain, key, env[key], "spec.env"); err != nil {
			return Settings{}, err
		}
		size += len(key) + len(env[key])
	}
	if size > BytesMax {
		return Settings{}, fmt.Errorf("the settings have %d bytes, more than %d; mount large content as a volume", size, BytesMax)
	}
	return merged, nil
}

// WithRepository adds the file of a backup repository. Its password must be encrypted.
func (settings Settings) WithRepository(file File) (Settings, error) {
	settings.Repository = map[string]string{}
	for _, line := range dotenv.Entries(file.Lines) {
		settings.Repository[line.Key] = line.Value
	}
	if !file.Secrets[keyRepositoryPassword] {
		return Settings{}, fmt.Errorf("%s has no encrypted %s; add it with `roost secrets edit`", file.Name, keyRepositoryPassword)
	}
	return settings, nil
}

// WithContents adds the files that pods mount.
func (settings Settings) WithContents(contents []Content) Settings {
	settings.SecretFiles, settings.PlainFiles = map[string]string{}, map[string]string{}
	for _, content := range contents {
		if content.IsSecret {
			settings.SecretFiles[content.Name] = content.Text
		} else {
			settings.PlainFiles[content.Name] = content.Text
		}
	}
	return settings
}

// Environment has the variables only.
func (settings Settings) Environment() Settings {
	return Settings{Secret: settings.Secret, Plain: settings.Plain}
}

const keyRepositoryPassword = "RESTIC_PASSWORD"

// Hash returns a hash of the keys and values, and of the mounted files if there are any. It depends neither on how keys are distributed over .env
// files, nor on an order or the encryption. The scope makes the hashes of apps with the same content differ.
func (settings Settings) Hash(scope string) string {
	hash := sha256.New()
	write := func(text string) { fmt.Fprintf(hash, "%d:%s", len(text), text) }
	write(scope)
	parts := []map[string]string{settings.Secret, settings.Plain}
	// Without files, the hash is that of earlier versions: an update of the operator restarts no pod.
	if len(settings.SecretFiles)+len(settings.PlainFiles) > 0 {
		parts = append(parts, settings.SecretFiles, settings.PlainFiles)
	}
	for _, part := range parts {
		fmt.Fprintf(hash, "%d entries", len(part))
		for _, key := range sortedKeys(part) {
			write(key)
			write(part[key])
		}
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

// IsEmpty reports whether there are no settings.
func (settings Settings) IsEmpty() bool { return len(settings.Secret) == 0 && len(settings.Plain) == 0 }

// refuseCiphertext returns an error if a value is encrypted. Ciphertext must not be written to a Secret, or be encrypted a second time.
func refuseCiphertext(lines []dotenv.Line) error {
	for _, line := range lines {
		if line.IsComment() && strings.HasPrefix(line.Comment, sealedPrefix) {
			return fmt.Errorf("the comment in line %d is encrypted, so the file is truncated; restore it from Git", line.Number)
		}
		if strings.HasPrefix(line.Key, metadataPrefix) {
			return fmt.Errorf("the key %s begins with sops_, so the file is already encrypted, or truncated; restore it from Git", line.Key)
		}
		if strings.HasPrefix(line.Value, sealedPrefix) {
			return fmt.Errorf("the value of %s begins with ENC[, so it is already encrypted; decrypt it first", line.Key)
		}
	}
	return nil
}
