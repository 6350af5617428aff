package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"filippo.io/age"
)

// This file reads and writes files that are encrypted as a whole, as sops encrypts files with `--input-type binary`: JSON with the content in data.

const (
	contentKey     = "data"
	contentKeySops = "sops"
	// ciphertextMark begins each value that sops has encrypted, in each of its formats.
	ciphertextMark = "ENC[AES256_GCM,"
)

// Content is a file that pods mount, after decryption.
type Content struct {
	Name, Text string
	// IsSecret is true for an encrypted file.
	IsSecret bool
}

// sealedContent is the JSON of sops.
type sealedContent struct {
	Data     *string        `json:"data"`
	Metadata map[string]any `json:"sops"`
}

// IsEncryptedContent reports whether a file is encrypted as a whole.
func IsEncryptedContent(content []byte) bool {
	var sealed sealedContent
	return bytes.HasPrefix(bytes.TrimSpace(content), []byte("{")) && json.Unmarshal(content, &sealed) == nil && sealed.Data != nil && sealed.Metadata != nil
}

// PlainContent returns a file that is not encrypted. It is readable in the Git repository, so it is no secret.
func PlainContent(name string, content []byte) (Content, error) {
	if err := refuseSealedContent(content); err != nil {
		return Content{}, fmt.Errorf("%q %w", name, err)
	}
	if !utf8.Valid(content) {
		return Content{}, fmt.Errorf("%q is not UTF-8 text, which a ConfigMap needs; encrypt it with `roost secrets encrypt`", name)
	}
	return Content{Name: name, Text: string(content)}, nil
}

// refuseSealedContent refuses ciphertext, which no program could read.
func refuseSealedContent(content []byte) error {
	if bytes.Contains(content, []byte(ciphertextMark)) {
		return errors.New("has values that sops has encrypted, or is a part of an encrypted file; restore it from Git, or decrypt it with `sops decrypt`, and encrypt the whole file with `roost secrets encrypt`")
	}
	return nil
}

// EncryptContent encrypts a file as a whole.
func EncryptContent(content []byte, options Options) ([]byte, error) {
	if err := CheckContent(content); err != nil {
		return nil, err
	}
	rule, err := newCryptRule(unencryptedSuffix, "_unencrypted")
	if err != nil {
		return nil, err
	}
	dataKey, err := newDataKey()
	if err != nil {
		return nil, err
	}
	file := &encryptedFile{rule: rule, isContent: true}
	if file.recipients, err = wrap(dataKey, options.Recipients); err != nil {
		return nil, err
	}
	return file.writeRaw([]rawLine{{key: contentKey, value: string(content)}}, dataKey, options.Now)
}

// CheckContent returns why a file cannot be encrypted as a whole, or nil.
func CheckContent(content []byte) error {
	if len(content) > BytesMax {
		return fmt.Errorf("the file has %d bytes, more than %d; mount large content as a volume", len(content), BytesMax)
	}
	if err := refuseSealedContent(content); err != nil {
		return fmt.Errorf("the file %w", err)
	}
	return nil
}

// DecryptContent decrypts a file that is encrypted as a whole.
func DecryptContent(content []byte, identities []age.Identity) ([]byte, error) {
	file, err := parseContent(content)
	if err != nil {
		return nil, err
	}
	dataKey, err := file.dataKey(identities)
	if err != nil {
		return nil, err
	}
	return file.content(dataKey)
}

// ReplaceContent replaces the content of an encrypted file. The recipients and the data key stay the same.
func ReplaceContent(content []byte, identities []age.Identity, plain []byte, now time.Time) ([]byte, error) {
	if err := CheckContent(plain); err != nil {
		return nil, err
	}
	file, err := parseContent(content)
	if err != nil {
		return nil, err
	}
	dataKey, err := file.dataKey(identities)
	if err != nil {
		return nil, err
	}
	if _, err := file.content(dataKey); err != nil {
		return nil, err
	}
	return file.writeRaw([]rawLine{{key: contentKey, value: string(plain)}}, dataKey, now)
}

func (file *encryptedFile) content(dataKey []byte) ([]byte, error) {
	lines, _, err := file.opened(dataKey)
	if err != nil {
		return nil, err
	}
	return []byte(lines[0].value), nil
}

func parseContent(content []byte) (*encryptedFile, error) {
	if len(content) > EncryptedBytesMax {
		return nil, fmt.Errorf("the file has %d bytes, more than %d; split it", len(content), EncryptedBytesMax)
	}
	var sealed sealedContent
	if err := json.Unmarshal(content, &sealed); err != nil || sealed.Data == nil || sealed.Metadata == nil {
		return nil, errors.New("the file is not the JSON that sops writes; restore it from Git")
	}
	line := rawLine{key: contentKey, value: *sealed.Data}
	file := &encryptedFile{isContent: true, lines: []rawLine{line}}
	metadata, err := flatMetadata(sealed.Metadata)
	if err != nil {
		return nil, err
	}
	if err := file.readMetadata(metadata); err != nil {
		return nil, err
	}
	if !file.rule.isEncrypted(line) {
		return nil, fmt.Errorf("%s_%s leaves the content readable; encrypt the file with `roost secrets encrypt`", contentKeySops, file.rule.name)
	}
	return file, nil
}

// flatMetadata names the metadata as in .env files.
func flatMetadata(metadata map[string]any) (map[string]string, error) {
	flat := map[string]string{}
	for _, name := range sortedKeys(metadata) {
		switch value := metadata[name].(type) {
		case nil:
		case string:
			flat[name] = value
		case bool:
			flat[name] = fmt.Sprint(value)
		case []any:
			for index, item := range value {
				fields, isMap := item.(map[string]any)
				for _, field := range sortedKeys(fields) {
					text, isText := fields[field].(string)
					isMap = isMap && isText
					flat[fmt.Sprintf("%s__list_%d__map_%s", name, index, field)] = text
				}
				if !isMap {
					return nil, fmt.Errorf("%s.%s is not what sops writes; restore the file from Git", contentKeySops, name)
				}
			}
		default:
			return nil, fmt.Errorf("%s.%s has a type that Roost does not support; encrypt the file for age recipients with `roost secrets encrypt`", contentKeySops, name)
		}
	}
	return flat, nil
}

// formatContent writes the file as sops does.
func (file *encryptedFile) formatContent() []byte {
	var keys []map[string]string
	for _, key := range file.recipients {
		keys = append(keys, map[string]string{"recipient": key.recipient, "enc": key.armored})
	}
	metadata := map[string]any{
		"age": keys, "lastmodified": file.modified.Format(time.RFC3339), "mac": file.mac, "version": formatVersion, file.rule.name: file.rule.text,
	}
	if file.macEncrypted {
		metadata["mac_only_encrypted"] = true
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "\t")
	encoder.SetEscapeHTML(false)
	// Text and maps of text always encode.
	if err := encoder.Encode(sealedContent{&file.lines[0].value, metadata}); err != nil {
		panic(err)
	}
	return []byte(text.String())
}
