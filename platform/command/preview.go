package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/validate"
)

// Values of --migrations.
const (
	migrationsRun       = "run"
	migrationsRunShared = "run-shared"
	migrationsSkip      = "skip"
)

// placeholder of the name of a preview in preview.host of roost.yaml.
const placeholder = "{name}"

var suffixPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// preview is how a manifest is deployed under another name.
type preview struct {
	suffix     string
	host       string
	expires    time.Duration
	replicas   int32
	hasCron    bool
	migrations string
	// envFiles are pairs OLD=NEW, and usedFiles those whose OLD an App has.
	envFiles  []string
	usedFiles map[string]bool
	isDeleted bool
	// originalHosts are the hosts of the originals, by the address of the spec of the preview.
	originalHosts map[*v1alpha1.AppSpec]string
}

var (
	// flagsOfPreview have no meaning without --as.
	flagsOfPreview = []string{"host", "expires", "replicas", "cron", "migrations", "env-file", "delete"}
	// flagsOfDeployment have no meaning with --delete.
	flagsOfDeployment = []string{"image", "host", "expires", "replicas", "cron", "migrations", "env-file"}
)

func (preview *preview) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&preview.suffix, "as", "", "deploy previews of Apps under the names APP-SUFFIX, such as pr-42")
	flags.StringVar(&preview.host, "host", "", "public name of the preview; without it, preview.host of roost.yaml")
	flags.DurationVar(&preview.expires, "expires", v1alpha1.PreviewDefault, "time after which the operator deletes the preview, from 10m to 720h")
	flags.Int32Var(&preview.replicas, "replicas", 1, "pods of each process of the preview that has any")
	flags.BoolVar(&preview.hasCron, "cron", false, "let the preview have the cron tasks of the App")
	flags.StringVar(&preview.migrations, "migrations", "", "what happens to spec.migrate and spec.runs: skip, run (needs --env-file) or run-shared (in the database of the App); without it, a preview of an App that has them is refused")
	flags.StringArrayVar(&preview.envFiles, "env-file", nil, "OLD=NEW: read NEW beside the manifest instead of OLD of spec.envFiles; can be repeated")
	flags.BoolVar(&preview.isDeleted, "delete", false, "delete the previews of these manifests")
}

// check refuses flags that do not fit together.
func (preview *preview) check(command *cobra.Command) error {
	if preview.suffix == "" {
		if name := changedOf(command, append([]string{"as"}, flagsOfPreview...)); name != "" {
			return usageError{fmt.Errorf("--%s belongs to a preview; name one with --as, such as --as pr-42", name)}
		}
		return nil
	}
	switch {
	case !suffixPattern.MatchString(preview.suffix):
		return usageError{fmt.Errorf("--as: %q cannot end a name; use a-z, 0-9 and -, such as pr-42", preview.suffix)}
	// The preview and its App would take each other's names.
	case render.IsOwnName("app", preview.nameOf("app")):
		return usageError{fmt.Errorf("--as: %q makes names of objects of the App; use another one, such as pr-42", preview.suffix)}
	case preview.expires < v1alpha1.PreviewMin || preview.expires > v1alpha1.PreviewMax:
		return usageError{fmt.Errorf("--expires: %q is out of range; set 10m to 720h (30 days)", preview.expires)}
	case preview.isDeleted && command.Flags().Changed("dry-run"):
		return usageError{errors.New("--delete and --dry-run are mutually exclusive; `roost status` lists the previews that there are")}
	case preview.isDeleted && changedOf(command, flagsOfDeployment) != "":
		return usageError{fmt.Errorf("--delete needs no --%s, which says how a preview is deployed; remove one of them", changedOf(command, flagsOfDeployment))}
	case !slices.Contains([]string{"", migrationsRun, migrationsRunShared, migrationsSkip}, preview.migrations):
		return usageError{fmt.Errorf("--migrations: %q is not known; set skip, run or run-shared", preview.migrations)}
	}
	for _, pair := range preview.envFiles {
		if before, after, _ := strings.Cut(pair, "="); before == "" || after == "" || before == after {
			return usageError{fmt.Errorf("--env-file: %q does not name two files; write OLD=NEW, such as shop.env=preview.env", pair)}
		}
	}
	return nil
}

