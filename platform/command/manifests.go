package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/render"
)

func (program *program) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE|FOLDER...",
		Short: "Report each invalid field of manifests and .env files",
		Args:  atLeastOne,
		RunE: func(_ *cobra.Command, paths []string) error {
			result, err := program.load(paths)
			if err != nil {
				return err
			}
			if err := program.report(result); err != nil || program.isJSON() {
				return err
			}
			for _, file := range result.sealed {
				program.note("%s is encrypted and was not decrypted, because there is no age identity", file)
			}
			program.print("%s, no problem", plural(len(result.manifests), "manifest", "manifests"))
			return nil
		},
	}
}

// rendered loads and renders. Settings that cannot be decrypted are an error here, because they would change the objects.
func (program *program) rendered(paths []string) ([]runtime.Object, error) {
	result, err := program.loadValid(paths, "")
	if err != nil {
		return nil, err
	}
	if len(result.sealed) > 0 {
		return nil, fmt.Errorf("%s: encrypted, and there is no age identity; name its file with --identity", strings.Join(result.sealed, ", "))
	}
	return result.objects()
}

func (program *program) renderCommand() *cobra.Command {
	withSecrets := false
	command := &cobra.Command{
		Use:   "render FILE|FOLDER...",
		Short: "Print the Kubernetes objects of manifests",
		Long: `Print the Kubernetes objects of manifests, as YAML or with -o json as a List.

Secrets are omitted unless --with-secrets is set, because many people can read the output of a CI job.`,
		Args: atLeastOne,
		RunE: func(_ *cobra.Command, paths []string) error {
			objects, err := program.rendered(paths)
			if err != nil {
				return err
			}
			if !withSecrets {
				objects = program.withoutSecrets(objects)
			}
			return program.printObjects(objects)
		},
	}
	command.Flags().BoolVar(&withSecrets, "with-secrets", false, "print Secrets as well")
	return command
}

func (program *program) withoutSecrets(objects []runtime.Object) []runtime.Object {
	var kept []runtime.Object
	for _, object := range objects {
		if secret, isSecret := object.(*corev1.Secret); isSecret {
			program.note("omitted: Secret %s/%s; --with-secrets prints it", secret.Namespace, secret.Name)
			continue
		}
		kept = append(kept, object)
	}
	return kept
}

func (program *program) printObjects(objects []runtime.Object) error {
	if !program.isJSON() {
		text, err := render.YAML(objects)
		if err != nil {
			return err
		}
		_, err = program.Out.Write(text)
		return err
	}
	var items []any
	for _, object := range objects {
		item, err := render.Manifest(object)
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	return program.printJSON(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

func (program *program) diffCommand() *cobra.Command {
	against := ""
	command := &cobra.Command{
		Use:   "diff --against FILE|FOLDER FILE|FOLDER...",
		Short: "Compare the objects of manifests with rendered files",
		Long: `Render manifests, and compare the objects with files that were rendered before, field by field.

Values of Secrets are not shown. Exit code 1 means that there are differences.`,
		Args: atLeastOne,
		RunE: func(_ *cobra.Command, paths []string) error {
			if against == "" {
				return usageError{errors.New("--against is missing; name files that `roost render --with-secrets` has written")}
			}
			objects, err := program.rendered(paths)
			if err != nil {
				return err
			}
			before, err := readObjects(against)
			if err != nil {
				return err
			}
			after, err := objectsByName(objects)
			if err != nil {
				return err
			}
			return program.printDifferences(differences(before, after))
		},
	}
	command.Flags().StringVar(&against, "against", "", "file or folder with rendered objects")
	return command
}
