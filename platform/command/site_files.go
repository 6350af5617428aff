package command

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/dunlin-project/dunlin/platform/crd"
	"github.com/dunlin-project/dunlin/platform/deploy"
	"github.com/dunlin-project/dunlin/platform/dotenv"
	"github.com/dunlin-project/dunlin/platform/machines"
	"github.com/dunlin-project/dunlin/platform/settings"
)

const (
	// roostFolder has what comes with the program, as it is.
	roostFolder = "roost"
	tokenBytes  = 32
	// siteIdentity has the age identity with which the operator decrypts the files of the namespace.
	siteIdentity   = siteNamespace + identityEnd
	siteKubeconfig = "k3s.kubeconfig"
	siteIgnored    = ".gitignore"

	siteBootstrap = `# For ` + "`roost up`" + `: ` + "`roost help up`" + ` describes each key.
inventory: hosts.yml
playbook: roost/machines/site.yml
token: token.env
ssh: USER@SERVER
kubeconfig: ` + siteKubeconfig + `
operator: [roost/crd, roost/operator.yaml, roost/roles.yaml, roost/namespace.yaml, cert-manager.yaml, issuer.yaml]
# The operator gets this age identity, and not yours. It is not committed.
ageIdentities: [` + siteIdentity + `]
apps: [apps]
`
	siteIssuer = `apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: { name: letsencrypt }
spec:
  acme:
    server: https://acme-v02.api.letsencrypt.org/directory
    email: EMAIL
    privateKeySecretRef: { name: letsencrypt-account }
    solvers: [{ http01: { ingress: { ingressClassName: traefik } } }]
`
	siteInventory = `# The machines. docs/reference/variables.md of Roost lists all variables.
all:
  vars:
    ansible_user: USER
    # first_user: admin # the user that a new machine accepts, if not root; with sudo and without a password
    users_admins:
      - name: USER
        keys: [KEY]
    k3s_version: VERSION
    # With the checksums that the release had when this file was written.
    k3s_programs:
      x86_64: { name: k3s, sha256: AMD64 }
      aarch64: { name: k3s-arm64, sha256: ARM64 }
    k3s_binary_url: "RELEASE/{{ k3s_programs[ansible_facts.architecture].name }}"
    k3s_binary_sha256: "{{ k3s_programs[ansible_facts.architecture].sha256 }}"
  children:
`
	siteRepository = `# Who can decrypt the .env files. ` + "`roost secrets rotate .`" + ` applies a change.
recipients:
- USER
# The operator decrypts only these, with ` + siteIdentity + `.
folders:
  apps: { recipients: [USER, OPERATOR] }
cluster: { httpsEntryPoint: websecure }
`
)

// siteFile is a file of a new site.
type siteFile struct {
	name string
	text []byte
	mode fs.FileMode
}

// siteKeys are the keys of a new site: the public SSH key of its user, the age public keys of the user and of the operator, and the operator's age identity.
type siteKeys struct {
	ssh, user, operator string
	identity            []byte
}

// siteKeys reads or makes the keys. The operator's age identity of an interrupted run counts, because roost.yaml may have its public key.
func (program *program) siteKeys(folder, ssh, user string) (siteKeys, error) {
	keys := siteKeys{ssh: ssh, user: user}
	path := filepath.Join(folder, siteIdentity)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		keys.operator, keys.identity, err = newIdentity()
		return keys, err
	}
	if err != nil {
		return keys, err
	}
	identities, err := age.ParseIdentities(bytes.NewReader(text))
	if keys.operator = recipientOf(identities); err != nil || keys.operator == "" {
		// The error of the library may contain the line, which is a private key.
		return keys, fmt.Errorf("%s is not a file of age identities; move it away, or write one with `roost secrets keygen`", path)
	}
	keys.identity = text
	return keys, nil
}

// newFiles reads what the files of a new site need besides the answers, and returns them.
func (program *program) newFiles(folder string, spec *siteSpec, made *initialized) ([]siteFile, error) {
	key, err := program.publicKey(spec)
	if err != nil {
		return nil, err
	}
	pins, err := spec.download()
	if err != nil {
		return nil, err
	}
	recipient, identity, err := program.ownRecipient()
	if err != nil {
		return nil, err
	}
	if made.Recipient = recipient; identity != "" {
		made.Written = append(made.Written, identity)
	}
	keys, err := program.siteKeys(folder, key, recipient)
	if err != nil {
		return nil, err
	}
	return spec.files(pins, keys)
}

