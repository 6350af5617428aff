package command

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

// release is a spec with its files, as it is sent to the API server.
type release struct {
	kind, namespace, name string
	labels, annotations   map[string]string
	spec                  any
	files                 *corev1.ConfigMap
}

func (release *release) String() string {
	return fmt.Sprintf("%s %s/%s", release.kind, release.namespace, release.name)
}

// releaseOf reads the files of a manifest unchanged. The operator decrypts them.
func releaseOf(manifest manifest) (*release, error) {
	made := &release{}
	made.kind, made.namespace, made.name = manifest.kindAndName()
	if app := manifest.app; app != nil {
		made.labels, made.annotations, made.spec = app.Labels, app.Annotations, app.Spec
	} else {
		dunlin := manifest.dunlin
		made.labels, made.annotations, made.spec = dunlin.Labels, dunlin.Annotations, dunlin.Spec
	}
	if made.namespace == "" {
		made.namespace = "default"
	}
	files := map[string]string{}
	for _, name := range filesOf(manifest) {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(manifest.file), name))
		if err != nil {
			return nil, err
		}
		files[name] = string(content)
	}
	return made, made.take(files)
}

// filesOf returns the names of the .env files and of the mounted files, relative to the manifest.
func filesOf(manifest manifest) []string {
	var names []string
	if manifest.app != nil {
		for _, name := range manifest.app.Spec.EnvFiles {
			names = append(names, string(name))
		}
		names = append(names, manifest.app.Spec.MountedNames()...)
	} else if file := manifest.dunlin.Spec.Keys.File; file != "" {
		names = append(names, string(file))
	}
	if backup := manifest.backup(); backup != nil && backup.Repository != nil {
		names = append(names, string(backup.Repository.File))
	}
	return names
}

func (release *release) take(files map[string]string) error {
	if len(files) == 0 {
		return nil
	}
	var err error
	release.files, err = render.Files(release.namespace, release.name, files)
	return err
}

func (release *release) filesName() string {
	if release.files == nil {
		return ""
	}
	return release.files.Name
}

// write applies the files first, and then the object that refers to them, so that the operator sees both at once.
func (cluster *cluster) write(ctx context.Context, release *release, options ...client.PatchOption) (client.Object, error) {
	if release.files != nil {
		if err := cluster.apply(ctx, release.files.DeepCopy(), release.files, options...); err != nil {
			return nil, err
		}
	}
	annotations := maps.Clone(release.annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, render.AnnotationFiles)
	if release.files != nil {
		annotations[render.AnnotationFiles] = release.files.Name
	}
	written := newSubject(release.kind, release.namespace, release.name)
	body := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": release.kind, "spec": release.spec,
		"metadata": map[string]any{
			"name": release.name, "namespace": release.namespace, "labels": release.labels, "annotations": annotations,
		},
	}
	return written, cluster.apply(ctx, written, body, options...)
}

func (cluster *cluster) apply(ctx context.Context, written client.Object, body any, options ...client.PatchOption) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	options = append(options, client.FieldOwner(fieldManager), client.ForceOwnership)
	return cluster.explained(cluster.Patch(ctx, written, client.RawPatch(types.ApplyPatchType, text), options...))
}

// keepFiles makes the subject the owner of its files, so that they are deleted with it, and deletes the files of earlier releases. The revisions
// contain copies.
func (cluster *cluster) keepFiles(ctx context.Context, release *release, subject client.Object) error {
	if release.files != nil {
		owned := release.files.DeepCopy()
		owned.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: release.kind, Name: release.name, UID: subject.GetUID(),
		}}
		if err := cluster.apply(ctx, release.files.DeepCopy(), owned); err != nil {
			return err
		}
	}
	var all corev1.ConfigMapList
	selector := client.MatchingLabels{render.LabelFilesOf: release.name, render.LabelManagedBy: render.ManagedBy}
	if err := cluster.List(ctx, &all, client.InNamespace(release.namespace), selector); err != nil {
		return cluster.explained(err)
	}
	for index := range all.Items {
		other := &all.Items[index]
		isEarlier := other.Name != release.filesName() && slices.ContainsFunc(other.OwnerReferences, func(owner metav1.OwnerReference) bool {
			return owner.UID == subject.GetUID()
		})
		if !isEarlier {
			continue
		}
		if err := client.IgnoreNotFound(cluster.Delete(ctx, other, client.Preconditions{UID: &other.UID})); err != nil {
			return cluster.explained(err)
		}
	}
	return nil
}

