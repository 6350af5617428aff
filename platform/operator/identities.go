package operator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"filippo.io/age"
)

// identities reads the age identities of a namespace each time, because their Secret changes when keys are rotated.
//
// The file NAMESPACE.txt beside IdentityFile has them. IdentityFile itself counts only if the operator manages one namespace: whoever may deploy
// in one of several namespaces could have the files of another one decrypted into their own pods.
func (operator *Operator) identities(namespace string) ([]age.Identity, error) {
	path := filepath.Join(filepath.Dir(operator.IdentityFile), namespace+".txt")
	if len(operator.Namespaces) > 1 && path == filepath.Clean(operator.IdentityFile) {
		return nil, fmt.Errorf("the operator manages %d namespaces, and the file %s of the namespace %s is the one that --identity names as the shared one; "+
			"set --identity to another file, such as %s, and let %s have only the age identity of this namespace",
			len(operator.Namespaces), path, namespace, filepath.Join(filepath.Dir(path), "shared.txt"), filepath.Base(path))
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if len(operator.Namespaces) > 1 {
			return nil, fmt.Errorf("the operator manages %d namespaces and has no age identity for %s; add one to its Secret as %s.txt, "+
				"and encrypt the files of this namespace for it", len(operator.Namespaces), namespace, namespace)
		}
		path = operator.IdentityFile
		file, err = os.Open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("the operator has no age identity: %w; mount a Secret with one, and name the file with --identity", err)
	}
	defer file.Close()
	identities, err := age.ParseIdentities(file)
	if err != nil {
		// The error of the library may contain the line, which is a private key.
		return nil, fmt.Errorf("%s is not a file of age identities; `roost secrets keygen` writes one", path)
	}
	return identities, nil
}
