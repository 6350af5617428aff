package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dunlin-project/dunlin/platform/podlog"
)

const (
	operatorNamespace = "roost-system"
	operatorName      = "roost-operator"
	availablePause    = 200 * time.Millisecond
)

// yamlFiles returns the named files, and the files in folders whose names end with .yaml, sorted by name.
func yamlFiles(paths []string) ([]string, error) {
	return namedFiles(paths, func(folder string) ([]string, error) {
		inside, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil || len(inside) == 0 {
			return nil, fmt.Errorf("%s contains no .yaml file; name another folder", folder)
		}
		return inside, nil
	})
}

// objectsOf returns the objects of manifests, in the order of the files.
func objectsOf(paths []string) ([]*unstructured.Unstructured, error) {
	files, err := yamlFiles(paths)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(document, &object.Object); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

func titleOf(object client.Object) string {
	name := object.GetObjectKind().GroupVersionKind().Kind + " " + object.GetName()
	if object.GetNamespace() != "" {
		name += " in " + object.GetNamespace()
	}
	return name
}

// isAsFile makes the API server apply an object as a dry run, and compares the result with the live object.
func (run *bootstrap) isAsFile(ctx context.Context, object *unstructured.Unstructured) (bool, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(object.GroupVersionKind())
	err := run.cluster.Get(ctx, client.ObjectKeyFromObject(object), live)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, run.cluster.explained(err)
	}
	applied := object.DeepCopy()
	if err := run.cluster.apply(ctx, applied, object.Object, client.DryRunAll); isWebhookSilent(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("%s: %w", titleOf(object), err)
	}
	for _, one := range []*unstructured.Unstructured{live, applied} {
		one.SetManagedFields(nil)
		one.SetResourceVersion("")
		one.SetGeneration(0)
	}
	return equality.Semantic.DeepEqual(live.Object, applied.Object), nil
}

// missingObjects returns the names of the objects that differ from their files.
func (run *bootstrap) missingObjects(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
	var missing []string
	for _, object := range objects {
		isSame, err := run.isAsFile(ctx, object)
		if err != nil {
			return nil, err
		}
		if !isSame {
			missing = append(missing, titleOf(object))
		}
	}
	return missing, nil
}

// applyObjects applies the objects in their order. It retries while a new kind is not served yet, and while a webhook that was applied before, such as that
// of cert-manager, does not answer yet.
func (run *bootstrap) applyObjects(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		refusal := ""
		err := run.until(ctx, "the API server to serve its kind, or for a webhook to answer", func() (bool, error) {
			err := run.cluster.apply(ctx, object.DeepCopy(), object.Object)
			var missing *noDefinitionsError
			if meta.IsNoMatchError(errors.Unwrap(err)) || errors.As(err, &missing) || isWebhookSilent(err) {
				refusal = err.Error()
				return false, nil
			}
			return err == nil, err
		}, func() string { return refusal })
		if err != nil {
			return fmt.Errorf("%s: %w", titleOf(object), err)
		}
	}
	return nil
}

// isWebhookSilent reports whether the API server has refused an object because a webhook did not answer.
func isWebhookSilent(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// until polls until a condition holds, for at most the duration of --wait. After a timeout, cause says why it does not hold, or is empty.
func (run *bootstrap) until(ctx context.Context, what string, holds func() (bool, error), cause func() string) error {
	ctx, cancel := context.WithTimeout(ctx, run.wait)
	defer cancel()
	pause := time.NewTicker(availablePause)
	defer pause.Stop()
	for {
		isHeld, err := holds()
		if isHeld || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			if found := cause(); found != "" {
				return fmt.Errorf("timed out after %s waiting for %s: %s; fix the cause, or set a longer --wait", run.wait, what, found)
			}
			return fmt.Errorf("timed out after %s waiting for %s; set a longer --wait", run.wait, what)
		case <-pause.C:
		}
	}
}

func (run *bootstrap) missingOperator(ctx context.Context) (string, error) {
	if run.cluster == nil {
		return "", errNoCluster
	}
	objects, err := objectsOf(run.paths(run.config.Operator))
	if err != nil {
		return "", err
	}
	keys, err := run.missingKeys(ctx, objects)
	if err != nil {
		return "", err
	}
	missing, err := run.missingObjects(ctx, objects)
	if err != nil {
		return "", err
	}
	for _, name := range keys {
		missing = append(missing, fmt.Sprintf("%s in Secret %s in %s", name, identitySecret, operatorNamespace))
	}
	isAvailable, err := run.isOperatorAvailable(ctx)
	if err == nil && !isAvailable && len(missing) == 0 {
		return "wait until it is available", nil
	}
	if err != nil || len(missing) == 0 {
		return "", err
	}
	return listed("apply", missing), nil
}

// listed returns a short list if there are many names.
func listed(verb string, names []string) string {
	const shown = 4
	if len(names) > shown {
		return fmt.Sprintf("%s %s and %d others", verb, strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return verb + " " + strings.Join(names, ", ")
}

func (run *bootstrap) isOperatorAvailable(ctx context.Context) (bool, error) {
	var deployment appsv1.Deployment
	err := run.cluster.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: operatorName}, &deployment)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, run.cluster.explained(err)
	}
	status, wanted := deployment.Status, *deployment.Spec.Replicas
	return status.ObservedGeneration == deployment.Generation && status.UpdatedReplicas == wanted && status.AvailableReplicas == wanted, nil
}

