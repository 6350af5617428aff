package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const waitDefault = 5 * time.Minute

func (program *program) deployCommand() *cobra.Command {
	var wait time.Duration
	isDryRun := false
	var images []string
	preview := &preview{}
	command := &cobra.Command{
		Use:   "deploy FILE|FOLDER...",
		Short: "Apply manifests and their .env files, and wait until the apps serve",
		Long: `Apply manifests and their .env files to the cluster, and wait until the apps serve.

The command uploads encrypted files as they are, so it needs no age identity. The API server checks all manifests before the first one is written.
While the command waits, it prints each change of state to stderr: the number of ready pods, and the last log lines of a failing pod.
Exit code 1 means that an app does not serve; the operator continues to reconcile it.

With --as, the command deploys previews: the same Apps under other names and hosts, which the operator deletes when their time is over.`,
		Example: `  roost deploy apps
  roost deploy --as pr-42 --expires 24h apps       # App shop becomes shop-pr-42
  roost deploy --as pr-42 --delete apps`,
		Args: atLeastOne,
		RunE: func(command *cobra.Command, paths []string) error {
			if err := preview.check(command); err != nil {
				return err
			}
			if preview.isDeleted {
				cluster, err := program.connect()
				if err != nil {
					return err
				}
				return program.deletePreviews(cluster, preview, paths, wait)
			}
			releases, err := program.releases(paths, images, preview)
			if err != nil {
				return err
			}
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			for _, release := range releases {
				if _, err := cluster.write(context.Background(), release, client.DryRunAll); err != nil {
					return fmt.Errorf("%s: %w. Nothing is written", release, err)
				}
			}
			if isDryRun {
				return program.printTaken(releases)
			}
			return program.roll(cluster, releases, wait)
		},
	}
	program.addClusterFlags(command)
	command.Flags().DurationVar(&wait, "wait", waitDefault, "how long to wait until all apps serve; 0: do not wait")
	command.Flags().StringArrayVar(&images, "image", nil, "REGISTRY/NAME@sha256:DIGEST, for manifests with an image of that name; can be repeated")
	preview.addFlags(command)
	command.Flags().BoolVar(&isDryRun, "dry-run", false, "validate the manifests on the API server, and write nothing")
	return command
}

// printTaken prints that the API server has accepted all manifests.
func (program *program) printTaken(releases []*release) error {
	if !program.isJSON() {
		program.print("the API server accepts %s", plural(len(releases), "manifest", "manifests"))
		return nil
	}
	taken := []takenManifest{}
	for _, release := range releases {
		taken = append(taken, takenManifest{release.kind, release.namespace, release.name, true})
	}
	return program.printJSON(taken)
}

// takenManifest is a manifest that the API server would write.
type takenManifest struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	IsDryRun  bool   `json:"dryRun"`
}

// releases loads manifests, refuses those with problems, and sets their images. A preview with a suffix changes them.
func (program *program) releases(paths, images []string, preview *preview) ([]*release, error) {
	if preview != nil && preview.suffix == "" {
		preview = nil
	}
	result, err := program.loadValidAs(paths, preview, ". Nothing is written")
	if err != nil {
		return nil, err
	}
	if len(result.manifests) == 0 {
		return nil, errors.New("there is no manifest in the files; name others")
	}
	if preview != nil {
		if err := preview.checkUse(result.manifests); err != nil {
			return nil, err
		}
		preview.shareHosts(result.manifests)
		preview.connect(result.manifests)
	}
	if err := pinImages(result.manifests, images); err != nil {
		return nil, err
	}
	var releases []*release
	for _, manifest := range result.manifests {
		release, err := releaseOf(manifest)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", manifest.file, err)
		}
		releases = append(releases, release)
	}
	return releases, nil
}

// roll writes releases and waits for all of them together.
func (program *program) roll(cluster *cluster, releases []*release, wait time.Duration) error {
	ctx := context.Background()
	generations := map[*release]int64{}
	for _, release := range releases {
		subject, err := cluster.write(ctx, release)
		if err == nil {
			err = cluster.keepFiles(ctx, release, subject)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", release, err)
		}
		generations[release] = subject.GetGeneration()
		program.note("%s: written", release)
	}
	if wait == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	ended, err := program.waitForAll(ctx, cluster, releases, generations)
	if err != nil {
		return err
	}
	var advice []string
	for index, release := range releases {
		if !ended[index].Serves {
			remedy, err := cluster.remedyOf(release)
			if err != nil {
				return fmt.Errorf("%s: %w", release, err)
			}
			advice = append(advice, fmt.Sprintf("%s: the release does not serve; %s", release, remedy))
		}
	}
	if err := program.printRollouts(ended); err != nil {
		return err
	}
	if len(advice) > 0 {
		return &foundError{strings.Join(advice, "\n")}
	}
	return nil
}

func (program *program) printRollouts(ended []rollout) error {
	if program.isJSON() {
		return program.printJSON(ended)
	}
	for _, rollout := range ended {
		name := fmt.Sprintf("%s %s/%s", rollout.Kind, rollout.Namespace, rollout.Name)
		if rollout.Serves {
			program.print("%s: revision %s serves: %s", name, rollout.Revision, rollout.Message)
		} else {
			program.print("%s: %s: %s", name, rollout.Reason, rollout.Message)
		}
	}
	return nil
}
