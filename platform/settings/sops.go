// Package settings reads and writes .env files that are encrypted in the format of sops with age recipients, and splits
// what they contain into a Secret and a ConfigMap.
//
// This package implements the format itself instead of using the sops library, because that library links the clients of six clouds: 64 MB in the
// binary, and 38 MB of memory at startup. platform/proof compares both implementations in both directions.
package settings

import (
	"bytes"
	"crypto/rand"
	"crypto/sha512"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/dunlin-project/dunlin/platform/dotenv"
)

// macOnlyEncryptedPrefix is the first input of the hash of files with mac_only_encrypted.
var macOnlyEncryptedPrefix = []byte{
	0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b,
	0x0b, 0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
}

// WrongKeyError is the error for a file that none of the age identities can decrypt. It names the recipients of the file.
type WrongKeyError struct{ Recipients []string }

func (e *WrongKeyError) Error() string {
	return fmt.Sprintf("no age identity decrypts the file, which is encrypted for %s; use the age identity of one of these recipients",
		strings.Join(e.Recipients, ", "))
}

// RecipientsMax is the maximum number of recipients of a file. Each recipient adds a line of half a kilobyte.
const RecipientsMax = 32

// Options are the options for a file that is encrypted for the first time.
type Options struct {
	// Recipients are age public keys.
	Recipients []string
	// PlainKeys is a regular expression for keys that are not secrets and stay readable. Empty: all keys are secrets.
	PlainKeys string
	Now       time.Time
}

// Decrypted is the content of a file.
type Decrypted struct {
	Lines []dotenv.Line
	// Secrets are the encrypted keys of the file.
	Secrets map[string]bool
}

// Encrypt writes a new encrypted file.
func Encrypt(lines []dotenv.Line, options Options) ([]byte, error) {
	if err := refuseCiphertext(lines); err != nil {
		return nil, err
	}
	rule, err := newCryptRule(unencryptedSuffix, "_unencrypted")
	if options.PlainKeys != "" {
		rule, err = newCryptRule(unencryptedRegex, options.PlainKeys)
	}
	if err != nil {
		return nil, err
	}
	dataKey, err := newDataKey()
	if err != nil {
		return nil, err
	}
	file := &encryptedFile{rule: rule}
	if file.recipients, err = wrap(dataKey, options.Recipients); err != nil {
		return nil, err
	}
	return file.write(lines, dataKey, options.Now)
}

// Decrypt decrypts a file. It returns the whole content or an error, never a part of the content.
func Decrypt(content []byte, identities []age.Identity) (*Decrypted, error) {
	file, err := parseEncrypted(content)
	if err != nil {
		return nil, err
	}
	dataKey, err := file.dataKey(identities)
	if err != nil {
		return nil, err
	}
	return file.decrypt(dataKey)
}

// Replace replaces the lines of an encrypted file. The recipients, the data key and the lines of unchanged values stay the same.
func Replace(content []byte, identities []age.Identity, lines []dotenv.Line, now time.Time) ([]byte, error) {
	if err := refuseCiphertext(lines); err != nil {
		return nil, err
	}
	file, err := parseEncrypted(content)
	if err != nil {
		return nil, err
	}
	dataKey, err := file.dataKey(identities)
	if err != nil {
		return nil, err
	}
	if _, err := file.decrypt(dataKey); err != nil {
		return nil, err
	}
	return file.write(lines, dataKey, now)
}

// Rotation changes who can decrypt a file.
type Rotation struct {
	Recipients []string
	// WithNewDataKey encrypts all values with a new data key. Without it, a removed recipient that has kept the data key can read values that
	// are changed later.
	WithNewDataKey bool
	Now            time.Time
}

