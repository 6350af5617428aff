package operator

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
	"github.com/dunlin-project/dunlin/platform/validate"
)

// Kinds that an operator looks after.
const (
	KindApp    = "App"
	KindDunlin = "Dunlin"
)

// subject is an App or a Dunlin, with what differs between them.
type subject struct {
	kind   string
	object client.Object
	spec   any
	status *v1alpha1.Status
	// hosts are all public names.
	hosts    []string
	path     string
	envFiles []string
	// mounted are the files that pods mount.
	mounted []string
	// secret of somebody else that pods get to read.
	secret string
	// pullSecret has the credentials of the registry.
	pullSecret string
	env        map[string]string
	backup     *v1alpha1.Backup
	onNodeLoss string
	// preview is nil if the object is no preview.
	preview *v1alpha1.Preview
	// deletionPolicy is whether what is rendered outlives the object.
	deletionPolicy string
	// repositoryFile has the keys of the repository of backups.
	repositoryFile string
	problems       func() []validate.Problem
	// missing names keys that the settings lack.
	missing func(settings.Settings) []string
	// unusable is what is wrong with a key of the settings, or empty.
	unusable func(settings.Settings) string
	render   func(settings.Settings, render.Cluster) ([]runtime.Object, error)
}

func newObject(kind string) client.Object {
	if kind == KindApp {
		return &v1alpha1.App{}
	}
	return &v1alpha1.Dunlin{}
}

// read returns the App or the Dunlin with the status that was written last, even if the cache does not have it yet. A status that a pass has written
// does not cause another pass, so a pass that compares with an earlier status could leave a wrong one forever.
func (operator *Operator) read(ctx context.Context, kind string, name types.NamespacedName) (*subject, error) {
	object, key := newObject(kind), subjectName{kind, name}
	err := operator.Reader.Get(ctx, name, object)
	if err == nil && !operator.recent.readStatusAt(key, versionIn(object)) {
		object = newObject(kind)
		if err = operator.Live.Get(ctx, name, object); err == nil {
			operator.recent.addStatus(key, versionIn(object))
		}
	}
	if apierrors.IsNotFound(err) {
		operator.recent.forgetSubject(key)
	}
	if err != nil {
		return nil, err
	}
	return subjectOf(object), nil
}

func subjectOf(object client.Object) *subject {
	switch object := object.(type) {
	case *v1alpha1.App:
		return appSubject(object)
	case *v1alpha1.Dunlin:
		return dunlinSubject(object)
	}
	panic(fmt.Sprintf("%T is no kind of Roost", object))
}

func appSubject(app *v1alpha1.App) *subject {
	env := map[string]string{}
	for key, value := range app.Spec.Env {
		env[key] = string(value)
	}
	var files []string
	for _, name := range app.Spec.EnvFiles {
		files = append(files, string(name))
	}
	repositoryFile := ""
	if backup := app.Spec.Backup; backup != nil && backup.Repository != nil {
		repositoryFile = string(backup.Repository.File)
	}
	return &subject{
		kind: KindApp, object: app, spec: app.Spec, status: &app.Status, hosts: app.Spec.AllHosts(), path: app.Spec.Path,
		envFiles: files, mounted: app.Spec.MountedNames(), env: env, backup: app.Spec.Backup, onNodeLoss: app.Spec.OnNodeLoss,
		deletionPolicy: app.Spec.DeletionPolicy, pullSecret: app.Spec.PullSecret, repositoryFile: repositoryFile, preview: app.Spec.Preview,
		problems: func() []validate.Problem { return validate.App(app) },
		missing:  func(settings.Settings) []string { return nil },
		unusable: func(settings.Settings) string { return "" },
		render: func(values settings.Settings, cluster render.Cluster) ([]runtime.Object, error) {
			return render.App(app, values, cluster)
		},
	}
}

func dunlinSubject(dunlin *v1alpha1.Dunlin) *subject {
	var files []string
	if file := dunlin.Spec.Keys.File; file != "" {
		files = []string{string(file)}
	}
	repositoryFile := ""
	if backup := dunlin.Spec.Backup; backup != nil && backup.Repository != nil {
		repositoryFile = string(backup.Repository.File)
	}
	return &subject{
		backup: dunlin.Spec.Backup, onNodeLoss: dunlin.Spec.OnNodeLoss, repositoryFile: repositoryFile,
		kind: KindDunlin, object: dunlin, spec: dunlin.Spec, status: &dunlin.Status, hosts: dunlin.Spec.AllHosts(), path: dunlin.Spec.Path,
		envFiles: files, secret: dunlin.Spec.Keys.Secret, pullSecret: dunlin.Spec.PullSecret, deletionPolicy: dunlin.Spec.DeletionPolicy,
		problems: func() []validate.Problem { return validate.Dunlin(dunlin) },
		missing: func(values settings.Settings) []string {
			return render.MissingKeys(dunlin, values)
		},
		unusable: func(values settings.Settings) string { return render.UnusableKey(dunlin, values) },
		render: func(values settings.Settings, cluster render.Cluster) ([]runtime.Object, error) {
			return render.Dunlin(dunlin, values, cluster)
		},
	}
}

func (subject *subject) owner() reconcile.Owner {
	return reconcile.Owner{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: subject.kind, UID: string(subject.object.GetUID()),
		Namespace: subject.object.GetNamespace(), Name: subject.object.GetName(), Generation: subject.object.GetGeneration(),
		Orphans: subject.deletionPolicy == v1alpha1.DeletionPolicyOrphan,
	}
}

func (subject *subject) key() subjectName {
	return subjectName{subject.kind, client.ObjectKeyFromObject(subject.object)}
}

// scope keeps apart the hashes of apps with the same content.
func (subject *subject) scope() string {
	return subject.object.GetNamespace() + "/" + subject.object.GetName()
}

// desired has the revision first: it is kept before anything of it runs.
func (subject *subject) desired(values settings.Settings, files map[string]string, cluster render.Cluster) ([]reconcile.Manifest, string, error) {
	objects, err := subject.render(values, cluster)
	if err != nil {
		return nil, "", err
	}
	revision, err := render.Revision(subject.spec, values, subject.scope())
	if err != nil {
		return nil, "", err
	}
	history, err := render.History(subject.kind, subject.object.GetNamespace(), subject.object.GetName(), revision, subject.spec, files)
	if err != nil {
		return nil, "", err
	}
	var manifests []reconcile.Manifest
	for _, object := range append([]runtime.Object{history}, objects...) {
		manifest, err := render.Manifest(object)
		if err != nil {
			return nil, "", err
		}
		manifests = append(manifests, manifest)
	}
	return manifests, revision, nil
}

// whyTooLarge names the field that takes the most bytes in a revision.
func (subject *subject) whyTooLarge(large *render.RevisionTooLargeError) string {
	if large.LargestBytes < large.SpecBytes {
		return fmt.Sprintf("spec: %s; of them, the spec itself takes %d; shorten it, or move its content to a volume", large, large.SpecBytes)
	}
	return fmt.Sprintf("%s: %s; of them, %s takes %d: in its JSON, a line break takes 2 bytes, and <, >, & and most control characters take 6; "+
		"shorten the file, or mount its content as a volume", subject.fieldOf(large.Largest), large, large.Largest, large.LargestBytes)
}

// fieldOf returns the field of the spec that names a file.
func (subject *subject) fieldOf(file string) string {
	switch {
	case slices.Contains(subject.mounted, file):
		return "spec.files"
	case file == subject.repositoryFile:
		return "spec.backup.repository.file"
	case subject.kind == KindDunlin:
		return "spec.keys.file"
	}
	return "spec.envFiles"
}
