package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	identitySecret = "roost-identity"
	// identityKey is the file that an operator of one namespace uses, if its Deployment names no other one.
	identityKey = "identity.txt"
	// identityEnd is the end of the name of a file with the age identity of a namespace.
	identityEnd = ".txt"
)

// checkAgeIdentities checks the names of the files: the operator looks for the name of the namespace.
func (config *bootstrapConfig) checkAgeIdentities() error {
	before := map[string]string{}
	for index, path := range config.AgeIdentities {
		file := filepath.Base(path)
		name, isText := strings.CutSuffix(file, identityEnd)
		if !isText || len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Errorf("ageIdentities[%d]: %q is not named after a namespace; write NAMESPACE%s", index, path, identityEnd)
		}
		if other, isTwice := before[file]; isTwice {
			return fmt.Errorf("ageIdentities[%d]: %q has the same name as %q, and the Secret has one file of each name; remove one of them", index, path, other)
		}
		before[file] = path
	}
	return nil
}

// operatorArguments are those arguments of the operator's Deployment that say which age identities it needs.
type operatorArguments struct {
	namespaces []string
	// identityKey is the name of the file that an operator of one namespace uses.
	identityKey string
}

// isOperator reports whether an object is the Deployment of the operator.
func isOperator(object *unstructured.Unstructured) bool {
	return object.GetKind() == "Deployment" && object.GetNamespace() == operatorNamespace && object.GetName() == operatorName
}

func operatorArgumentsOf(objects []*unstructured.Unstructured) (operatorArguments, error) {
	found := operatorArguments{identityKey: identityKey}
	for _, object := range objects {
		if !isOperator(object) {
			continue
		}
		var deployment appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment); err != nil {
			return found, fmt.Errorf("%s: %w", titleOf(object), err)
		}
		for _, container := range deployment.Spec.Template.Spec.Containers {
			words := slices.Concat(container.Command, container.Args)
			if names := argumentOf(words, "namespaces"); names != "" {
				found.namespaces = slices.Compact(slices.Sorted(slices.Values(strings.Split(names, ","))))
			}
			if file := argumentOf(words, "identity"); file != "" {
				found.identityKey = filepath.Base(file)
			}
		}
	}
	return found, nil
}

// argumentOf returns the value of a flag as package flag reads it: --name=value, or --name and then the value. The last one counts.
func argumentOf(words []string, name string) string {
	found := ""
	for index, word := range words {
		text := strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-")
		if text == word {
			continue
		}
		if value, isSet := strings.CutPrefix(text, name+"="); isSet {
			found = value
		} else if text == name && index+1 < len(words) {
			found = words[index+1]
		}
	}
	return found
}

// missingKeys returns the files that the operator's Secret lacks. Files are only added: the cluster may have a newer one. An operator of several
// namespaces without an age identity for one of them is an error, because it would decrypt nothing there.
func (run *bootstrap) missingKeys(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
	arguments, err := operatorArgumentsOf(objects)
	if err != nil {
		return nil, err
	}
	var secret corev1.Secret
	err = run.cluster.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: identitySecret}, &secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, run.cluster.explained(err)
	}
	var wanted []string
	for _, path := range run.config.AgeIdentities {
		wanted = append(wanted, filepath.Base(path))
	}
	if err := arguments.check(wanted, secret.Data); err != nil {
		return nil, err
	}
	if len(wanted) == 0 && len(secret.Data) == 0 {
		wanted = []string{arguments.identityKey}
	}
	return slices.DeleteFunc(wanted, func(name string) bool { return secret.Data[name] != nil }), nil
}

// check returns an error if one of several namespaces would have no age identity of its own.
func (arguments operatorArguments) check(added []string, present map[string][]byte) error {
	if len(arguments.namespaces) < 2 {
		return nil
	}
	var without []string
	for _, namespace := range arguments.namespaces {
		name := namespace + identityEnd
		if name == arguments.identityKey {
			return fmt.Errorf("the age identity of the namespace %s would be the file %s, which --identity of the operator names as the shared one; "+
				"set --identity in its Deployment to another file, such as /etc/roost/shared.txt", namespace, name)
		}
		if present[name] == nil && !slices.Contains(added, name) {
			without = append(without, namespace)
		}
	}
	if len(without) > 0 {
		return fmt.Errorf("the operator would manage %d namespaces without an age identity for %s; add NAMESPACE%s for each to ageIdentities. "+
			"docs/identities.md has the steps", len(arguments.namespaces), strings.Join(without, ", "), identityEnd)
	}
	return nil
}

// readKeys reads the named files for the operator's Secret. A file without an age identity is an error, because what is in the Secret is never
// replaced.
func (run *bootstrap) readKeys(names []string) (map[string][]byte, error) {
	keys := map[string][]byte{}
	if len(names) == 0 {
		return keys, nil
	}
	if len(run.config.AgeIdentities) == 0 {
		path, _ := run.identityFile()
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("the age identity for the operator cannot be read: %w; name its file with --identity", err)
		}
		keys[names[0]] = text
		_, err = run.identities()
		return keys, err
	}
	for _, path := range run.paths(run.config.AgeIdentities) {
		if !slices.Contains(names, filepath.Base(path)) {
			continue
		}
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

// addKeys creates the operator's Secret, or adds files to it. A file that has been added in the meantime stays as it is.
func (run *bootstrap) addKeys(ctx context.Context, keys map[string][]byte) error {
	if len(keys) == 0 {
		return nil
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: identitySecret}, Data: keys}
	err := run.cluster.Create(ctx, secret)
	if !apierrors.IsAlreadyExists(err) {
		return run.cluster.explained(err)
	}
	if err := run.cluster.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
		return run.cluster.explained(err)
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for name, text := range keys {
		if secret.Data[name] == nil {
			secret.Data[name] = text
		}
	}
	return run.cluster.explained(run.cluster.Update(ctx, secret))
}
