package proof

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	sopsage "github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/cmd/sops/common"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/decrypt"
	"github.com/getsops/sops/v3/stores/dotenv"
	"github.com/getsops/sops/v3/stores/json"
	"github.com/sirupsen/logrus"

	ours "github.com/dunlin-project/dunlin/platform/dotenv"
	"github.com/dunlin-project/dunlin/platform/settings"
)

const filesMin, contentsMin = 1000, 200

// randomFile is in the form that Roost writes: one line for each entry.
func randomFile(random *rand.Rand) []ours.Line {
	alphabet := []rune("aZ0_ \t\n\r'\"\\`#$=nrt{}():,;!ä🐦")
	var lines []ours.Line
	for index := range random.IntN(8) {
		text := func() string {
			runes := make([]rune, random.IntN(16))
			for position := range runes {
				runes[position] = alphabet[random.IntN(len(alphabet))]
			}
			return string(runes)
		}
		if random.IntN(5) == 0 {
			comment := strings.NewReplacer("\n", "", "\r", "").Replace(text())
			lines = append(lines, ours.Line{Comment: strings.TrimRight(comment, " \t")})
		}
		suffix := []string{"", "", "_unencrypted"}[random.IntN(3)]
		lines = append(lines, ours.Line{Key: fmt.Sprintf("KEY_%d%s", index, suffix), Value: text()})
	}
	return lines
}

// TestSopsAndWeReadEachOther holds our reader and writer against the sops library, in both directions.
func TestSopsAndWeReadEachOther(t *testing.T) {
	logrus.SetLevel(logrus.PanicLevel)
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOPS_AGE_KEY", identity.String())
	random := rand.New(rand.NewPCG(5, 6))
	for index := range filesMin {
		lines := randomFile(random)
		plain := string(ours.Format(lines))
		rules := [][2]string{{"", ""}, {"^KEY_[0-3]$", ""}}[random.IntN(2)]

		content, err := settings.Encrypt(lines, settings.Options{
			Recipients: []string{identity.Recipient().String()}, PlainKeys: rules[0], Now: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := decrypt.Data(content, "dotenv"); err != nil || string(found) != plain {
			t.Fatalf("file %d: sops reads %q, %v\nexpected %q\n%s", index, found, err, plain, content)
		}

		theirs := encryptWithSops(t, plain, rules[0], identity.Recipient().String(), random.IntN(2) == 0)
		decrypted, err := settings.Decrypt(theirs, []age.Identity{identity})
		if err != nil || string(ours.Format(decrypted.Lines)) != plain {
			t.Fatalf("file %d: we read %+v, %v\nexpected %q\n%s", index, decrypted, err, plain, theirs)
		}
		again, err := settings.Rotate(theirs, []age.Identity{identity}, settings.Rotation{
			Recipients: []string{identity.Recipient().String()}, WithNewDataKey: random.IntN(2) == 0, Now: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := decrypt.Data(again, "dotenv"); err != nil || string(found) != plain {
			t.Fatalf("file %d after rotation: sops reads %q, %v\nexpected %q", index, found, err, plain)
		}
	}
}

// TestSopsAndWeReadFilesThatAreEncryptedAsAWhole holds the JSON of whole files against the sops library, in both directions.
func TestSopsAndWeReadFilesThatAreEncryptedAsAWhole(t *testing.T) {
	logrus.SetLevel(logrus.PanicLevel)
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOPS_AGE_KEY", identity.String())
	recipient := identity.Recipient().String()
	random := rand.New(rand.NewPCG(7, 8))
	for index := range contentsMin {
		plain := make([]byte, random.IntN(400))
		for position := range plain {
			plain[position] = byte(random.IntN(256))
		}
		content, err := settings.EncryptContent(plain, settings.Options{Recipients: []string{recipient}, Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := decrypt.Data(content, "binary"); err != nil || !bytes.Equal(found, plain) {
			t.Fatalf("file %d: sops reads %q, %v\nexpected %q\n%s", index, found, err, plain, content)
		}
		store := json.NewBinaryStore(&config.JSONBinaryStoreConfig{})
		branches, err := store.LoadPlainFile(plain)
		if err != nil {
			t.Fatal(err)
		}
		theirs := emitted(t, store, branches, "", recipient, random.IntN(2) == 0)
		if found, err := settings.DecryptContent(theirs, []age.Identity{identity}); err != nil || !bytes.Equal(found, plain) {
			t.Fatalf("file %d: we read %q, %v\nexpected %q\n%s", index, found, err, plain, theirs)
		}
		again, err := settings.Rotate(theirs, []age.Identity{identity}, settings.Rotation{
			Recipients: []string{recipient}, WithNewDataKey: random.IntN(2) == 0, Now: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := decrypt.Data(again, "binary"); err != nil || !bytes.Equal(found, plain) {
			t.Fatalf("file %d after rotation: sops reads %q, %v\nexpected %q", index, found, err, plain)
		}
	}
}

func encryptWithSops(t *testing.T, plain, unencryptedRegex, recipient string, macOnlyEncrypted bool) []byte {
	t.Helper()
	store := dotenv.NewStore(&config.DotenvStoreConfig{})
	branches, err := store.LoadPlainFile([]byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	return emitted(t, store, branches, unencryptedRegex, recipient, macOnlyEncrypted)
}

func emitted(t *testing.T, store sops.EncryptedFileEmitter, branches sops.TreeBranches, unencryptedRegex, recipient string, macOnlyEncrypted bool) []byte {
	t.Helper()
	key, err := sopsage.MasterKeyFromRecipient(recipient)
	if err != nil {
		t.Fatal(err)
	}
	metadata := sops.Metadata{
		KeyGroups: []sops.KeyGroup{{key}}, Version: "3.13.3", MACOnlyEncrypted: macOnlyEncrypted, UnencryptedRegex: unencryptedRegex,
	}
	if unencryptedRegex == "" {
		metadata.UnencryptedSuffix = sops.DefaultUnencryptedSuffix
	}
	tree := sops.Tree{Branches: branches, Metadata: metadata}
	dataKey, errs := tree.GenerateDataKey()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if err := common.EncryptTree(common.EncryptTreeOpts{DataKey: dataKey, Tree: &tree, Cipher: aes.NewCipher()}); err != nil {
		t.Fatal(err)
	}
	content, err := store.EmitEncryptedFile(tree)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
