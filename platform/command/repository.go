package command

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"filippo.io/age"

	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/validate"
)

// repositoryFile is in the folder of the manifests or above it.
const repositoryFile = "roost.yaml"

// repository has the settings that all manifests of a repository share.
type repository struct {
	// Recipients are the age public keys for which .env files are encrypted.
	Recipients []string `json:"recipients"`
	// Folders have recipients of their own, which replace those above. The names are relative to the folder of roost.yaml.
	Folders map[string]folderRecipients `json:"folders,omitempty"`
	// PlainKeys is a regular expression of keys that are not secret.
	PlainKeys string `json:"plainKeys,omitempty"`
	// Cluster has the names of the cluster, if they are not those of k3s.
	Cluster clusterNames `json:"cluster,omitzero"`
	// Preview has what `roost deploy --as` replaces.
	Preview previewSettings `json:"preview,omitzero"`
}

type previewSettings struct {
	// Host is the public name of each preview, with {name} in the place of its name.
	Host string `json:"host,omitempty"`
	// TLSSecret has a certificate for Host, such as one for *.preview.example.com. Without it, an App whose TLS has an issuer gets one of its own.
	TLSSecret string `json:"tlsSecret,omitempty"`
}

type folderRecipients struct {
	Recipients []string `json:"recipients"`
}

type clusterNames struct {
	IngressClass        string `json:"ingressClass,omitempty"`
	HTTPSEntryPoint     string `json:"httpsEntryPoint,omitempty"`
	IngressNamespace    string `json:"ingressNamespace,omitempty"`
	MonitoringNamespace string `json:"monitoringNamespace,omitempty"`
	OperatorNamespace   string `json:"operatorNamespace,omitempty"`
	BackupImage         string `json:"backupImage,omitempty"`
}

func (repository *repository) cluster() render.Cluster { return render.Cluster(repository.Cluster) }

// repositoryOf finds roost.yaml for a file. Without roost.yaml, there are no recipients.
func repositoryOf(path string) (*repository, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	for folder := absolute; ; folder = filepath.Dir(folder) {
		text, err := os.ReadFile(filepath.Join(folder, repositoryFile))
		switch {
		case err == nil:
			found := &repository{}
			file := filepath.Join(folder, repositoryFile)
			if err := validate.Decode(text, found); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if problems := validate.Cluster("cluster.", found.cluster()); len(problems) > 0 {
				return nil, fmt.Errorf("%s: %s", file, problems[0])
			}
			if err := found.checkPreviewHost(); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if found.Recipients, err = found.recipientsOf(folder, absolute); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			return found, nil
		case !errors.Is(err, fs.ErrNotExist) && !isNotFolder(err):
			return nil, err
		case folder == filepath.Dir(folder):
			return &repository{}, nil
		}
	}
}

// recipientsOf returns the recipients of the innermost folder that has some and contains the path. A name that matches no folder is an error,
// because files in the folder that was meant would be encrypted for others.
func (repository *repository) recipientsOf(root, path string) ([]string, error) {
	recipients, depth := repository.Recipients, -1
	for _, name := range slices.Sorted(maps.Keys(repository.Folders)) {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("folders: %q is not a folder beside or below %s; write its name relative to it", name, repositoryFile)
		}
		folder := filepath.Join(root, name)
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("folders: %s does not exist, or is not a folder; create it, or correct the name", name)
		}
		if len(repository.Folders[name].Recipients) == 0 {
			return nil, fmt.Errorf("folders: %s has no recipients; write age public keys, or remove the folder", name)
		}
		below, err := filepath.Rel(folder, path)
		if err == nil && filepath.IsLocal(below) && len(folder) > depth {
			recipients, depth = repository.Folders[name].Recipients, len(folder)
		}
	}
	return recipients, nil
}

// isNotFolder reports whether a part of the path is a file instead of a folder.
func isNotFolder(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// identityFile returns the first configured file, and whether the user has configured it explicitly.
func (program *program) identityFile() (string, bool) {
	for _, path := range []string{program.identity, program.Variable("ROOST_IDENTITY_FILE"), program.Variable("SOPS_AGE_KEY_FILE")} {
		if path != "" {
			return path, true
		}
	}
	return filepath.Join(program.Variable("HOME"), ".config", "roost", "identity.txt"), false
}

// identities reads the private keys. A missing file is an error only if the user has configured it explicitly.
func (program *program) identities() ([]age.Identity, error) {
	path, isNamed := program.identityFile()
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !isNamed {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("age identity: %w; name an existing file", err)
	}
	defer file.Close()
	identities, err := age.ParseIdentities(file)
	if err != nil {
		// The error of the library may contain the line, which is a private key.
		return nil, fmt.Errorf("age identity: %s is not a file of age identities; `roost secrets keygen %s` writes one", path, path)
	}
	return identities, nil
}

// replaceFile writes a file atomically.
func replaceFile(path string, content []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}
