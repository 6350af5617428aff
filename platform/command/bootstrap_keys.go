package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	identitySecret = "roost-identity"
	identityKey    = "identity.txt"
	// identityEnd is the end of the name of a file with the age identity of a namespace.
	identityEnd = ".txt"
)

// checkAgeIdentities checks the names of the files: the operator looks for the name of the namespace.
func (config *bootstrapConfig) checkAgeIdentities() error {
	for index, path := range config.AgeIdentities {
		name, isText := strings.CutSuffix(filepath.Base(path), identityEnd)
		if !isText || len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("ageIdentities[%d]: %q is not named after a namespace; write NAMESPACE%s", index, path, identityEnd)
		}
	}
	return nil
}

// operatorKeys returns the files for the operator's Secret: an age identity for each namespace, or the one of the user. A file without an age identity
// is an error, because what is in the Secret is never replaced.
func (run *bootstrap) operatorKeys() (map[string][]byte, error) {
	if len(run.config.AgeIdentities) == 0 {
		path, _ := run.identityFile()
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("the age identity for the operator cannot be read: %w; name its file with --identity", err)
		}
		_, err = run.identities()
		return map[string][]byte{identityKey: text}, err
	}
	keys := map[string][]byte{}
	for _, path := range run.paths(run.config.AgeIdentities) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("ageIdentities: %w; `roost secrets keygen %s` writes one", err, path)
		}
		if _, err := age.ParseIdentities(bytes.NewReader(text)); err != nil {
			// The error of the library may contain the line, which is a private key.
			return nil, fmt.Errorf("ageIdentities: %s is not a file of age identities", path)
		}
		keys[filepath.Base(path)] = text
	}
	return keys, nil
}

// missingKeys describes what the operator's Secret lacks. Keys are only added: the cluster may have a newer one.
func (run *bootstrap) missingKeys(ctx context.Context) ([]string, error) {
	var secret corev1.Secret
	err := run.cluster.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: identitySecret}, &secret)
	if apierrors.IsNotFound(err) {
		return []string{"Secret " + identitySecret + " in " + operatorNamespace}, nil
	}
	if err != nil {
		return nil, run.cluster.explained(err)
	}
	var missing []string
	for _, path := range run.config.AgeIdentities {
		if name := filepath.Base(path); secret.Data[name] == nil {
			missing = append(missing, name+" to Secret "+identitySecret+" in "+operatorNamespace)
		}
	}
	return missing, nil
}

// addKeys creates the operator's Secret, or adds keys to it.
func (run *bootstrap) addKeys(ctx context.Context, keys map[string][]byte) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: identitySecret}, Data: keys}
	err := run.cluster.Create(ctx, secret)
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return run.cluster.explained(err)
	}
	if err := run.cluster.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
		return run.cluster.explained(err)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	hasAdded := false
	for _, path := range run.config.AgeIdentities {
		if name := filepath.Base(path); secret.Data[name] == nil {
			secret.Data[name], hasAdded = keys[name], true
		}
	}
	if !hasAdded {
		return nil
	}
	if err := run.cluster.Update(ctx, secret); err != nil {
		return run.cluster.explained(err)
	}
	return nil
}
