package settings

import (
	"bytes"
	"strings"
	"testing"

	"filippo.io/age"
)

func TestAFileIsEncryptedAsAWhole(t *testing.T) {
	identity, recipient := newKey(t)
	other, otherRecipient := newKey(t)
	for _, plain := range []string{"", "a: b\n", "\x00\xff\r\n", `{"data": "x"}`, strings.Repeat("x", BytesMax)} {
		sealed, err := EncryptContent([]byte(plain), Options{Recipients: []string{recipient}, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		if !IsEncryptedContent(sealed) || IsEncrypted(sealed) || IsEncryptedContent([]byte(plain)) {
			t.Errorf("%.40q is not recognized", plain)
		}
		read, err := DecryptContent(sealed, []age.Identity{identity})
		if err != nil || string(read) != plain {
			t.Errorf("%.40q, %v", read, err)
		}
		again, err := Rotate(sealed, []age.Identity{identity}, Rotation{Recipients: []string{otherRecipient}, WithNewDataKey: true, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		if read, err = DecryptContent(again, []age.Identity{other}); err != nil || string(read) != plain {
			t.Errorf("%.40q, %v", read, err)
		}
		if _, err := DecryptContent(again, []age.Identity{identity}); err == nil {
			t.Error("a removed recipient decrypts the file")
		}
		changed, err := ReplaceContent(sealed, []age.Identity{identity}, []byte("c"), now)
		if err != nil {
			t.Fatal(err)
		}
		if read, err = DecryptContent(changed, []age.Identity{identity}); err != nil || string(read) != "c" {
			t.Errorf("%q, %v", read, err)
		}
	}
}

func TestContentsThatAreRefused(t *testing.T) {
	identity, recipient := newKey(t)
	options := Options{Recipients: []string{recipient}, Now: now}
	sealed, err := EncryptContent([]byte("secret"), options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := EncryptContent(bytes.Repeat([]byte("x"), BytesMax+1), options); err == nil || err.Error() != "the file has 1048577 bytes, more than 1048576; mount large content as a volume" {
		t.Error(err)
	}
	if _, err := EncryptContent([]byte("password: ENC[AES256_GCM,data:x]"), options); err == nil || !strings.Contains(err.Error(), "the file has values that sops has encrypted") {
		t.Error(err)
	}
	if _, err := PlainContent("shop.bin", []byte("\xff")); err == nil || err.Error() != `"shop.bin" is not UTF-8 text, which a ConfigMap needs; encrypt it with `+"`roost secrets encrypt`" {
		t.Error(err)
	}
	for name, row := range map[string][3]string{
		"another content":    {`"data": "ENC[AES256_GCM,data:`, `"data": "ENC[AES256_GCM,data:AAAA`, "the value was changed after it was encrypted"},
		"another time":       {"2026-11-23", "2026-11-24", "restore the file from Git"},
		"a key of a cloud":   {`"age": [`, `"kms": [{"arn": "x"}], "age": [`, "has a type that Roost does not support"},
		"a list of text":     {`"age": [`, `"age": ["x", `, "is not what sops writes"},
		"no recipient":       {`"age"`, `"pgp2"`, "has a type that Roost does not support"},
		"a rule for no file": {`"unencrypted_suffix": "_unencrypted"`, `"encrypted_suffix": "_encrypted"`, "leaves the content readable; encrypt the file with `roost secrets encrypt`"},
		"a number":           {`"age": [`, `"shamir_threshold": 2, "age": [`, "has a type that Roost does not support"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(string(sealed), row[0], row[1], 1)
			if changed == string(sealed) {
				t.Fatalf("%s has no %s", sealed, row[0])
			}
			if _, err := DecryptContent([]byte(changed), []age.Identity{identity}); err == nil || !strings.Contains(err.Error(), row[2]) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Without files, hashes are those of earlier versions, so an update of the operator restarts no pod.
func TestTheHashOfSettingsWithoutFilesStays(t *testing.T) {
	values := Settings{Secret: map[string]string{"A": "b"}, Plain: map[string]string{"C": "d"}}
	without := values.Hash("web/shop")
	if without != "c903c97b6d9f234f" {
		t.Error(without)
	}
	hashes := map[string]bool{without: true}
	for _, contents := range [][]Content{{{Name: "a", Text: "b"}}, {{Name: "a", Text: "b", IsSecret: true}}, {{Name: "a", Text: "c"}}, {{Name: "b", Text: "b"}}} {
		hashes[values.WithContents(contents).Hash("web/shop")] = true
	}
	if len(hashes) != 5 {
		t.Errorf("%v", hashes)
	}
}
