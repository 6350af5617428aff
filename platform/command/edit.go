package command

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/dunlin-project/dunlin/platform/dotenv"
	"github.com/dunlin-project/dunlin/platform/settings"
)

func (program *program) editCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "edit FILE",
		Short: "Edit an encrypted file with $EDITOR",
		Long: `Edit an encrypted .env file, or a file that is encrypted as a whole, with $EDITOR.

The editor gets the decrypted text in a file in memory (tmpfs), which only you can read and which is removed afterwards. Lines of
unchanged values stay the same. If the text is not valid, nothing is written, and the editor opens again.`,
		Args: exactlyOne,
		RunE: func(_ *cobra.Command, paths []string) error { return program.edit(paths[0]) },
	}
}

func (program *program) edit(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !isEncrypted(content) {
		return fmt.Errorf("%s is not encrypted; `roost secrets encrypt %s` encrypts it", path, path)
	}
	identities, err := program.identities()
	if err != nil {
		return err
	}
	text, err := editableText(content, identities)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	after, err := program.editText(filepath.Base(path), text)
	if err != nil {
		return err
	}
	sealed, err := text.seal(after)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if sealed == nil {
		recipients, err := settings.RecipientsOf(content)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		program.note("%s: no change", path)
		return program.printChanges([]fileChange{{path, false, recipients}})
	}
	return program.replaceAndPrint(map[string][]byte{path: sealed})
}

// editable is the decrypted text of a file.
type editable struct {
	text []byte
	// check returns why an edited text cannot be encrypted.
	check func(edited []byte) error
	// seal encrypts an edited text. It returns nil if nothing has changed.
	seal func(edited []byte) ([]byte, error)
}

func editableText(content []byte, identities []age.Identity) (*editable, error) {
	if settings.IsEncryptedContent(content) {
		return editableContent(content, identities)
	}
	decrypted, err := settings.Decrypt(content, identities)
	if err != nil {
		return nil, err
	}
	return &editable{
		text: dotenv.Text(decrypted.Lines),
		check: func(edited []byte) error {
			_, err := dotenv.ParseChange(edited, decrypted.Lines)
			return err
		},
		seal: func(edited []byte) ([]byte, error) {
			lines, err := dotenv.ParseChange(edited, decrypted.Lines)
			if err != nil || bytes.Equal(dotenv.Format(lines), dotenv.Format(decrypted.Lines)) {
				return nil, err
			}
			return settings.Replace(content, identities, lines, time.Now())
		},
	}, nil
}

func editableContent(content []byte, identities []age.Identity) (*editable, error) {
	plain, err := settings.DecryptContent(content, identities)
	if err != nil {
		return nil, err
	}
	return &editable{
		text:  plain,
		check: settings.CheckContent,
		seal: func(edited []byte) ([]byte, error) {
			if bytes.Equal(edited, plain) {
				return nil, nil
			}
			return settings.ReplaceContent(content, identities, edited, time.Now())
		},
	}, nil
}

// fileChange is the result of a command for an encrypted file.
type fileChange struct {
	File       string   `json:"file"`
	IsChanged  bool     `json:"changed"`
	Recipients []string `json:"recipients"`
}

// replaceAndPrint writes encrypted files, and prints them as JSON if requested.
func (program *program) replaceAndPrint(files map[string][]byte) error {
	changes := []fileChange{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		recipients, err := settings.RecipientsOf(files[path])
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := replaceFile(path, files[path]); err != nil {
			return err
		}
		changes = append(changes, fileChange{path, true, recipients})
	}
	return program.printChanges(changes)
}

// printChanges prints changes as JSON only. Without JSON, the notes on standard error describe them.
func (program *program) printChanges(changes []fileChange) error {
	if !program.isJSON() {
		return nil
	}
	return program.printJSON(changes)
}

// editText opens the editor. It opens the editor again while the text changes and is invalid.
func (program *program) editText(name string, before *editable) (edited []byte, err error) {
	text := before.text
	editor := strings.Fields(program.Variable("EDITOR"))
	if len(editor) == 0 {
		return nil, errNoEditor
	}
	// Handle signals, because ending the program at once would leave the decrypted text behind.
	signals := make(chan os.Signal, signalsWaitingMax)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	folder, err := program.memoryFolder()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	file := filepath.Join(folder, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	for {
		command := exec.Command(editor[0], append(editor[1:], file)...)
		command.Stdin, command.Stdout, command.Stderr = program.In, program.Out, program.Err
		if program.isJSON() {
			// The output of the editor is not JSON.
			command.Stdout = program.Err
		}
		if err := runEditor(command, signals); err != nil {
			return nil, fmt.Errorf("%s: %w; nothing is written", editor[0], err)
		}
		if edited, err = os.ReadFile(file); err != nil {
			return nil, err
		}
		wrong := before.check(edited)
		if wrong == nil || bytes.Equal(edited, text) {
			return edited, nil
		}
		program.note("%s: %s. To cancel, leave the text unchanged", name, wrong)
		text = edited
	}
}

const signalsWaitingMax = 8

// runEditor waits for the end of an editor. Signals that should end the program end the editor.
func runEditor(editor *exec.Cmd, signals <-chan os.Signal) error {
	if err := editor.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- editor.Wait() }()
	var cause error
	for {
		select {
		case err := <-ended:
			return errors.Join(cause, err)
		case received := <-signals:
			// The terminal sends SIGINT to the editor as well. Some editors treat it as a key, so leave it to the editor.
			if received != os.Interrupt {
				cause = fmt.Errorf("roost received the signal %s", received)
				_ = editor.Process.Signal(received) // it may have ended
			}
		}
	}
}

const tmpfsMagic = 0x01021994

// memoryFolder creates a folder in memory. Its content reaches a disk only by swapping.
func (program *program) memoryFolder() (string, error) {
	for _, parent := range []string{program.Variable("XDG_RUNTIME_DIR"), "/dev/shm"} {
		var info syscall.Statfs_t
		if parent == "" || syscall.Statfs(parent, &info) != nil || int64(info.Type) != tmpfsMagic {
			continue
		}
		if folder, err := os.MkdirTemp(parent, "roost-"); err == nil {
			return folder, nil
		}
	}
	return "", errors.New("neither $XDG_RUNTIME_DIR nor /dev/shm is a tmpfs, and decrypted secrets must not be written to a disk; mount a tmpfs at /dev/shm")
}