// files returns the files that answers become. Their names are relative to the folder of the site.
func (spec *siteSpec) files(pins pins, keys siteKeys) ([]siteFile, error) {
	parsed, problems := spec.parseMachines()
	if len(problems) > 0 {
		return nil, errors.New(problems[0].String())
	}
	token, err := newToken(keys.user)
	if err != nil {
		return nil, err
	}
	release := releaseOfK3s(spec.downloads, spec.k3sVersion)
	fill := strings.NewReplacer("USER", siteUser, "SERVER", parsed[0].public.String(), "EMAIL", strconv.Quote(spec.email), "KEY", strconv.Quote(keys.ssh),
		"VERSION", spec.k3sVersion, "AMD64", strconv.Quote(pins.amd64), "ARM64", strconv.Quote(pins.arm64), "RELEASE", release)
	recipients := strings.NewReplacer("USER", keys.user, "OPERATOR", keys.operator)
	app := strings.NewReplacer("NAMESPACE", siteNamespace, "NAME", siteApp, "IMAGE", spec.image, "HOST", siteApp+"."+spec.domain).Replace(appManifest)
	return []siteFile{
		{"hosts.yml", []byte(fill.Replace(siteInventory) + groupsOf(parsed)), 0o644},
		{siteIdentity, keys.identity, 0o600},
		{"token.env", token, 0o644},
		{repositoryFile, []byte(recipients.Replace(siteRepository)), 0o644},
		{"issuer.yaml", []byte(fill.Replace(siteIssuer)), 0o644},
		{"cert-manager.yaml", pins.certManager, 0o644},
		{"apps/" + siteApp + ".yaml", []byte(app + "  tls: { issuer: letsencrypt }\n"), 0o644},
		// The last one: without it, the command may be run again.
		{bootstrapFile, []byte(fill.Replace(siteBootstrap)), 0o644},
	}, nil
}

// groupsOf returns the groups of an inventory: the first machine is the server.
func groupsOf(machines []siteMachine) string {
	var text strings.Builder
	for index, machine := range machines {
		switch index {
		case 0:
			text.WriteString("    k3s_server:\n      hosts:\n")
		case 1:
			text.WriteString("    k3s_agent:\n      hosts:\n")
		}
		fmt.Fprintf(&text, "        %s: { ansible_host: %s, private_address: %s }\n", machine.name, machine.public, machine.private)
	}
	return text.String()
}

// newToken returns an encrypted file with a token of k3s that nobody has seen.
func newToken(recipient string) ([]byte, error) {
	random := make([]byte, tokenBytes)
	// It never fails: package crypto/rand ends the program instead.
	_, _ = rand.Read(random)
	lines, err := dotenv.Parse([]byte(tokenVariable + "=" + hex.EncodeToString(random) + "\n"))
	if err != nil {
		return nil, err
	}
	return settings.Encrypt(lines, settings.Options{Recipients: []string{recipient}, Now: time.Now()})
}