// Rotate writes the file for other recipients. The values stay the same, so no pod restarts.
func Rotate(content []byte, identities []age.Identity, rotation Rotation) ([]byte, error) {
	file, err := parseAny(content)
	if err != nil {
		return nil, err
	}
	dataKey, err := file.dataKey(identities)
	if err != nil {
		return nil, err
	}
	plain, err := file.plainLines(dataKey)
	if err != nil {
		return nil, err
	}
	if rotation.WithNewDataKey {
		if dataKey, err = newDataKey(); err != nil {
			return nil, err
		}
	}
	if file.recipients, err = wrap(dataKey, rotation.Recipients); err != nil {
		return nil, err
	}
	if !rotation.WithNewDataKey {
		return file.format(), nil
	}
	return file.writeRaw(plain, dataKey, rotation.Now)
}

// parseAny parses an .env file, or a file that is encrypted as a whole.
func parseAny(content []byte) (*encryptedFile, error) {
	if IsEncryptedContent(content) {
		return parseContent(content)
	}
	return parseEncrypted(content)
}

// RecipientsOf lists the recipients of an encrypted file.
func RecipientsOf(content []byte) ([]string, error) {
	file, err := parseAny(content)
	if err != nil {
		return nil, err
	}
	return file.recipientNames(), nil
}

func (file *encryptedFile) recipientNames() []string {
	var names []string
	for _, key := range file.recipients {
		names = append(names, key.recipient)
	}
	return names
}

// dataKey decrypts the data key with the first matching identity.
func (file *encryptedFile) dataKey(identities []age.Identity) ([]byte, error) {
	wrong := &WrongKeyError{file.recipientNames()}
	if len(identities) == 0 {
		return nil, wrong
	}
	for _, key := range file.recipients {
		reader, err := age.Decrypt(armor.NewReader(strings.NewReader(key.armored)), identities...)
		var noMatch *age.NoIdentityMatchError
		if errors.As(err, &noMatch) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the data key for %s is damaged; restore the file from Git", key.recipient)
		}
		dataKey, err := io.ReadAll(io.LimitReader(reader, dataKeyBytes+1))
		if err != nil || len(dataKey) != dataKeyBytes {
			return nil, fmt.Errorf("the data key for %s is damaged; restore the file from Git", key.recipient)
		}
		return dataKey, nil
	}
	return nil, wrong
}

// plainLines returns the decrypted lines in the form in which they are encrypted again.
func (file *encryptedFile) plainLines(dataKey []byte) ([]rawLine, error) {
	if file.isContent {
		plain, _, err := file.opened(dataKey)
		return plain, err
	}
	decrypted, err := file.decrypt(dataKey)
	if err != nil {
		return nil, err
	}
	return rawLines(dotenv.Format(decrypted.Lines))
}

func (file *encryptedFile) decrypt(dataKey []byte) (*Decrypted, error) {
	plain, secrets, err := file.opened(dataKey)
	if err != nil {
		return nil, err
	}
	lines, err := dotenv.ParseStored(formatRaw(plain))
	if err != nil {
		return nil, err
	}
	if err := refuseCiphertext(lines); err != nil {
		return nil, err
	}
	return &Decrypted{lines, secrets}, nil
}

// opened returns the decrypted lines and the encrypted keys, if nobody has changed the file.
func (file *encryptedFile) opened(dataKey []byte) ([]rawLine, map[string]bool, error) {
	hash := sha512.New()
	if file.macEncrypted {
		hash.Write(macOnlyEncryptedPrefix)
	}
	plain := make([]rawLine, len(file.lines))
	secrets := map[string]bool{}
	for index, line := range file.lines {
		plain[index] = line
		isEncrypted := file.rule.isEncrypted(line)
		if isEncrypted {
			opened, err := open(line.value, line.key+":", dataKey)
			switch {
			case err == nil:
				plain[index].value = opened
			case !line.isComment:
				return nil, nil, fmt.Errorf("%s: %w; restore the file from Git", line.key, err)
			}
		}
		if line.isComment {
			continue
		}
		secrets[keyOf(line)] = isEncrypted
		if isEncrypted || !file.macEncrypted {
			hash.Write([]byte(plain[index].value))
		}
	}
	mac, err := open(file.mac, file.modified.Format(time.RFC3339), dataKey)
	if err != nil || subtle.ConstantTimeCompare([]byte(mac), fmt.Appendf(nil, "%X", hash.Sum(nil))) != 1 {
		return nil, nil, errors.New("a line was added, removed or changed after the file was encrypted; restore the file from Git")
	}
	return plain, secrets, nil
}