// nameOf returns the name of the preview of an App.
func (preview *preview) nameOf(app string) string { return app + "-" + preview.suffix }

// change makes the manifest of an App that of its preview, and returns what stands against it.
func (preview *preview) change(repository *repository, made *manifest) []validate.Problem {
	if made.app == nil {
		return []validate.Problem{{Path: "kind", Message: `"Dunlin" has no previews; name only manifests of Apps`}}
	}
	app := made.app
	original, spec := app.Name, &app.Spec
	app.Name = preview.nameOf(original)
	if len(app.Name) > validate.NameCharactersMax {
		message := fmt.Sprintf("%q has %d characters, more than %d; use a shorter --as", app.Name, len(app.Name), validate.NameCharactersMax)
		return []validate.Problem{{Path: "metadata.name", Message: message}}
	}
	spec.Preview = &v1alpha1.Preview{Of: original, Expires: v1alpha1.ExpiryText(time.Now().Add(preview.expires).Truncate(time.Second))}
	spec.DeletionPolicy, spec.OnNodeLoss, spec.Backup = "", "", nil
	preview.scale(spec)
	preview.unshareVolumes(spec)
	var found []validate.Problem
	hasOwnSettings := preview.setEnvFiles(spec)
	for _, problem := range []*validate.Problem{preview.setHost(repository, app.Name, spec), preview.setMigrations(spec, hasOwnSettings)} {
		if problem != nil {
			found = append(found, *problem)
		}
	}
	if len(found) == 0 {
		found = validate.App(app)
	}
	return found
}

// scale sets the number of pods. A process that is switched off stays so.
func (preview *preview) scale(spec *v1alpha1.AppSpec) {
	spec.Autoscaling = nil
	if spec.Replicas == nil || *spec.Replicas > 0 {
		spec.Replicas = new(preview.replicas)
	}
	for index := range spec.Processes {
		if replicas := spec.Processes[index].Replicas; replicas == nil || *replicas > 0 {
			spec.Processes[index].Replicas = new(preview.replicas)
		}
	}
	if !preview.hasCron {
		spec.Cron = nil
	}
}

// unshareVolumes makes persistent volumes temporary ones: claims are never deleted, so each preview would leave some.
func (preview *preview) unshareVolumes(spec *v1alpha1.AppSpec) {
	for index := range spec.Volumes {
		if volume := &spec.Volumes[index]; volume.Size != nil {
			volume.Temporary, volume.Size, volume.StorageClass = volume.Size, nil, ""
		}
	}
}

// setHost replaces the hosts of the original. A preview never has one of them.
func (preview *preview) setHost(repository *repository, name string, spec *v1alpha1.AppSpec) *validate.Problem {
	if spec.Host == "" {
		return nil
	}
	host := preview.host
	if host == "" {
		host = strings.ReplaceAll(repository.Preview.Host, placeholder, name)
	}
	switch {
	case host == "":
		message := fmt.Sprintf("%q is the host of the original; set preview.host in roost.yaml, such as \"%s.preview.example.com\", or --host", spec.Host, placeholder)
		return &validate.Problem{Path: "spec.host", Message: message}
	case slices.Contains(spec.AllHosts(), host):
		return &validate.Problem{Path: "spec.host", Message: fmt.Sprintf("%q is a host of the original; choose another one with --host", host)}
	}
	if preview.originalHosts == nil {
		preview.originalHosts = map[*v1alpha1.AppSpec]string{}
	}
	preview.originalHosts[spec] = spec.Host
	spec.Host, spec.Hosts = host, nil
	if spec.TLS != nil {
		// The Secret of the original has a certificate for other names. With an issuer, cert-manager would replace it there.
		spec.TLS.Secret = ""
		if spec.TLS.Issuer == "" || preview.host == "" {
			spec.TLS.Secret = repository.Preview.TLSSecret
		}
		if spec.TLS.Secret != "" {
			// Certificate authorities limit how many certificates a domain gets, so previews could leave none to the original.
			spec.TLS.Issuer = ""
		}
	}
	return nil
}

