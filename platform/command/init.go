package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/dunlin-project/dunlin/platform/validate"
)

// imageOfExample is that of an app until its own one is named.
const imageOfExample = "registry.example.com/app:1.0.0"

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
	var kind, namespace, host string
	spec := &siteSpec{}
	command := &cobra.Command{
		Use:   "init SITE | init FOLDER NAME",
		Short: "Write the files of a new site, or a first manifest with roost.yaml and your key",
		Long: `With one argument, write all files from which ` + "`roost up`" + ` makes bare machines a cluster with a first app: an inventory, an encrypted token of k3s,
bootstrap.yaml, the playbook, the operator, cert-manager and its issuer. The command asks for what no flag says: the addresses of the machines, the
domain, and an e-mail address for Let's Encrypt. It reads the checksums of k3s and the manifests of cert-manager from their releases, once. If the
site exists, only missing files of SITE/` + roostFolder + ` are written: delete that folder and run the command again after an upgrade of roost.

With two arguments, write a first manifest into a folder, and roost.yaml with your age public key.

If you have no age identity yet, one is written to ~/.config/roost/identity.txt. Keep a copy of it with your other keys: without it, files
that are encrypted only for it cannot be decrypted. Existing files are never changed, but the .gitignore of a site gets the names of private files.`,
		Example: `  roost init site
  roost init site --machines 203.0.113.11=10.78.0.11,203.0.113.12=10.78.0.12 --domain example.com --email ops@example.com
  roost init apps shop --namespace web --image registry.example.com/shop:1.4.2 --host shop.example.com`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 1 && len(arguments) != 2 {
				return usageError{fmt.Errorf("there are %d arguments; name a site, or a folder and the app", len(arguments))}
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			if len(arguments) == 1 {
				return program.newSite(command, arguments[0], spec)
			}
			if name := changedOf(command, flagsOfSite); name != "" {
				return usageError{fmt.Errorf("--%s belongs to a site; name only its folder", name)}
			}
			folder, name := arguments[0], arguments[1]
			template, isKnown := map[string]string{"app": appManifest, "dunlin": dunlinManifest}[kind]
			if !isKnown {
				return usageError{fmt.Errorf("--kind is %q; write app or dunlin", kind)}
			}
			fill := strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "IMAGE", spec.image, "HOST", host)
			return program.initialize(folder, name, []byte(fill.Replace(template)))
		},
	}
	command.Flags().StringVar(&kind, "kind", "app", "of a manifest: app or dunlin")
	command.Flags().StringVar(&namespace, "namespace", "default", "of a manifest: namespace")
	command.Flags().StringVar(&spec.image, "image", imageOfExample, "image of the app with a tag or a digest")
	command.Flags().StringVar(&host, "host", "app.example.com", "of a manifest: public host name")
	spec.addFlags(command)
	return command
}

// newSite asks, checks all answers, and writes the files.
func (program *program) newSite(command *cobra.Command, folder string, spec *siteSpec) error {
	if name := changedOf(command, flagsOfManifest); name != "" {
		return usageError{fmt.Errorf("--%s belongs to a manifest; name a folder and the app, or remove the flag", name)}
	}
	if isFile(filepath.Join(folder, bootstrapFile)) {
		// The operator's manifest is written again, so its registry is named again.
		asked := slices.DeleteFunc(append(slices.Clone(flagsOfSite), "image"), func(name string) bool { return name == "registry" })
		if name := changedOf(command, asked); name != "" {
			return usageError{fmt.Errorf("--%s: %s exists, so nothing is asked; change the files, or name another folder", name, filepath.Join(folder, bootstrapFile))}
		}
		if problems := spec.imageProblems(); len(problems) > 0 {
			return program.refused(problems)
		}
		return program.initializeSite(folder, spec)
	}
	if err := program.ask(command, spec); err != nil {
		return err
	}
	if problems := spec.problems(); len(problems) > 0 {
		return program.refused(problems)
	}
	return program.initializeSite(folder, spec)
}

// changedOf returns the first of some flags that is set, or an empty string.
func changedOf(command *cobra.Command, names []string) string {
	index := slices.IndexFunc(names, func(name string) bool { return command.Flags().Changed(name) })
	if index < 0 {
		return ""
	}
	return names[index]
}

func (program *program) initialize(folder, name string, manifest []byte) error {
	if problems := validate.File(manifest)[0].Problems; len(problems) > 0 {
		return program.refused(problems)
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
	// Written are the files that did not exist before, in the order in which they were written. Kept existed, and are as they were.
	Written   []string `json:"written"`
	Kept      []string `json:"kept,omitempty"`
	Recipient string   `json:"recipient,omitempty"`
	// Problems are why nothing was written.
	Problems []validate.Problem `json:"problems,omitempty"`
}

// refused prints problems, because of which nothing is written.
func (program *program) refused(problems []validate.Problem) error {
	if err := program.printRefused(problems); err != nil {
		return err
	}
	return &foundError{plural(len(problems), "problem", "problems") + "; nothing is written"}
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
	for _, path := range made.Kept {
		program.print("kept %s, which existed", path)
	}
	return nil
}

// ownRecipient returns the public key of the user's age identity. If there is no identity, it creates one and returns its file.
func (program *program) ownRecipient() (recipient, made string, err error) {
	identities, err := program.identities()
	if err != nil {
		return "", "", err
	}
	if recipient := recipientOf(identities); recipient != "" {
		return recipient, "", nil
	}
	path, _ := program.identityFile()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", "", err
	}
	recipient, err = writeIdentity(path)
	return recipient, path, err
}

// recipientOf returns the public key of the first age identity that has one, or an empty string.
func recipientOf(identities []age.Identity) string {
	for _, identity := range identities {
		switch identity := identity.(type) {
		case *age.X25519Identity:
			return identity.Recipient().String()
		case *age.HybridIdentity:
			return identity.Recipient().String()
		}
	}
	return ""
}

// writeIdentity writes a new age identity to a new file, and returns its public key.
func writeIdentity(path string) (recipient string, err error) {
	recipient, text, err := newIdentity()
	if err != nil {
		return "", err
	}
	return recipient, writeNew(path, text, 0o600)
}

// newIdentity returns a new age identity as the text of its file, and its public key.
func newIdentity() (recipient string, text []byte, err error) {
	fresh, err := age.GenerateX25519Identity()
	if err != nil {
		return "", nil, err
	}
	return fresh.Recipient().String(), fmt.Appendf(nil, "# public key: %s\n%s\n", fresh.Recipient(), fresh), nil
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
