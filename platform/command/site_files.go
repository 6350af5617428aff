package command

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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

	siteBootstrap = `# For ` + "`roost up`" + `: ` + "`roost help up`" + ` describes each key.
inventory: hosts.yml
playbook: roost/machines/site.yml
token: token.env
ssh: USER@SERVER
kubeconfig: k3s.kubeconfig
operator: [roost/crd, roost/operator.yaml, roost/roles.yaml, roost/namespace.yaml, cert-manager.yaml, issuer.yaml]
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
- RECIPIENT
cluster: { httpsEntryPoint: websecure }
`
)

// siteFile is a file of a new site.
type siteFile struct {
	name string
	text []byte
	mode fs.FileMode
}

// files returns the files that answers become. Their names are relative to the folder of the site.
func (spec *siteSpec) files(pins pins, key, recipient string) ([]siteFile, error) {
	parsed, problems := spec.parseMachines()
	if len(problems) > 0 {
		return nil, errors.New(problems[0].String())
	}
	token, err := newToken(recipient)
	if err != nil {
		return nil, err
	}
	release := releaseOfK3s(spec.downloads, spec.k3sVersion)
	fill := strings.NewReplacer("USER", siteUser, "SERVER", parsed[0].public.String(), "EMAIL", strconv.Quote(spec.email), "KEY", strconv.Quote(key), "RECIPIENT", recipient,
		"VERSION", spec.k3sVersion, "AMD64", strconv.Quote(pins.amd64), "ARM64", strconv.Quote(pins.arm64), "RELEASE", release)
	app := strings.NewReplacer("NAMESPACE", siteNamespace, "NAME", siteApp, "IMAGE", spec.image, "HOST", siteApp+"."+spec.domain).Replace(appManifest)
	return []siteFile{
		{"hosts.yml", []byte(fill.Replace(siteInventory) + groupsOf(parsed)), 0o644},
		{"token.env", token, 0o644},
		{repositoryFile, []byte(fill.Replace(siteRepository)), 0o644},
		{"issuer.yaml", []byte(fill.Replace(siteIssuer)), 0o644},
		{"cert-manager.yaml", pins.certManager, 0o644},
		{"apps/" + siteApp + ".yaml", []byte(app + "  tls: { issuer: letsencrypt }\n"), 0o644},
		{".gitignore", []byte("k3s.kubeconfig\n"), 0o644},
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
	made := initialized{Written: []string{}}
	var files []siteFile
	if !isFile(filepath.Join(folder, bootstrapFile)) {
		key, err := program.publicKey(spec)
		if err != nil {
			return err
		}
		pins, err := spec.download()
		if err != nil {
			return err
		}
		recipient, identity, err := program.ownRecipient()
		if err != nil {
			return err
		}
		if made.Recipient = recipient; identity != "" {
			made.Written = append(made.Written, identity)
		}
		if files, err = spec.files(pins, key, recipient); err != nil {
			return err
		}
	}
	comesWith, err := spec.ownFiles()
	if err != nil {
		return err
	}
	own, err := writeSite(folder, comesWith)
	if err != nil {
		return err
	}
	if len(own) > 0 {
		made.Written = append(made.Written, filepath.Join(folder, roostFolder))
	}
	written, err := writeSite(folder, files)
	if err != nil {
		return err
	}
	made.Written = append(made.Written, written...)
	if err := program.printInitialized(made); err != nil {
		return err
	}
	if spec.registry == deploy.Registry() && len(own) > 0 {
		program.note("%s is a placeholder for a registry with Roost's images, which are not published yet; delete %s, and run `roost init %s --registry REGISTRY`",
			spec.registry, filepath.Join(folder, roostFolder), folder)
	}
	if len(files) == 0 {
		return nil
	}
	program.note("%s.%s has to resolve to the machines. Then run `roost up %s`, which needs ansible-core %s and ssh", siteApp, spec.domain, folder, machines.AnsibleVersion())
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// writeSite writes the files that do not exist, and returns their names.
func writeSite(folder string, files []siteFile) ([]string, error) {
	var written []string
	for _, file := range files {
		target := filepath.Join(folder, filepath.FromSlash(file.name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return written, err
		}
		switch err := writeNew(target, file.text, file.mode); {
		case err == nil:
			written = append(written, target)
		case !errors.Is(err, fs.ErrExist):
			return written, err
		}
	}
	return written, nil
}

// releaseOfK3s returns the address of the files of a release.
func releaseOfK3s(downloads, version string) string {
	return strings.TrimSuffix(downloads, "/") + "/k3s-io/k3s/releases/download/" + url.QueryEscape(version)
}
