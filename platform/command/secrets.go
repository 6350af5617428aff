package command

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/dunlin-project/dunlin/platform/dotenv"
	"github.com/dunlin-project/dunlin/platform/settings"
)

func (program *program) secretsCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "secrets",
		Short: "Encrypt, edit, rotate and check .env files and mounted files, and write age identities",
		Args:  cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, arguments []string) error {
			if len(arguments) > 0 {
				return usageError{fmt.Errorf("unknown command secrets %s; `roost help secrets` lists the commands", arguments[0])}
			}
			return command.Help()
		},
	}
	command.AddCommand(program.encryptCommand(), program.editCommand(), program.rotateCommand(), program.checkCommand(), program.keygenCommand())
	return command
}

func (program *program) encryptCommand() *cobra.Command {
	var recipients []string
	plainKeys := ""
	command := &cobra.Command{
		Use:   "encrypt FILE",
		Short: "Encrypt an .env file or a file of spec.files in place",
		Long: `Encrypt a file in place, for the recipients that roost.yaml has for its folder, or those of --recipient.

In an .env file, each value is encrypted. Keys that match --plain stay readable and become a ConfigMap. All others become a Secret.
A file with another name is encrypted as a whole, as ` + "`sops encrypt --input-type binary`" + ` does: spec.files mounts it from a Secret.`,
		Args: exactlyOne,
		RunE: func(_ *cobra.Command, paths []string) error {
			path := paths[0]
			repository, err := repositoryOf(path)
			if err != nil {
				return err
			}
			if len(recipients) == 0 {
				recipients = repository.Recipients
			}
			if plainKeys == "" {
				plainKeys = repository.PlainKeys
			}
			if len(recipients) == 0 {
				return fmt.Errorf("there is no recipient; write age public keys into %s, or name them with --recipient", repositoryFile)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if isEncrypted(content) {
				return fmt.Errorf("%s is already encrypted; `roost secrets edit` changes it", path)
			}
			options := settings.Options{Recipients: recipients, PlainKeys: plainKeys, Now: time.Now()}
			sealed, err := encrypt(path, content, options)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := program.replaceAndPrint(map[string][]byte{path: sealed}); err != nil {
				return err
			}
			program.note("%s is encrypted for %s. If it was committed before, the Git history contains its values: change them",
				path, plural(len(recipients), "recipient", "recipients"))
			return nil
		},
	}
	command.Flags().StringArrayVar(&recipients, "recipient", nil, "age public key, instead of those of roost.yaml")
	command.Flags().StringVar(&plainKeys, "plain", "", "regular expression for keys that are not secrets")
	return command
}

// encrypt encrypts each value of an .env file, and any other file as a whole.
func encrypt(path string, content []byte, options settings.Options) ([]byte, error) {
	if !isEnvFile(path) {
		return settings.EncryptContent(content, options)
	}
	lines, err := dotenv.Parse(content)
	if err != nil {
		return nil, err
	}
	return settings.Encrypt(lines, options)
}

func isEnvFile(path string) bool { return strings.HasSuffix(path, ".env") }

func isEncrypted(content []byte) bool {
	return settings.IsEncrypted(content) || settings.IsEncryptedContent(content)
}

func (program *program) keygenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen FILE",
		Short: "Write a new age identity, and print its public key",
		Long: `Write a new age identity to a file that does not exist, and print its public key: a recipient for roost.yaml.

An operator of several namespaces needs one for each of them, as NAMESPACE.txt in its Secret. Keep a copy of the file with your other keys, and
do not commit it.`,
		Args: exactlyOne,
		RunE: func(_ *cobra.Command, paths []string) error {
			recipient, err := writeIdentity(paths[0])
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s already exists; choose another name, so that no key is lost", paths[0])
			}
			if err != nil {
				return err
			}
			if program.isJSON() {
				return program.printJSON(initialized{Written: paths, Recipient: recipient})
			}
			program.print("%s", recipient)
			return nil
		},
	}
}