// setMigrations asks for a decision: the settings of the original name its database.
func (preview *preview) setMigrations(spec *v1alpha1.AppSpec, hasOwnSettings bool) *validate.Problem {
	const withOwn = "give the preview the address of its own database with --env-file OLD=NEW and --migrations=run"
	path := "spec.migrate"
	if spec.Migrate == nil {
		path = "spec.runs"
	}
	switch {
	case spec.Migrate == nil && len(spec.Runs) == 0:
	case preview.migrations == "":
		return &validate.Problem{Path: path, Message: "its commands would run with the settings of the original, so perhaps in its database; " +
			"set --migrations=skip, or " + withOwn}
	case preview.migrations == migrationsRun && !hasOwnSettings:
		return &validate.Problem{Path: path, Message: "--migrations=run would run its commands with the settings of the original, so perhaps in its database; " +
			withOwn + ", or set --migrations=run-shared if that is meant"}
	case preview.migrations == migrationsSkip:
		spec.Migrate, spec.Runs = nil, nil
	}
	return nil
}

// setEnvFiles replaces the files that the App has, and returns whether it has any of them. Other Apps of the files may have the others.
func (preview *preview) setEnvFiles(spec *v1alpha1.AppSpec) bool {
	original, hasOwn := slices.Clone(spec.EnvFiles), false
	for _, pair := range preview.envFiles {
		before, after, _ := strings.Cut(pair, "=")
		if index := slices.Index(original, v1alpha1.FileName(before)); index >= 0 {
			spec.EnvFiles[index], hasOwn = v1alpha1.FileName(after), true
			if preview.usedFiles == nil {
				preview.usedFiles = map[string]bool{}
			}
			preview.usedFiles[before] = true
		}
	}
	return hasOwn
}

// checkUse refuses flags that no App in the files has a use for. All Apps have been changed before.
func (preview *preview) checkUse(manifests []manifest) error {
	if preview.host != "" && !slices.ContainsFunc(manifests, func(made manifest) bool { return made.app.Spec.Host != "" }) {
		return usageError{errors.New("--host: no App in the files has spec.host; remove the flag")}
	}
	for _, pair := range preview.envFiles {
		before, _, _ := strings.Cut(pair, "=")
		if !preview.usedFiles[before] {
			return usageError{fmt.Errorf("--env-file: no App in the files has %q in spec.envFiles; correct it", before)}
		}
	}
	return nil
}

// shareHosts gives previews of Apps that share a host by their paths one host, that of the shortest path: a page at / that calls /api finds it.
func (preview *preview) shareHosts(manifests []manifest) {
	first := map[string]*v1alpha1.App{}
	for _, manifest := range manifests {
		app, host := manifest.app, preview.originalHosts[&manifest.app.Spec]
		if best := first[host]; best == nil || cmp.Or(cmp.Compare(len(app.Spec.Path), len(best.Spec.Path)), cmp.Compare(app.Name, best.Name)) < 0 {
			first[host] = app
		}
	}
	for _, manifest := range manifests {
		if host := preview.originalHosts[&manifest.app.Spec]; host != "" {
			manifest.app.Spec.Host = first[host].Spec.Host
		}
	}
}

// connect has the previews of one deployment reach each other instead of the originals.
func (preview *preview) connect(manifests []manifest) {
	names := map[string]string{}
	for _, manifest := range manifests {
		names[manifest.app.Namespace+"/"+manifest.app.Spec.Preview.Of] = manifest.app.Name
	}
	for _, manifest := range manifests {
		network := &manifest.app.Spec.Network
		for _, peers := range [][]v1alpha1.Peer{network.From, network.To} {
			for index := range peers {
				namespace := peers[index].Namespace
				if namespace == "" {
					namespace = manifest.app.Namespace
				}
				if name := names[namespace+"/"+peers[index].App]; name != "" {
					peers[index].App = name
				}
			}
		}
	}
}

// originals returns the Apps in files. Their settings are not read, because a deletion does not need them.
func originals(paths []string) ([]*v1alpha1.App, error) {
	files, err := manifestFiles(paths)
	if err != nil {
		return nil, err
	}
	var apps []*v1alpha1.App
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, document := range validate.File(text) {
			if len(document.Problems) > 0 {
				return nil, fmt.Errorf("%s: %s", file, document.Problems[0])
			}
			if document.App != nil {
				apps = append(apps, document.App)
			}
		}
	}
	if len(apps) == 0 {
		return nil, errors.New("there is no App in the files; name others")
	}
	return apps, nil
}