// makeOperator applies the manifests of the operator. Its Secret with the age identities has them before the Deployment is applied: an operator that
// has a new namespace, or none before, would find no identity until the kubelet updates its files.
func (run *bootstrap) makeOperator(ctx context.Context) error {
	objects, err := objectsOf(run.paths(run.config.Operator))
	if err != nil {
		return err
	}
	names, err := run.missingKeys(ctx, objects)
	if err != nil {
		return err
	}
	keys, err := run.readKeys(names)
	if err != nil {
		return err
	}
	first := slices.IndexFunc(objects, isOperator)
	if first < 0 {
		first = len(objects)
	}
	if err := run.applyObjects(ctx, objects[:first]); err != nil {
		return err
	}
	if err := run.addKeys(ctx, keys); err != nil {
		return err
	}
	if err := run.applyObjects(ctx, objects[first:]); err != nil {
		return err
	}
	isAvailable := func() (bool, error) { return run.isOperatorAvailable(ctx) }
	return run.until(ctx, "the operator to become available", isAvailable, func() string { return run.waitingOperator(ctx) })
}

// waitingOperator returns why one of the operator's pods does not run, such as an image that cannot be pulled.
func (run *bootstrap) waitingOperator(ctx context.Context) string {
	var pods corev1.PodList
	named := client.MatchingLabels{"app.kubernetes.io/name": operatorName}
	if err := run.cluster.List(ctx, &pods, client.InNamespace(operatorNamespace), named); err != nil {
		return run.cluster.explained(err).Error()
	}
	for index := range pods.Items {
		if waiting := podlog.Waiting(&pods.Items[index]); waiting != "" {
			return pods.Items[index].Name + ": " + waiting
		}
	}
	return ""
}

func (run *bootstrap) missingIdentities(ctx context.Context) (string, error) {
	if run.cluster == nil {
		return "", errNoCluster
	}
	var missing []string
	for _, wanted := range run.config.Identities {
		found, err := run.cluster.identities(ctx, wanted.Namespace)
		if err != nil {
			return "", err
		}
		isThere := false
		for _, one := range found {
			if one.Name == wanted.Name && one.Role != wanted.Role {
				return "", fmt.Errorf("access identity %s in %s has the role %s, not %s; `roost identity revoke` deletes it", one.Name, one.Namespace, one.Role, wanted.Role)
			}
			isThere = isThere || one.Name == wanted.Name
		}
		if !isThere {
			missing = append(missing, fmt.Sprintf("%s (%s in %s)", wanted.Name, wanted.Role, wanted.Namespace))
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	return listed("create", missing), nil
}

func (run *bootstrap) makeIdentities(ctx context.Context) error {
	for _, wanted := range run.config.Identities {
		identity := clusterIdentity{Name: wanted.Name, Namespace: wanted.Namespace, Role: wanted.Role}
		if _, err := run.cluster.ensureIdentity(ctx, identity); err != nil {
			return err
		}
	}
	return nil
}

func (run *bootstrap) missingArgoCD(ctx context.Context) (string, error) {
	if run.cluster == nil {
		return "", errNoCluster
	}
	objects, err := objectsOf(run.paths(run.config.ArgoCD))
	if err != nil {
		return "", err
	}
	missing, err := run.missingObjects(ctx, objects)
	if err != nil || len(missing) == 0 {
		return "", err
	}
	return listed("apply", missing), nil
}

func (run *bootstrap) makeArgoCD(ctx context.Context) error {
	objects, err := objectsOf(run.paths(run.config.ArgoCD))
	if err != nil {
		return err
	}
	return run.applyObjects(ctx, objects)
}

// missingApps compares specs and encrypted files with those in the cluster, and checks whether all apps serve.
func (run *bootstrap) missingApps(ctx context.Context) (string, error) {
	if run.cluster == nil {
		return "", errNoCluster
	}
	releases, err := run.releases(run.paths(run.config.Apps), nil, nil)
	if err != nil {
		return "", err
	}
	var missing []string
	for _, release := range releases {
		live := newSubject(release.kind, release.namespace, release.name)
		err := run.cluster.Get(ctx, client.ObjectKeyFromObject(live), live)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			missing = append(missing, release.String())
			continue
		}
		if err != nil {
			return "", run.cluster.explained(err)
		}
		applied, err := run.cluster.write(ctx, release, client.DryRunAll)
		if err != nil {
			return "", fmt.Errorf("%s: %w", release, err)
		}
		isServing := meta.IsStatusConditionTrue(statusOf(live).Conditions, "Ready")
		if applied.GetGeneration() != live.GetGeneration() || !equality.Semantic.DeepEqual(applied.GetAnnotations(), live.GetAnnotations()) || !isServing {
			missing = append(missing, release.String())
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	return listed("deploy", missing), nil
}

func (run *bootstrap) makeApps(ctx context.Context) error {
	releases, err := run.releases(run.paths(run.config.Apps), nil, nil)
	if err != nil {
		return err
	}
	return run.roll(run.cluster, releases, run.wait)
}
