package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// decrypted contains the settings of a subject, or the problem why they cannot be read.
type decrypted struct {
	values settings.Settings
	// files are the unchanged files, as in the Git repository.
	files map[string]string
	// from is the name of the ConfigMap that contains the files.
	from    string
	problem string
}

// settings reads and decrypts all files. It returns all settings or none.
func (operator *Operator) settings(ctx context.Context, subject *subject) (decrypted, error) {
	var result decrypted
	var files []settings.File
	var contents []settings.Content
	names := subject.envFiles
	if subject.repositoryFile != "" {
		names = append(slices.Clone(names), subject.repositoryFile)
	}
	if len(names)+len(subject.mounted) > 0 {
		result.from = subject.object.GetAnnotations()[render.AnnotationFiles]
		if result.from == "" {
			result.from = render.FilesName(subject.object.GetName())
		}
		content, err := operator.files(ctx, types.NamespacedName{Namespace: subject.object.GetNamespace(), Name: result.from})
		if apierrors.IsNotFound(err) {
			result.problem = fmt.Sprintf("the ConfigMap %s with the encrypted files does not exist; run `roost deploy`", result.from)
			return result, nil
		}
		if err != nil {
			return result, err
		}
		if files, result.files, err = operator.decryptAll(names, content); err != nil {
			result.problem = err.Error()
			return result, nil
		}
		if contents, err = operator.decryptContents(subject.mounted, content, result.files); err != nil {
			result.problem = err.Error()
			return result, nil
		}
	}
	values, err := merged(files, subject)
	if err != nil {
		result.problem = err.Error()
		return result, nil
	}
	if len(contents) > 0 {
		values = values.WithContents(contents)
	}
	if subject.secret != "" {
		// mountedSecret has checked its keys.
		result.values = values
		return result, nil
	}
	if missing := subject.missing(values); len(missing) > 0 {
		result.problem = fmt.Sprintf("%s has no encrypted %s; add it with `roost secrets edit`", subject.envFiles[0], strings.Join(missing, ", "))
		return result, nil
	}
	if problem := subject.unusable(values); problem != "" {
		result.problem = subject.envFiles[0] + ": " + problem + " with `roost secrets edit`"
		return result, nil
	}
	result.values = values
	return result, nil
}

// merged separates the keys of the backup repository, whose file is the last one, from the settings of the app.
func merged(files []settings.File, subject *subject) (settings.Settings, error) {
	if subject.repositoryFile == "" {
		return settings.Merge(files, subject.env)
	}
	last := len(files) - 1
	values, err := settings.Merge(files[:last], subject.env)
	if err != nil {
		return values, err
	}
	return values.WithRepository(files[last])
}

// files reads a ConfigMap from the cache, or from the API server if the cache does not contain it yet.
func (operator *Operator) files(ctx context.Context, name types.NamespacedName) (*corev1.ConfigMap, error) {
	var content corev1.ConfigMap
	err := operator.Reader.Get(ctx, name, &content)
	if apierrors.IsNotFound(err) {
		err = operator.Live.Get(ctx, name, &content)
	}
	return &content, err
}

func (operator *Operator) decryptAll(names []string, content *corev1.ConfigMap) ([]settings.File, map[string]string, error) {
	var files []settings.File
	raw := map[string]string{}
	for _, name := range names {
		text, err := fileIn(content, name)
		if err != nil {
			return nil, nil, err
		}
		raw[name] = text
		file, err := operator.decrypt(content.Namespace, name, []byte(text))
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file)
	}
	return files, raw, nil
}

func fileIn(content *corev1.ConfigMap, name string) (string, error) {
	text, isThere := content.Data[render.FilesKey(name)]
	if !isThere {
		return "", fmt.Errorf("the ConfigMap %s has no %s; run `roost deploy`", content.Name, render.FilesKey(name))
	}
	return text, nil
}

// decryptContents decrypts the files that pods mount, and adds them to the unchanged files.
func (operator *Operator) decryptContents(names []string, content *corev1.ConfigMap, raw map[string]string) ([]settings.Content, error) {
	var contents []settings.Content
	for _, name := range names {
		text, err := fileIn(content, name)
		if err != nil {
			return nil, err
		}
		raw[name] = text
		decrypted, err := operator.decryptContent(content.Namespace, name, []byte(text))
		if err != nil {
			return nil, err
		}
		contents = append(contents, decrypted)
	}
	return contents, nil
}

func (operator *Operator) decryptContent(namespace, name string, sealed []byte) (settings.Content, error) {
	if !settings.IsEncryptedContent(sealed) {
		return settings.PlainContent(name, sealed)
	}
	identities, err := operator.identities(namespace)
	if err != nil {
		return settings.Content{}, err
	}
	plain, err := settings.DecryptContent(sealed, identities)
	if err != nil {
		return settings.Content{}, fmt.Errorf("%s: %w", name, err)
	}
	return settings.Content{Name: name, Text: string(plain), IsSecret: true}, nil
}

func (operator *Operator) decrypt(namespace, name string, content []byte) (settings.File, error) {
	if !settings.IsEncrypted(content) {
		return settings.AppliedPlainFile(name, content)
	}
	identities, err := operator.identities(namespace)
	if err != nil {
		return settings.File{}, err
	}
	plain, err := settings.Decrypt(content, identities)
	if err != nil {
		return settings.File{}, fmt.Errorf("%s: %w", name, err)
	}
	return settings.File{Name: name, Decrypted: *plain}, nil
}
