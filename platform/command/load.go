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
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
	"github.com/dunlin-project/dunlin/platform/validate"
)

// finding is a problem with its file.
type finding struct {
	File string `json:"file"`
	validate.Problem
}

// manifest is one valid document with its settings.
type manifest struct {
	file     string
	app      *v1alpha1.App
	dunlin   *v1alpha1.Dunlin
	settings settings.Settings
}

// loaded is the content of the named files.
type loaded struct {
	manifests []manifest
	findings  []finding
	// sealed are encrypted files that were not decrypted, because there is no age identity.
	sealed     []string
	repository *repository
}

// load reads manifests and their .env files. It fails only if a file cannot be read.
func (program *program) load(paths []string) (*loaded, error) { return program.loadAs(paths, nil) }

// loadAs loads the manifests of previews, or the manifests as they are without a preview.
func (program *program) loadAs(paths []string, preview *preview) (*loaded, error) {
	files, err := manifestFiles(paths)
	if err != nil {
		return nil, err
	}
	result := &loaded{}
	if result.repository, err = repositoryOf(paths[0]); err != nil {
		return nil, err
	}
	identities, err := program.identities()
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, document := range validate.File(text) {
			for _, problem := range document.Problems {
				result.findings = append(result.findings, finding{file, problem})
			}
			if len(document.Problems) > 0 {
				continue
			}
			made := manifest{file: file, app: document.App, dunlin: document.Dunlin}
			var problems []validate.Problem
			if preview != nil {
				problems = preview.change(result.repository, &made)
			}
			for _, problem := range problems {
				result.findings = append(result.findings, finding{file, problem})
			}
			if len(problems) == 0 {
				result.add(made, identities)
			}
		}
	}
	result.compare()
	return result, nil
}

// loadValid loads manifests, and returns an error if any has a problem. The consequence ends the summary of the problems.
func (program *program) loadValid(paths []string, consequence string) (*loaded, error) {
	return program.loadValidAs(paths, nil, consequence)
}

func (program *program) loadValidAs(paths []string, preview *preview, consequence string) (*loaded, error) {
	result, err := program.loadAs(paths, preview)
	if err != nil {
		return nil, err
	}
	if len(result.findings) == 0 {
		return result, nil
	}
	for _, finding := range result.findings {
		program.note("%s: %s", finding.File, finding.Problem)
	}
	return nil, &foundError{plural(len(result.findings), "problem", "problems") + consequence}
}

// namedFiles returns the named files, and the files that a function finds in folders.
func namedFiles(paths []string, find func(folder string) ([]string, error)) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		inside, err := find(path)
		if err != nil {
			return nil, err
		}
		files = append(files, inside...)
	}
	return files, nil
}

// manifestFiles returns the named files, and the files in folders that contain Roost's API group.
func manifestFiles(paths []string) ([]string, error) {
	return namedFiles(paths, func(folder string) ([]string, error) {
		var files []string
		err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
			extension := filepath.Ext(file)
			if err != nil || entry.IsDir() || extension != ".yaml" && extension != ".yml" {
				return err
			}
			if entry.Name() == kustomizationFile {
				// Patches in this file look like manifests.
				return nil
			}
			text, err := os.ReadFile(file)
			if strings.Contains(string(text), "apiVersion: "+v1alpha1.Group+"/") {
				files = append(files, file)
			}
			return err
		})
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("%s has no manifest of %s; name another folder, or run `roost init`", folder, v1alpha1.GroupVersion)
		}
		return files, err
	})
}

