package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/dunlin-project/dunlin/platform/validate"
)

const appManifest = `apiVersion: apps.roost.dev/v1alpha1
kind: App
metadata: { name: NAME, namespace: NAMESPACE }
spec:
  image: IMAGE
  host: HOST
  ports: [{ port: 8080 }]
  health: { path: /healthz }
`

const dunlinManifest = `apiVersion: apps.roost.dev/v1alpha1
kind: Dunlin
metadata: { name: NAME, namespace: NAMESPACE }
spec:
  image: IMAGE
  host: HOST
  # A Secret with api_key and token_hmac_secret_key, and the label apps.roost.dev/usable=true.
  keys: { secret: NAME-keys }
`

func (program *program) initCommand() *cobra.Command {
	var kind, namespace, image, host string
	command := &cobra.Command{
		Use:   "init FOLDER NAME",
		Short: "Write a first manifest, and roost.yaml with your key",
		Long: `Write a first manifest into a folder, and roost.yaml with your age public key.

If you have no age identity yet, one is written to ~/.config/roost/identity.txt. Keep a copy of it with your other keys: without it, files
that are encrypted only for it cannot be decrypted. Existing files are never changed.`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 2 {
				return usageError{fmt.Errorf("there are %d arguments; name a folder and the app", len(arguments))}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, arguments []string) error {
			folder, name := arguments[0], arguments[1]
			template, isKnown := map[string]string{"app": appManifest, "dunlin": dunlinManifest}[kind]
			if !isKnown {
				return usageError{fmt.Errorf("--kind is %q; write app or dunlin", kind)}
			}
			fill := strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "IMAGE", image, "HOST", host)
			return program.initialize(folder, name, []byte(fill.Replace(template)))
		},
	}
	command.Flags().StringVar(&kind, "kind", "app", "app or dunlin")
	command.Flags().StringVar(&namespace, "namespace", "default", "namespace")
	command.Flags().StringVar(&image, "image", "registry.example.com/app:1.0.0", "image with a tag or a digest")
	command.Flags().StringVar(&host, "host", "app.example.com", "public host name")
	return command
}

func (program *program) initialize(folder, name string, manifest []byte) error {
	if problems := validate.File(manifest)[0].Problems; len(problems) > 0 {
		if err := program.printRefused(problems); err != nil {
			return err
		}
		return &foundError{plural(len(problems), "problem", "problems") + "; nothing is written"}
	}
	target := filepath.Join(folder, name+".yaml")
	if _, err := os.Stat(target); err == nil {
		return fmt.Errorf("%s already exists; choose another name", target)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	recipient, identity, err := program.ownRecipient()
	if err != nil {
		return err
	}
	made := initialized{Written: []string{}, Recipient: recipient}
	if identity != "" {
		made.Written = append(made.Written, identity)
	}
	shared := fmt.Sprintf("# Who can decrypt the .env files. `roost secrets rotate .` applies a change.\nrecipients:\n- %s\n", recipient)
	for _, file := range []struct {
		path string
		text []byte
	}{{target, manifest}, {filepath.Join(folder, repositoryFile), []byte(shared)}} {
		switch err := writeNew(file.path, file.text, 0o644); {
		case err == nil:
			made.Written = append(made.Written, file.path)
		case !errors.Is(err, fs.ErrExist):
			return err
		}
	}
	return program.printInitialized(made)
}

// initialized is the result of `roost init`.
type initialized struct {
	// Written are the files that did not exist before, in the order in which they were written.
	Written   []string `json:"written"`
	Recipient string   `json:"recipient,omitempty"`
	// Problems are why nothing was written.
	Problems []validate.Problem `json:"problems,omitempty"`
}

func (program *program) printRefused(problems []validate.Problem) error {
	if program.isJSON() {
		return program.printJSON(initialized{Written: []string{}, Problems: problems})
	}
	for _, problem := range problems {
		program.print("%s", problem)
	}
	return nil
}

func (program *program) printInitialized(made initialized) error {
	if program.isJSON() {
		return program.printJSON(made)
	}
	for _, path := range made.Written {
		program.print("wrote %s", path)
	}
	return nil
}

// ownRecipient returns the public key of the user's age identity. If there is no identity, it creates one and returns its file.
func (program *program) ownRecipient() (recipient, made string, err error) {
	identities, err := program.identities()
	if err != nil {
		return "", "", err
	}
	for _, identity := range identities {
		switch identity := identity.(type) {
		case *age.X25519Identity:
			return identity.Recipient().String(), "", nil
		case *age.HybridIdentity:
			return identity.Recipient().String(), "", nil
		}
	}
	path, _ := program.identityFile()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", "", err
	}
	recipient, err = writeIdentity(path)
	return recipient, path, err
}

// writeIdentity writes a new age identity to a new file, and returns its public key.
func writeIdentity(path string) (recipient string, err error) {
	fresh, err := age.GenerateX25519Identity()
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("# public key: %s\n%s\n", fresh.Recipient(), fresh)
	return fresh.Recipient().String(), writeNew(path, []byte(text), 0o600)
}

// writeNew never changes a file that exists.
func writeNew(path string, text []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}
