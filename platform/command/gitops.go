package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	kustomizationFile = "kustomization.yaml"
	// kustomizeNamesFile is the usual name of kustomize's configuration of name references.
	kustomizeNamesFile = "kustomizeconfig.yaml"
	gitopsHeader       = "# Written by `roost gitops`. Do not edit it; change the manifests, and run the command again.\n"
)

// kustomizeNames makes kustomize write the name of a ConfigMap, with the hash of its content, into the annotation.
const kustomizeNames = gitopsHeader + `nameReference:
- kind: ConfigMap
  version: v1
  fieldSpecs:
  - { group: ` + v1alpha1.Group + `, kind: App, path: 'metadata/annotations/` + v1alpha1.Group + `\/files' }
  - { group: ` + v1alpha1.Group + `, kind: Dunlin, path: 'metadata/annotations/` + v1alpha1.Group + `\/files' }
`

// kustomization is the part of kustomize's format that `roost gitops` writes.
type kustomization struct {
	APIVersion         string           `json:"apiVersion"`
	Kind               string           `json:"kind"`
	Resources          []string         `json:"resources"`
	ConfigMapGenerator []filesGenerator `json:"configMapGenerator,omitempty"`
	Patches            []kustomizePart  `json:"patches,omitempty"`
	Configurations     []string         `json:"configurations,omitempty"`
}

// filesGenerator is the generator of a ConfigMap with the encrypted files of a manifest. The ConfigMap is like that of render.Files.
type filesGenerator struct {
	Name      string       `json:"name"`
	Namespace string       `json:"namespace"`
	Files     []string     `json:"files"`
	Options   filesOptions `json:"options"`
}

type filesOptions struct {
	Labels    map[string]string `json:"labels"`
	Immutable bool              `json:"immutable"`
}

type kustomizePart struct {
	Patch string `json:"patch"`
}

func (program *program) gitopsCommand() *cobra.Command {
	isCheck := false
	command := &cobra.Command{
		Use:   "gitops FOLDER",
		Short: "Write the kustomization with which Argo CD applies a folder of manifests and their files",
		Long: `Write kustomization.yaml and kustomizeconfig.yaml into a folder of manifests. With them, Argo CD, or ` + "`kubectl apply -k FOLDER`" + `,
applies the manifests, their encrypted .env files and the files of spec.files to the cluster: each app's files become a ConfigMap, whose name
contains the hash of their content, and the annotation ` + render.AnnotationFiles + ` names the ConfigMap. The files stay encrypted; the operator decrypts them.

Commit both files. Run the command again after you add a file to a manifest or remove one; a change inside a file needs no new run.
--check writes nothing, and exits with 1 if the files are out of date: run it in CI.`,
		Args: exactlyOne,
		RunE: func(_ *cobra.Command, folders []string) error {
			written, err := program.gitopsFiles(folders[0])
			if err != nil {
				return err
			}
			if isCheck {
				return program.checkGitops(folders[0], written)
			}
			return program.writeGitops(folders[0], written)
		},
	}
	command.Flags().BoolVar(&isCheck, "check", false, "write nothing; exit code 1 means that the files are out of date")
	return command
}

// gitopsFiles returns the contents of both files by their names.
func (program *program) gitopsFiles(folder string) (map[string][]byte, error) {
	info, err := os.Stat(folder)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, usageError{fmt.Errorf("%s is not a folder; name the folder of the manifests", folder)}
	}
	loaded, err := program.loadValid([]string{folder}, ". Nothing is written")
	if err != nil {
		return nil, err
	}
	made := kustomization{APIVersion: "kustomize.config.k8s.io/v1beta1", Kind: "Kustomization"}
	for _, manifest := range loaded.manifests {
		if err := made.add(folder, manifest); err != nil {
			return nil, fmt.Errorf("%s: %w", manifest.file, err)
		}
	}
	slices.Sort(made.Resources)
	made.Resources = slices.Compact(made.Resources)
	files := map[string][]byte{}
	if len(made.ConfigMapGenerator) > 0 {
		made.Configurations = []string{kustomizeNamesFile}
		files[kustomizeNamesFile] = []byte(kustomizeNames)
	}
	text, err := yaml.Marshal(made)
	files[kustomizationFile] = append([]byte(gitopsHeader), text...)
	return files, err
}

func (made *kustomization) add(folder string, manifest manifest) error {
	if _, namespace, _ := manifest.kindAndName(); namespace == "" {
		return errors.New("metadata.namespace is missing; set it, so that the manifest and its files go to the same namespace")
	}
	release, err := releaseOf(manifest)
	if err != nil {
		return err
	}
	resource, err := filepath.Rel(folder, manifest.file)
	if err != nil {
		return err
	}
	made.Resources = append(made.Resources, filepath.ToSlash(resource))
	if release.files == nil {
		return nil
	}
	if release.annotations[render.AnnotationFiles] != "" {
		return fmt.Errorf("the manifest has the annotation %s; remove it: `roost gitops` sets it", render.AnnotationFiles)
	}
	generator := filesGenerator{
		Name: render.FilesName(release.name), Namespace: release.namespace,
		Options: filesOptions{Labels: release.files.Labels, Immutable: true},
	}
	for _, name := range filesOf(manifest) {
		path := filepath.ToSlash(filepath.Join(filepath.Dir(resource), name))
		generator.Files = append(generator.Files, render.FilesKey(name)+"="+path)
	}
	made.ConfigMapGenerator = append(made.ConfigMapGenerator, generator)
	patch, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": release.kind,
		"metadata": map[string]any{
			"name": release.name, "namespace": release.namespace,
			"annotations": map[string]string{render.AnnotationFiles: generator.Name},
		},
	})
	made.Patches = append(made.Patches, kustomizePart{string(patch)})
	return err
}

func (program *program) checkGitops(folder string, wanted map[string][]byte) error {
	for _, name := range []string{kustomizationFile, kustomizeNamesFile} {
		path := filepath.Join(folder, name)
		content, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if text, isWanted := wanted[name]; isWanted && !bytes.Equal(content, text) {
			return &foundError{fmt.Sprintf("%s is out of date; run `roost gitops %s`, and commit the file", path, folder)}
		}
	}
	program.print("%s is up to date", filepath.Join(folder, kustomizationFile))
	return nil
}

func (program *program) writeGitops(folder string, wanted map[string][]byte) error {
	for name := range wanted {
		path := filepath.Join(folder, name)
		content, err := os.ReadFile(path)
		if err == nil && !strings.HasPrefix(string(content), gitopsHeader) {
			return fmt.Errorf("%s was not written by `roost gitops`; move it to another folder, and list this folder in its resources", path)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for _, name := range []string{kustomizationFile, kustomizeNamesFile} {
		text, isWanted := wanted[name]
		if !isWanted {
			continue
		}
		path := filepath.Join(folder, name)
		if err := replaceFile(path, text); err != nil {
			return err
		}
		program.print("wrote %s", path)
	}
	return nil
}
