package settings

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/dunlin-project/dunlin/platform/dotenv"
)

var now = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)

func newKey(t *testing.T) (*age.X25519Identity, string) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return identity, identity.Recipient().String()
}

func linesOf(t *testing.T, text string) []dotenv.Line {
	t.Helper()
	lines, err := dotenv.ParseStored([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func encrypted(t *testing.T, text, plainKeys string, recipients ...string) []byte {
	t.Helper()
	content, err := Encrypt(linesOf(t, text), Options{Recipients: recipients, PlainKeys: plainKeys, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

const canary = "c4n4ry-value"

const sample = "# a comment\nPORT=8080\nTOKEN=" + canary + "\nEMPTY=\nPEM=\"-----BEGIN\\nx\\n-----END\\n\"\nQUOTED='a # b'\n"

func TestWhatIsEncryptedComesBack(t *testing.T) {
	identity, recipient := newKey(t)
	content := encrypted(t, sample, "^PORT$", recipient)
	if text := string(content); strings.Contains(text, canary) || strings.Contains(text, "a comment") || !strings.Contains(text, "PORT=8080\n") {
		t.Fatalf("%s", text)
	}
	if !IsEncrypted(content) || IsEncrypted([]byte(sample)) {
		t.Fatal("encrypted files are taken for plain ones, or plain ones for encrypted")
	}
	decrypted, err := Decrypt(content, []age.Identity{identity})
	if err != nil {
		t.Fatal(err)
	}
	if string(dotenv.Format(decrypted.Lines)) != sample {
		t.Fatalf("%s", dotenv.Format(decrypted.Lines))
	}
	wantSecrets := map[string]bool{"PORT": false, "TOKEN": true, "EMPTY": true, "PEM": true, "QUOTED": true}
	if !reflect.DeepEqual(decrypted.Secrets, wantSecrets) {
		t.Fatalf("%v", decrypted.Secrets)
	}
}

func TestAnotherKeyIsNamed(t *testing.T) {
	_, recipient := newKey(t)
	other, _ := newKey(t)
	content := encrypted(t, sample, "", recipient)
	for _, identities := range [][]age.Identity{{other}, nil} {
		_, err := Decrypt(content, identities)
		var wrong *WrongKeyError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), recipient) {
			t.Fatalf("%v", err)
		}
	}
}

// Every change of a byte, every cut and every exchange of lines is noticed, and no error contains a value.
func TestTamperedFilesAreRefused(t *testing.T) {
	identity, recipient := newKey(t)
	content := string(encrypted(t, sample, "^PORT$", recipient))
	lines := strings.SplitAfter(strings.TrimSuffix(content, "\n"), "\n")
	tampered := map[string]string{"plain value": strings.Replace(content, "PORT=8080", "PORT=8081", 1)}
	for index, line := range lines {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "EMPTY") || strings.HasPrefix(line, "sops_version") || strings.Contains(line, "_recipient=") {
			continue // comments, names without values and remarks are not secured by sops either
		}
		without := append(append([]string(nil), lines[:index]...), lines[index+1:]...)
		tampered["without "+line[:min(12, len(line))]] = strings.Join(without, "")
		if at := strings.Index(line, "data:"); at > 0 {
			changed := "A"
			if line[at+5] == 'A' {
				changed = "B"
			}
			tampered["changed "+line[:5]] = strings.Replace(content, line, line[:at+5]+changed+line[at+6:], 1)
		}
	}
	tampered["exchanged"] = strings.Replace(strings.Replace(content, "TOKEN=", "X=", 1), "PEM=", "TOKEN=", 1)
	for cut := 7; cut < len(content)-1; cut += 7 {
		tampered[fmt.Sprintf("cut at %d", cut)] = content[:cut]
	}
	for name, text := range tampered {
		if !IsEncrypted([]byte(text)) {
			if _, err := PlainFile("shop.env", []byte(text)); err == nil && strings.Contains(text, "ENC[") {
				t.Errorf("%s: taken for a plain file", name)
			}
			continue
		}
		decrypted, err := Decrypt([]byte(text), []age.Identity{identity})
		if err == nil && string(dotenv.Format(decrypted.Lines)) != sample {
			t.Errorf("%s: no error", name)
		}
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the error contains a value: %v", name, err)
		}
	}
	if len(tampered) < 50 {
		t.Fatalf("%d changes", len(tampered))
	}
}

func TestCiphertextIsNotEncryptedOrWritten(t *testing.T) {
	_, recipient := newKey(t)
	for _, text := range []string{"A=ENC[AES256_GCM,data:x]", "sops_mac=x", "A='ENC['"} {
		if _, err := Encrypt(linesOf(t, text), Options{Recipients: []string{recipient}, Now: now}); err == nil {
			t.Errorf("%s was encrypted", text)
		}
		if _, err := PlainFile("shop.env", []byte(text)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
	if _, err := Merge(nil, map[string]string{"A": "ENC[x"}); err == nil {
		t.Error("a value of the manifest was taken")
	}
}

// Somebody encrypts a file that is encrypted already, for example with another tool.
func TestCiphertextInsideIsRefused(t *testing.T) {
	identity, recipient := newKey(t)
	dataKey, err := newDataKey()
	if err != nil {
		t.Fatal(err)
	}
	rule, _ := newCryptRule(unencryptedSuffix, "_unencrypted")
	file := &encryptedFile{rule: rule}
	if file.recipients, err = wrap(dataKey, []string{recipient}); err != nil {
		t.Fatal(err)
	}
	content, err := file.write([]dotenv.Line{{Key: "A", Value: "ENC[AES256_GCM,data:x]"}}, dataKey, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decrypt(content, []age.Identity{identity}); err == nil || !strings.Contains(err.Error(), "begins with ENC[") {
		t.Fatalf("%v", err)
	}
}

func TestRotationNeverLocksOut(t *testing.T) {
	old, oldName := newKey(t)
	fresh, freshName := newKey(t)
	content := encrypted(t, sample, "", oldName)
	hash := hashOf(t, content, old)
	steps := []struct {
		recipients []string
		newKey     bool
		readers    []age.Identity
		refused    []age.Identity
	}{
		{[]string{oldName, freshName}, false, []age.Identity{old, fresh}, nil},
		{[]string{freshName}, true, []age.Identity{fresh}, []age.Identity{old}},
	}
	for index, step := range steps {
		before := content
		var err error
		content, err = Rotate(content, []age.Identity{old, fresh}, Rotation{step.recipients, step.newKey, now})
		if err != nil {
			t.Fatal(err)
		}
		for _, reader := range step.readers {
			if found := hashOf(t, content, reader); found != hash {
				t.Errorf("step %d: the content changed, so pods would restart", index)
			}
		}
		for _, reader := range step.refused {
			if _, err := Decrypt(content, []age.Identity{reader}); err == nil {
				t.Errorf("step %d: a removed recipient can read", index)
			}
		}
		if keeps := lineOf(before, "TOKEN=") == lineOf(content, "TOKEN="); keeps == step.newKey {
			t.Errorf("step %d: the value was encrypted anew: %v", index, !keeps)
		}
	}
	if found, err := RecipientsOf(content); err != nil || !reflect.DeepEqual(found, []string{freshName}) {
		t.Errorf("%v, %v", found, err)
	}
}

func hashOf(t *testing.T, content []byte, identity age.Identity) string {
	t.Helper()
	decrypted, err := Decrypt(content, []age.Identity{identity})
	if err != nil {
		t.Fatal(err)
	}
	merged, err := Merge([]File{{"shop.env", *decrypted}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return merged.Hash("web/shop")
}

func lineOf(content []byte, prefix string) string {
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
	return ""
}

// A change of one value changes its line, the hash and the date, so that Git shows what was edited.
func TestReplaceKeepsUnchangedLines(t *testing.T) {
	identity, recipient := newKey(t)
	before := encrypted(t, sample, "", recipient)
	after, err := Replace(before, []age.Identity{identity}, linesOf(t, strings.Replace(sample, canary, "other", 1)), now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var changed []string
	old := strings.Split(string(before), "\n")
	for index, line := range strings.Split(string(after), "\n") {
		if line != old[index] {
			key, _, _ := strings.Cut(line, "=")
			changed = append(changed, key)
		}
	}
	if !reflect.DeepEqual(changed, []string{"TOKEN", "sops_lastmodified", "sops_mac"}) {
		t.Fatalf("%v", changed)
	}
	decrypted, err := Decrypt(after, []age.Identity{identity})
	if err != nil || !strings.Contains(string(dotenv.Format(decrypted.Lines)), "TOKEN=other") {
		t.Fatalf("%v", err)
	}
}

// Who names the wrong half of a key must not find it in the log of a CI run.
func TestAPrivateKeyIsNoRecipientAndNotPrinted(t *testing.T) {
	identity, recipient := newKey(t)
	for _, name := range []string{identity.String(), strings.ToLower(identity.String()), recipient + "\n" + identity.String()} {
		_, err := Encrypt(linesOf(t, sample), Options{Recipients: []string{recipient, name}, Now: now})
		if err == nil || !strings.Contains(err.Error(), "a recipient is a private key") {
			t.Fatalf("it is taken, or the reason is not named")
		}
		if strings.Contains(strings.ToUpper(err.Error()), identity.String()) {
			t.Error("the private key is in the error")
		}
	}
}

func TestRecipientsAreBounded(t *testing.T) {
	identity, name := newKey(t)
	many := make([]string, RecipientsMax)
	for index := range many {
		many[index] = name
	}
	content := encrypted(t, "A=1\n", "", many...)
	if _, err := Decrypt(content, []age.Identity{identity}); err != nil {
		t.Fatal(err)
	}
	for _, recipients := range [][]string{append(many, name), nil, {"age1nonsense"}, {name + "\n" + name}} {
		if _, err := Encrypt(linesOf(t, "A=1"), Options{Recipients: recipients, Now: now}); err == nil {
			t.Errorf("%d recipients were taken", len(recipients))
		}
	}
}

func TestMergeSplitsAndRefusesDuplicates(t *testing.T) {
	secret := File{"a.env", Decrypted{linesOf(t, "A=1\nB=2\n"), map[string]bool{"A": true}}}
	merged, err := Merge([]File{secret}, map[string]string{"C": "3"})
	want := Settings{Secret: map[string]string{"A": "1"}, Plain: map[string]string{"B": "2", "C": "3"}}
	if err != nil || !reflect.DeepEqual(merged, want) {
		t.Fatalf("%+v, %v", merged, err)
	}
	_, err = Merge([]File{secret, {"b.env", Decrypted{Lines: linesOf(t, "B=2\n")}}}, nil)
	if err == nil || !strings.Contains(err.Error(), "b.env: B is already set in a.env") {
		t.Fatalf("%v", err)
	}
	_, err = Merge([]File{secret}, map[string]string{"A": "x"})
	if err == nil || !strings.Contains(err.Error(), "spec.env: A is already set in a.env") {
		t.Fatalf("%v", err)
	}
}

func TestSettingsAreBounded(t *testing.T) {
	value := strings.Repeat("x", BytesMax/2-1)
	if _, err := Merge(nil, map[string]string{"A": value, "B": value}); err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(nil, map[string]string{"A": value, "B": value + "x"}); err == nil {
		t.Fatal("a byte more was taken")
	}
}

func TestTheHashIsThatOfTheContent(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	seen := map[string]string{}
	for range 2000 {
		settings := Settings{Secret: map[string]string{}, Plain: map[string]string{}}
		for range random.IntN(3) {
			settings.Secret[string(rune('A'+random.IntN(3)))] = strings.Repeat("x", random.IntN(3))
		}
		for range random.IntN(3) {
			settings.Plain[string(rune('A'+random.IntN(3)))] = strings.Repeat("x", random.IntN(3))
		}
		text := fmt.Sprintf("%v %v", settings.Secret, settings.Plain)
		hash := settings.Hash("web/shop")
		if before, isThere := seen[hash]; isThere && before != text {
			t.Fatalf("%s and %s have the same hash", before, text)
		}
		seen[hash] = text
		if settings.Hash("web/shop") != hash || settings.Hash("web/other") == hash {
			t.Fatal("the hash does not depend on the content and the app alone")
		}
	}
}

func FuzzDecrypt(f *testing.F) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}
	lines, _ := dotenv.ParseStored([]byte(sample))
	content, err := Encrypt(lines, Options{Recipients: []string{identity.Recipient().String()}, Now: now})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Fuzz(func(t *testing.T, content []byte) {
		_, _ = Decrypt(content, []age.Identity{identity})
	})
}