// add decrypts the settings of a manifest.
func (result *loaded) add(manifest manifest, identities []age.Identity) {
	env := map[string]string{}
	path, names := "spec.envFiles", v1alpha1.EnvFiles(nil)
	if manifest.app != nil {
		names = manifest.app.Spec.EnvFiles
		for key, value := range manifest.app.Spec.Env {
			env[key] = string(value)
		}
	} else if file := manifest.dunlin.Spec.Keys.File; file != "" {
		path, names = "spec.keys.file", v1alpha1.EnvFiles{file}
	}
	files, isWhole := result.read(manifest.file, path, names, identities)
	merged, err := settings.Merge(files, env)
	if err != nil {
		result.find(manifest.file, path, err.Error())
	}
	if isWhole && path == "spec.keys.file" {
		for _, key := range render.MissingKeys(manifest.dunlin, merged) {
			result.find(manifest.file, path, fmt.Sprintf("%q has no encrypted %s; add it with `roost secrets edit`", names[0], key))
		}
	}
	if manifest.dunlin != nil {
		if problem := render.UnusableKey(manifest.dunlin, merged); problem != "" {
			result.find(manifest.file, path, fmt.Sprintf("%q: %s with `roost secrets edit`", names[0], problem))
		}
	}
	if isWhole && err == nil {
		merged = result.withRepository(manifest, merged, identities)
	}
	if contents := result.contents(manifest, identities); len(contents) > 0 {
		merged = merged.WithContents(contents)
	}
	if manifest.app != nil && len(manifest.app.Spec.Files) > 0 {
		path = "spec.files"
	}
	result.checkTransport(manifest, path)
	manifest.settings = merged
	result.manifests = append(result.manifests, manifest)
}

// checkTransport finds files that a ConfigMap cannot contain. It ignores files that cannot be read, because another check reports them.
func (result *loaded) checkTransport(manifest manifest, path string) {
	files := map[string]string{}
	for _, name := range filesOf(manifest) {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(manifest.file), name))
		if err == nil {
			files[name] = string(content)
		}
	}
	if _, err := render.Files("", "", files); err != nil {
		result.find(manifest.file, path, err.Error())
	}
}

func (manifest *manifest) backup() *v1alpha1.Backup {
	if manifest.app != nil {
		return manifest.app.Spec.Backup
	}
	return manifest.dunlin.Spec.Backup
}

// withRepository adds the keys of the repository of backups.
func (result *loaded) withRepository(manifest manifest, merged settings.Settings, identities []age.Identity) settings.Settings {
	const path = "spec.backup.repository.file"
	backup := manifest.backup()
	if backup == nil || backup.Repository == nil {
		return merged
	}
	files, isWhole := result.read(manifest.file, path, v1alpha1.EnvFiles{backup.Repository.File}, identities)
	if !isWhole {
		return merged
	}
	complete, err := merged.WithRepository(files[0])
	if err != nil {
		result.find(manifest.file, path, err.Error())
		return merged
	}
	return complete
}

// read reads .env files, and reports whether it has decrypted all of them.
func (result *loaded) read(manifest, path string, names v1alpha1.EnvFiles, identities []age.Identity) (files []settings.File, isWhole bool) {
	for index, name := range names {
		full := filepath.Join(filepath.Dir(manifest), string(name))
		file, isSealed, err := readSettings(full, string(name), identities)
		switch {
		case err != nil && path == "spec.envFiles":
			result.find(manifest, fmt.Sprintf("%s[%d]", path, index), err.Error())
		case err != nil:
			result.find(manifest, path, err.Error())
		case isSealed:
			result.sealed = append(result.sealed, full)
		default:
			files = append(files, file)
		}
	}
	return files, len(files) == len(names)
}

// contents reads the files that pods mount.
func (result *loaded) contents(manifest manifest, identities []age.Identity) []settings.Content {
	if manifest.app == nil {
		return nil
	}
	var contents []settings.Content
	for index, file := range manifest.app.Spec.Files {
		// A file can be mounted at two paths.
		if slices.ContainsFunc(manifest.app.Spec.Files[:index], func(other v1alpha1.MountedFile) bool { return other.File == file.File }) {
			continue
		}
		full := filepath.Join(filepath.Dir(manifest.file), file.File)
		content, isSealed, err := readContent(full, file.File, identities)
		switch {
		case err != nil:
			result.find(manifest.file, fmt.Sprintf("spec.files[%d].file", index), err.Error())
		case isSealed:
			result.sealed = append(result.sealed, full)
		default:
			contents = append(contents, content)
		}
	}
	return contents
}

// readContent reads a file that pods mount. Without an age identity, an encrypted file stays sealed.
func readContent(path, name string, identities []age.Identity) (settings.Content, bool, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return settings.Content{}, false, fmt.Errorf("%q does not exist; create it beside the manifest", name)
	}
	if err != nil {
		return settings.Content{}, false, err
	}
	if !settings.IsEncryptedContent(content) {
		plain, err := settings.PlainContent(name, content)
		return plain, false, err
	}
	if len(identities) == 0 {
		_, err := settings.RecipientsOf(content)
		return settings.Content{}, true, err
	}
	text, err := settings.DecryptContent(content, identities)
	if err != nil {
		return settings.Content{}, false, fmt.Errorf("%s: %w", name, err)
	}
	return settings.Content{Name: name, Text: string(text), IsSecret: true}, false, nil
}