// rollout is the outcome of a release.
type rollout struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Revision  string `json:"revision,omitempty"`
	Serves    bool   `json:"serves"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

const (
	pollPause = 250 * time.Millisecond
	// pollPausePerRelease keeps the calls of a deploy of many manifests below 20 a second.
	pollPausePerRelease = 50 * time.Millisecond
	reasonNotSeen       = "NotSeen"
)

// waitForAll returns when the operator has rolled out all releases, or reports that it cannot, or when the context ends. It prints each change
// of their state.
func (program *program) waitForAll(ctx context.Context, cluster *cluster, releases []*release, generations map[*release]int64) ([]rollout, error) {
	states, hasEnded := make([]rollout, len(releases)), make([]bool, len(releases))
	pause := time.NewTicker(max(pollPause, time.Duration(len(releases))*pollPausePerRelease))
	defer pause.Stop()
	for {
		pending := 0
		for index, release := range releases {
			if hasEnded[index] {
				continue
			}
			before := states[index]
			var err error
			if states[index], hasEnded[index], err = cluster.look(ctx, release, generations[release]); err != nil {
				return nil, fmt.Errorf("%s: %w", release, err)
			}
			if now := states[index]; !hasEnded[index] && now != before && now.Reason != reasonNotSeen {
				program.note("%s: %s: %s", release, now.Reason, now.Message)
			}
			if !hasEnded[index] {
				pending++
			}
		}
		if pending == 0 {
			return states, nil
		}
		select {
		case <-ctx.Done():
			return states, nil
		case <-pause.C:
		}
	}
}

// look reads the state of a release, and reports whether its rollout has ended.
func (cluster *cluster) look(ctx context.Context, release *release, generation int64) (rollout, bool, error) {
	state := rollout{Kind: release.kind, Namespace: release.namespace, Name: release.name}
	subject := newSubject(release.kind, release.namespace, release.name)
	// Each request has its own time limit.
	err := cluster.Get(context.WithoutCancel(ctx), client.ObjectKeyFromObject(subject), subject)
	status := statusOf(subject)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		return state, false, cluster.explained(err)
	case err != nil:
		state.Reason, state.Message = "ServerDoesNotAnswer", cluster.explained(err).Error()
	case status.ObservedGeneration < generation || status.Files != release.filesName():
		state.Reason, state.Message = reasonNotSeen, "no operator has reconciled it yet; check that an operator runs and that its --namespaces contains the namespace"
	default:
		hasEnded := state.read(status)
		return state, hasEnded, nil
	}
	return state, false, nil
}

// read copies the state from the status, and reports whether the rollout has ended.
func (rollout *rollout) read(status v1alpha1.Status) bool {
	progressing := meta.FindStatusCondition(status.Conditions, reconcile.ConditionProgressing)
	degraded := meta.FindStatusCondition(status.Conditions, reconcile.ConditionDegraded)
	ready := meta.FindStatusCondition(status.Conditions, reconcile.ConditionReady)
	switch {
	case progressing == nil || degraded == nil || ready == nil:
		return false
	case degraded.Status == metav1.ConditionTrue:
		rollout.Reason, rollout.Message = degraded.Reason, degraded.Message
		return !slices.Contains(reconcile.Passing, degraded.Reason)
	case progressing.Status == metav1.ConditionTrue:
		rollout.Reason, rollout.Message = progressing.Reason, progressing.Message
		return false
	}
	rollout.Revision, rollout.Serves = status.Revision, true
	rollout.Reason, rollout.Message = ready.Reason, ready.Message
	return true
}