// write encrypts lines into the file.
func (file *encryptedFile) write(lines []dotenv.Line, dataKey []byte, now time.Time) ([]byte, error) {
	plain, err := rawLines(dotenv.Format(lines))
	if err != nil {
		return nil, err
	}
	return file.writeRaw(plain, dataKey, now)
}

func (file *encryptedFile) writeRaw(plain []rawLine, dataKey []byte, now time.Time) ([]byte, error) {
	var err error
	before := map[string]string{}
	for _, line := range file.lines {
		before[line.key] = line.value
	}
	hash := sha512.New()
	if file.macEncrypted {
		hash.Write(macOnlyEncryptedPrefix)
	}
	file.lines = nil
	for _, line := range plain {
		isEncrypted := file.rule.isEncrypted(line)
		if !line.isComment && (isEncrypted || !file.macEncrypted) {
			hash.Write([]byte(line.value))
		}
		if isEncrypted {
			kind := "str"
			if line.isComment {
				kind = "comment"
			}
			if line.value, err = seal(line.value, kind, line.key+":", dataKey, before[line.key]); err != nil {
				return nil, err
			}
		}
		file.lines = append(file.lines, line)
	}
	file.modified = now.UTC().Truncate(time.Second)
	file.mac, err = seal(fmt.Sprintf("%X", hash.Sum(nil)), "str", file.modified.Format(time.RFC3339), dataKey, "")
	if err != nil {
		return nil, err
	}
	return file.format(), nil
}

func newDataKey() ([]byte, error) {
	dataKey := make([]byte, dataKeyBytes)
	if _, err := rand.Read(dataKey); err != nil {
		return nil, fmt.Errorf("reading random bytes: %w", err)
	}
	return dataKey, nil
}

// isPrivate reports whether a text contains an age identity. Such a text must not be in a message.
func isPrivate(text string) bool { return strings.Contains(strings.ToUpper(text), "AGE-SECRET-KEY-") }

// wrap encrypts the data key for each recipient.
func wrap(dataKey []byte, recipients []string) ([]recipientKey, error) {
	if len(recipients) == 0 {
		return nil, errors.New("there is no recipient; name at least one age public key")
	}
	if len(recipients) > RecipientsMax {
		return nil, fmt.Errorf("there are %d recipients, more than %d; use a key for each role", len(recipients), RecipientsMax)
	}
	var keys []recipientKey
	for _, name := range recipients {
		parsed, err := age.ParseRecipients(strings.NewReader(name))
		if isPrivate(name) {
			return nil, errors.New("a recipient is a private key; name its public key, which `age-keygen -y` prints. If roost.yaml has it, and was committed or shared, replace the key")
		}
		if err != nil || len(parsed) != 1 {
			return nil, fmt.Errorf("%q is not an age public key; `age-keygen -y` prints one, which begins with age1", name)
		}
		var armored bytes.Buffer
		armorWriter := armor.NewWriter(&armored)
		writer, err := age.Encrypt(armorWriter, parsed...)
		if err == nil {
			_, err = writer.Write(dataKey)
		}
		if err == nil {
			err = errors.Join(writer.Close(), armorWriter.Close())
		}
		if err != nil {
			return nil, fmt.Errorf("encrypting for %s: %w", name, err)
		}
		keys = append(keys, recipientKey{recipient: name, armored: armored.String()})
	}
	return keys, nil
}