func (program *program) rotateCommand() *cobra.Command {
	withNewDataKey := false
	command := &cobra.Command{
		Use:   "rotate FILE|FOLDER...",
		Short: "Encrypt files again, for the present recipients of roost.yaml",
		Long: `Encrypt .env files and mounted files again, for the present recipients of roost.yaml. Values stay the same, so no pod restarts.

To replace a key: add the new recipient to roost.yaml, rotate, give the new age identity to everyone who decrypts, remove the old recipient,
and rotate with --new-data-key. A holder of the old age identity may have read the values: change them as well.`,
		Args: atLeastOne,
		RunE: func(_ *cobra.Command, paths []string) error {
			files, err := encryptedFiles(paths)
			if err != nil {
				return err
			}
			identities, err := program.identities()
			if err != nil {
				return err
			}
			// Decrypt all files before the first one is written.
			rotated := map[string][]byte{}
			for _, path := range files {
				if rotated[path], err = rotate(path, identities, withNewDataKey); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
			if err := program.replaceAndPrint(rotated); err != nil {
				return err
			}
			program.note("%s rotated", plural(len(files), "file", "files"))
			return nil
		},
	}
	command.Flags().BoolVar(&withNewDataKey, "new-data-key", false, "encrypt all values again with a new data key, after a recipient was removed")
	return command
}

func rotate(path string, identities []age.Identity, withNewDataKey bool) ([]byte, error) {
	repository, err := repositoryOf(path)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return settings.Rotate(content, identities, settings.Rotation{
		Recipients: repository.Recipients, WithNewDataKey: withNewDataKey, Now: time.Now(),
	})
}

// envFiles returns the named files, and the files in folders that are encrypted or whose names end with .env.
func envFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			isFound := file == path || isEnvFile(file)
			if !isFound {
				isFound, err = isEncryptedContent(file, entry)
			}
			if isFound {
				files = append(files, file)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// headBytes of a file show whether it can be JSON.
const headBytes = 512

// isEncryptedContent reports whether a file is encrypted as a whole. A folder may be a whole repository, so it reads only the beginning of a file
// that is no JSON, and nothing of one that is larger than an encrypted file can be.
func isEncryptedContent(path string, entry fs.DirEntry) (bool, error) {
	info, err := entry.Info()
	if err != nil || !info.Mode().IsRegular() || info.Size() > settings.EncryptedBytesMax {
		return false, err
	}
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	reader := bufio.NewReader(file)
	head, err := reader.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if !bytes.HasPrefix(bytes.TrimSpace(head), []byte("{")) {
		return false, nil
	}
	content, err := io.ReadAll(reader)
	return err == nil && settings.IsEncryptedContent(content), err
}

func encryptedFiles(paths []string) ([]string, error) {
	all, err := envFiles(paths)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, path := range all {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if isEncrypted(content) {
			files = append(files, path)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: there is no encrypted file; `roost secrets encrypt` encrypts one", strings.Join(paths, ", "))
	}
	return files, nil
}

// fileState is the result of `secrets check` for a file.
type fileState struct {
	File        string   `json:"file"`
	IsEncrypted bool     `json:"encrypted"`
	IsDecrypted bool     `json:"decrypted"`
	Recipients  []string `json:"recipients,omitempty"`
	Problem     string   `json:"problem,omitempty"`
}

func (program *program) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE|FOLDER...",
		Short: "Check that .env files and mounted files are intact and encrypted for the recipients of roost.yaml",
		Long: `Check that .env files have valid syntax, and that encrypted files are intact and encrypted for the recipients of roost.yaml.

A plain file whose keys look like secrets is a problem. With an age identity, files are decrypted as well; no value is printed.`,
		Args: atLeastOne,
		RunE: func(_ *cobra.Command, paths []string) error {
			files, err := envFiles(paths)
			if err != nil {
				return err
			}
			identities, err := program.identities()
			if err != nil {
				return err
			}
			states := []fileState{}
			problems := 0
			for _, path := range files {
				state := checkFile(path, identities)
				if state.Problem != "" {
					problems++
				}
				states = append(states, state)
			}
			if err := program.printStates(states); err != nil {
				return err
			}
			if problems > 0 {
				return &foundError{plural(problems, "problem", "problems")}
			}
			return nil
		},
	}
}

func (program *program) printStates(states []fileState) error {
	if program.isJSON() {
		return program.printJSON(states)
	}
	for _, state := range states {
		what := "plain"
		switch {
		case state.Problem != "":
			what = state.Problem
		case state.IsDecrypted:
			what = "encrypted for " + plural(len(state.Recipients), "recipient", "recipients") + ", decrypted"
		case state.IsEncrypted:
			what = "encrypted for " + plural(len(state.Recipients), "recipient", "recipients") + ", not decrypted without an age identity"
		}
		program.print("%s: %s", state.File, what)
	}
	return nil
}

func checkFile(path string, identities []age.Identity) fileState {
	state := fileState{File: path}
	content, err := os.ReadFile(path)
	if err != nil {
		state.Problem = err.Error()
		return state
	}
	if !isEncrypted(content) {
		state.Problem = checkPlain(path, content)
		return state
	}
	state.IsEncrypted = true
	if state.Recipients, err = settings.RecipientsOf(content); err != nil {
		state.Problem = err.Error()
		return state
	}
	repository, err := repositoryOf(path)
	if err != nil {
		state.Problem = err.Error()
		return state
	}
	if wanted := repository.Recipients; len(wanted) > 0 && !isSameSet(wanted, state.Recipients) {
		state.Problem = fmt.Sprintf("the recipients differ from those in %s; run `roost secrets rotate %s`", repositoryFile, path)
		return state
	}
	if len(identities) == 0 {
		return state
	}
	if err := decryptable(content, identities); err != nil {
		state.Problem = err.Error()
		return state
	}
	state.IsDecrypted = true
	return state
}

// decryptable returns why a file cannot be decrypted, or nil.
func decryptable(content []byte, identities []age.Identity) error {
	if settings.IsEncryptedContent(content) {
		_, err := settings.DecryptContent(content, identities)
		return err
	}
	_, err := settings.Decrypt(content, identities)
	return err
}

// secretKey matches names of keys whose values are usually secret.
var secretKey = regexp.MustCompile(`(?i)(SECRET|PASSWORD|PASSWD|TOKEN|PRIVATE|CREDENTIAL|API_?KEY|DATABASE_URL|DSN)`)

func checkPlain(path string, content []byte) string {
	if !isEnvFile(path) {
		if _, err := settings.PlainContent(filepath.Base(path), content); err != nil {
			return err.Error()
		}
		return ""
	}
	file, err := settings.PlainFile(filepath.Base(path), content)
	if err != nil {
		return strings.TrimPrefix(err.Error(), filepath.Base(path)+": ")
	}
	for _, line := range dotenv.Entries(file.Lines) {
		if secretKey.MatchString(line.Key) && line.Value != "" {
			return fmt.Sprintf("line %d: %s looks like a secret and is not encrypted; run `roost secrets encrypt %s`", line.Number, line.Key, path)
		}
	}
	return ""
}

func isSameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return reflect.DeepEqual(slices.Compact(a), slices.Compact(b))
}

var errNoEditor = errors.New("$EDITOR is not set; set it to a program such as vi or nano")
