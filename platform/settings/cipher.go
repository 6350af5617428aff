package settings

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
)

const (
	dataKeyBytes = 32
	nonceBytes   = 32
	tagBytes     = 16
)

// sealedPattern matches a value that sops has encrypted.
var sealedPattern = regexp.MustCompile(`^ENC\[AES256_GCM,data:([^,]+),iv:([^,]+),tag:([^,]+),type:([a-z]+)\]$`)

var (
	errNotSealed = errors.New("the value is not encrypted")
	errTampered  = errors.New("the value was changed after it was encrypted")
)

// seal encrypts a value, bound to the additional data. Empty values stay empty, as in sops. `reused` is an earlier encryption of the same value with
// the same key. seal uses its nonce, so that an unchanged value has an unchanged line.
func seal(plain, kind, place string, dataKey []byte, reused string) (string, error) {
	if plain == "" {
		return "", nil
	}
	nonce := make([]byte, nonceBytes)
	if parts := sealedPattern.FindStringSubmatch(reused); parts != nil {
		if before, err := open(reused, place, dataKey); err == nil && before == plain && parts[4] == kind {
			return reused, nil
		}
	}
	if _, err := rand.Read(nonce); err != nil {
		return "", fmt.Errorf("reading random bytes: %w", err)
	}
	gcm, err := newCipher(dataKey, nonceBytes)
	if err != nil {
		return "", err
	}
	sealed := gcm.Seal(nil, nonce, []byte(plain), []byte(place))
	data, tag := sealed[:len(sealed)-tagBytes], sealed[len(sealed)-tagBytes:]
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("ENC[AES256_GCM,data:%s,iv:%s,tag:%s,type:%s]", encode(data), encode(nonce), encode(tag), kind), nil
}

// open decrypts a value.
func open(sealed, place string, dataKey []byte) (string, error) {
	if sealed == "" {
		return "", nil
	}
	parts := sealedPattern.FindStringSubmatch(sealed)
	if parts == nil {
		return "", errNotSealed
	}
	var decoded [3][]byte
	for index := range decoded {
		bytes, err := base64.StdEncoding.DecodeString(parts[index+1])
		if err != nil {
			return "", errTampered
		}
		decoded[index] = bytes
	}
	data, nonce, tag := decoded[0], decoded[1], decoded[2]
	if len(tag) != tagBytes {
		return "", errTampered
	}
	gcm, err := newCipher(dataKey, len(nonce))
	if err != nil {
		return "", errTampered
	}
	plain, err := gcm.Open(nil, nonce, append(data, tag...), []byte(place))
	if err != nil {
		return "", errTampered
	}
	return string(plain), nil
}

func newCipher(dataKey []byte, nonceLength int) (cipher.AEAD, error) {
	block, err := aes.NewCipher(dataKey)
	if err != nil {
		return nil, fmt.Errorf("the data key: %w", err)
	}
	return cipher.NewGCMWithNonceSize(block, nonceLength)
}