func (result *loaded) find(file, path, message string) {
	result.findings = append(result.findings, finding{file, validate.Problem{Path: path, Message: message}})
}

// readSettings reads one .env file. Without an age identity, an encrypted file stays sealed.
func readSettings(path, name string, identities []age.Identity) (settings.File, bool, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return settings.File{}, false, fmt.Errorf("%q does not exist; create it beside the manifest", name)
	}
	if err != nil {
		return settings.File{}, false, err
	}
	if !settings.IsEncrypted(content) {
		file, err := settings.PlainFile(name, content)
		return file, false, err
	}
	if len(identities) == 0 {
		_, err := settings.RecipientsOf(content)
		return settings.File{}, true, err
	}
	decrypted, err := settings.Decrypt(content, identities)
	if err != nil {
		return settings.File{}, false, fmt.Errorf("%s: %w", name, err)
	}
	return settings.File{Name: name, Decrypted: *decrypted}, false, nil
}

func (manifest *manifest) kindAndName() (kind, namespace, name string) {
	if manifest.app != nil {
		return "App", manifest.app.Namespace, manifest.app.Name
	}
	return "Dunlin", manifest.dunlin.Namespace, manifest.dunlin.Name
}

// compare finds conflicting claims of several manifests: the name of an object, or a host with its path.
func (result *loaded) compare() {
	claims := map[string]string{}
	claim := func(manifest manifest, thing, path, message string) {
		kind, namespace, name := manifest.kindAndName()
		owner := fmt.Sprintf("%s %s/%s in %s", kind, namespace, name, manifest.file)
		if before, isThere := claims[thing]; isThere {
			result.find(manifest.file, path, fmt.Sprintf(message, before))
			return
		}
		claims[thing] = owner
	}
	for _, manifest := range result.manifests {
		_, namespace, name := manifest.kindAndName()
		claim(manifest, "name "+namespace+"/"+name, "metadata.name", "%s has the same name; rename one of them")
		var hosts []string
		var path string
		if manifest.app != nil {
			hosts, path = manifest.app.Spec.AllHosts(), manifest.app.Spec.Path
		} else {
			hosts, path = manifest.dunlin.Spec.AllHosts(), manifest.dunlin.Spec.Path
			if manifest.dunlin.Spec.NATS != nil && manifest.dunlin.Spec.NATS.Servers != nil {
				claim(manifest, "name "+namespace+"/"+name+"-nats", "metadata.name", "its NATS servers have the same name as %s; rename one of them")
			}
		}
		for index, host := range hosts {
			field := "spec.host"
			if index > 0 {
				field = fmt.Sprintf("spec.hosts[%d]", index-1)
			}
			claim(manifest, "host "+host+"/"+strings.Trim(path, "/"), field, "%s has the same host and path; change one of them")
		}
	}
}

// objects renders all manifests.
func (result *loaded) objects() ([]runtime.Object, error) {
	var objects []runtime.Object
	for _, manifest := range result.manifests {
		var rendered []runtime.Object
		var err error
		if manifest.app != nil {
			rendered, err = render.App(manifest.app, manifest.settings, result.repository.cluster())
		} else {
			rendered, err = render.Dunlin(manifest.dunlin, manifest.settings, result.repository.cluster())
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", manifest.file, err)
		}
		objects = append(objects, rendered...)
	}
	return objects, nil
}

// report prints the findings, and returns an error if there are any.
func (program *program) report(result *loaded) error {
	if program.isJSON() {
		findings := result.findings
		if findings == nil {
			findings = []finding{}
		}
		if err := program.printJSON(map[string]any{"manifests": len(result.manifests), "problems": findings, "notDecrypted": result.sealed}); err != nil {
			return err
		}
	} else {
		for _, finding := range result.findings {
			program.print("%s: %s", finding.File, finding.Problem)
		}
	}
	if len(result.findings) > 0 {
		return &foundError{plural(len(result.findings), "problem", "problems")}
	}
	return nil
}