// ownFiles returns the files that come with the program: definitions, the operator and the playbook.
func (spec *siteSpec) ownFiles() ([]siteFile, error) {
	operator, err := deploy.OfMachines()
	if err != nil {
		return nil, err
	}
	text := string(operator)
	for _, name := range []string{"roost-operator", "roost-backup"} {
		text = strings.ReplaceAll(text, deploy.Image(name), spec.operatorImage(name))
	}
	files := []siteFile{{roostFolder + "/operator.yaml", []byte(text), 0o644}}
	for _, one := range []struct {
		from fs.FS
		into string
		only string
	}{{deploy.Files, "", "roles.yaml"}, {deploy.Files, "", "namespace.yaml"}, {crd.Files, "crd", ""}, {machines.Files, "machines", ""}} {
		err := fs.WalkDir(one.from, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || one.only != "" && name != one.only {
				return err
			}
			text, err := fs.ReadFile(one.from, name)
			files = append(files, siteFile{path.Join(roostFolder, one.into, name), text, 0o644})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// initializeSite writes the files of a site. If it has bootstrap.yaml, only those that come with the program are written where they are missing.
func (program *program) initializeSite(folder string, spec *siteSpec) error {
	comesWith, err := spec.ownFiles()
	if err != nil {
		return err
	}
	if err := spec.keepsRegistry(folder, comesWith[0]); err != nil {
		return err
	}
	made := initialized{Written: []string{}}
	var files []siteFile
	if !isFile(filepath.Join(folder, bootstrapFile)) {
		if files, err = program.newFiles(folder, spec, &made); err != nil {
			return err
		}
	}
	own, keptOwn, err := writeSite(folder, comesWith)
	if err != nil {
		return err
	}
	if len(own) > 0 {
		made.Written = append(made.Written, filepath.Join(folder, roostFolder))
	}
	if len(files) > 0 {
		// Before the files that it names.
		if err := program.ignore(filepath.Join(folder, siteIgnored), &made); err != nil {
			return err
		}
	}
	written, kept, err := writeSite(folder, files)
	if err != nil {
		return err
	}
	made.Written, made.Kept = append(made.Written, written...), append(made.Kept, kept...)
	if err := program.printInitialized(made); err != nil {
		return err
	}
	if len(keptOwn) > 0 {
		program.note("%s: %s; after an upgrade of roost, delete the folder and run the command again",
			filepath.Join(folder, roostFolder), plural(len(keptOwn), "file existed and is kept", "files existed and are kept"))
	}
	if spec.registry == deploy.Registry() && len(own) > 0 {
		program.note("%s is a placeholder for a registry with Roost's images, which are not published yet; delete %s, and run `roost init %s --registry REGISTRY`",
			spec.registry, filepath.Join(folder, roostFolder), folder)
	}
	if len(files) == 0 {
		return nil
	}
	if spec.image == imageOfExample {
		program.note("%s is a placeholder for the image of your app; correct it in %s", spec.image, filepath.Join(folder, "apps", siteApp+".yaml"))
	}
	program.note("%s.%s has to resolve to the machines. Then run `roost up %s`, which needs ansible-core %s and ssh", siteApp, spec.domain, folder, machines.AnsibleVersion())
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// keepsRegistry refuses a registry that the operator's manifest would not get, because it exists and is kept.
func (spec *siteSpec) keepsRegistry(folder string, operator siteFile) error {
	path := filepath.Join(folder, filepath.FromSlash(operator.name))
	text, err := os.ReadFile(path)
	if spec.registry == deploy.Registry() || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !bytes.Equal(text, operator.text) {
		err = fmt.Errorf("--registry: %s exists and would be kept; delete %s first", path, filepath.Join(folder, roostFolder))
	}
	return err
}

// ignore names the private files of a site in its .gitignore, which may exist.
func (program *program) ignore(path string, made *initialized) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	isNew := err != nil
	lines := strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	var missing []string
	for _, name := range []string{siteKubeconfig, siteIdentity} {
		if !slices.Contains(lines, name) && !slices.Contains(lines, "/"+name) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		made.Kept = append(made.Kept, path)
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	added := strings.Join(missing, "\n") + "\n"
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		added = "\n" + added
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(added); err != nil {
		return errors.Join(err, file.Close())
	}
	if isNew {
		made.Written = append(made.Written, path)
	} else {
		program.note("added %s to %s", strings.Join(missing, " and "), path)
	}
	return file.Close()
}

// writeSite writes the files that do not exist. It returns their names, and those of the files that exist.
func writeSite(folder string, files []siteFile) (written, kept []string, err error) {
	for _, file := range files {
		target := filepath.Join(folder, filepath.FromSlash(file.name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return written, kept, err
		}
		switch err := writeNew(target, file.text, file.mode); {
		case err == nil:
			written = append(written, target)
		case errors.Is(err, fs.ErrExist):
			kept = append(kept, target)
		default:
			return written, kept, err
		}
	}
	return written, kept, nil
}

// releaseOfK3s returns the address of the files of a release.
func releaseOfK3s(downloads, version string) string {
	return strings.TrimSuffix(downloads, "/") + "/k3s-io/k3s/releases/download/" + url.QueryEscape(version)
}