// deletePreviews ends the time of previews, and waits until the operator has deleted them. A deployer has no right to delete an App.
func (program *program) deletePreviews(cluster *cluster, preview *preview, paths []string, wait time.Duration) error {
	apps, err := originals(paths)
	if err != nil {
		return err
	}
	ctx, cancel := program.interruptible()
	defer cancel()
	made := []deletion{}
	// A preview that cannot be deleted keeps the others from nothing.
	var failures []error
	var ended []*v1alpha1.App
	for _, original := range apps {
		app, err := cluster.endPreview(ctx, original, preview.nameOf(original.Name))
		switch {
		case err != nil:
			failures = append(failures, err)
		case app == nil:
			program.note("there is no App %s; nothing is to be deleted", preview.nameOf(original.Name))
		default:
			ended = append(ended, app)
		}
	}
	for _, app := range ended {
		one := deletionOf(app)
		one.isInBackground = true
		if wait > 0 {
			err := cluster.waitUntilGone(ctx, app, wait)
			if one.IsDeleted = err == nil; err != nil {
				failures = append(failures, fmt.Errorf("App %s/%s has expired: %w", app.Namespace, app.Name, err))
			}
		}
		made = append(made, one)
	}
	if program.isJSON() {
		return errors.Join(append(failures, program.printJSON(made))...)
	}
	for _, one := range made {
		failures = append(failures, program.printDeletion(one))
	}
	return errors.Join(failures...)
}

// endPreview sets the time of a preview to one that is over by each clock. It returns nil if there is no such App.
func (cluster *cluster) endPreview(ctx context.Context, original *v1alpha1.App, name string) (*v1alpha1.App, error) {
	app := &v1alpha1.App{}
	namespace := original.Namespace
	if namespace == "" {
		namespace = "default"
	}
	err := cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, app)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, cluster.explained(err)
	case app.Spec.Preview == nil || app.Spec.Preview.Of != original.Name:
		return nil, fmt.Errorf("App %s/%s is no preview of %s; `roost delete -n %s %s` deletes it", namespace, name, original.Name, namespace, name)
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": app.UID},
		"spec":     map[string]any{"preview": map[string]any{"expires": v1alpha1.ExpiredAlready}},
	})
	if err != nil {
		return nil, err
	}
	err = cluster.Patch(ctx, app.DeepCopy(), client.RawPatch(types.MergePatchType, body), client.FieldOwner(fieldManager))
	return app, cluster.explained(client.IgnoreNotFound(err))
}

// previewState is the output of `roost status` and `roost top` for a preview.
type previewState struct {
	Of          string `json:"of"`
	Expires     string `json:"expires"`
	SecondsLeft int64  `json:"secondsLeft"`
	// isRefused is true if Expires is no time: the operator deletes the preview later.
	isRefused bool
}

// previewOf returns nil for what is no preview.
func previewOf(subject client.Object) *previewState {
	app, isApp := subject.(*v1alpha1.App)
	if !isApp || app.Spec.Preview == nil {
		return nil
	}
	state := &previewState{Of: app.Spec.Preview.Of, Expires: app.Spec.Preview.Expires}
	ends, err := app.Spec.Preview.ExpiresAt()
	if state.isRefused = err != nil; !state.isRefused {
		state.SecondsLeft = max(0, int64(math.Ceil(time.Until(ends).Seconds())))
	}
	return state
}

// left rounds the time that is left up to hours, or to minutes below two hours.
func (state *previewState) left() string {
	const minute, hour = 60, 3600
	switch seconds := state.SecondsLeft; {
	case state.isRefused:
		return "its time cannot be read"
	case seconds == 0:
		return "expired"
	case seconds <= 2*hour:
		return fmt.Sprintf("%dm left", (seconds+minute-1)/minute)
	default:
		return fmt.Sprintf("%dh left", (seconds+hour-1)/hour)
	}
}

// checkPreviewHost checks preview.host of roost.yaml.
func (repository *repository) checkPreviewHost() error {
	host := repository.Preview.Host
	if host != "" && !strings.Contains(host, placeholder) {
		return fmt.Errorf("preview.host: %q is the same for all previews; write one with %s, such as %q", host, placeholder, placeholder+".preview.example.com")
	}
	return nil
}
