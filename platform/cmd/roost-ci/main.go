// The command roost-ci checks a repository's workflows and rulesets, and applies the rulesets on GitHub.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/dunlin-project/dunlin/platform/ci"
)

func main() {
	folder := "."
	root := &cobra.Command{
		Use: "roost-ci", Short: "Check a repository's workflows and rulesets, and apply the rulesets on GitHub",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&folder, "folder", ".", "the repository's root")
	root.AddCommand(newCheck(&folder), newApply(&folder))
	if err := root.Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "roost-ci: %s\n", err)
		os.Exit(1)
	}
}

func newCheck(folder *string) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check .github/rulesets and .github/workflows against each other",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			rulesets, err := checked(*folder)
			if err != nil {
				return err
			}
			fmt.Fprintf(command.OutOrStdout(), "%d rulesets and the workflows are in order\n", len(rulesets))
			return nil
		},
	}
}

// checked returns the rulesets if there is no problem.
func checked(folder string) ([]ci.Ruleset, error) {
	workflows, err := ci.ReadWorkflows(filepath.Join(folder, ".github/workflows"))
	if err != nil {
		return nil, err
	}
	rulesets, err := ci.ReadRulesets(filepath.Join(folder, ".github/rulesets"))
	if err != nil {
		return nil, err
	}
	problems := append(ci.CheckRulesets(rulesets, workflows), ci.CheckWorkflows(workflows)...)
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, problem)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("%d problems", len(problems))
	}
	return rulesets, nil
}

var repositoryName = regexp.MustCompile(`^[A-Za-z0-9-]+/[A-Za-z0-9_.-]+$`)

func newApply(folder *string) *cobra.Command {
	hub := ci.Hub{}
	isDryRun := false
	command := &cobra.Command{
		Use: "apply --repository OWNER/NAME", Short: "Apply .github/rulesets on GitHub, if `check` finds no problem",
		Long: `Apply the files of .github/rulesets on GitHub. A ruleset with the same target and name is replaced; others are kept.

The token is read from $GITHUB_TOKEN or $GH_TOKEN. It needs the permission Administration (write) of the repository.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if !repositoryName.MatchString(hub.Repository) {
				return fmt.Errorf("--repository is %q; write OWNER/NAME", hub.Repository)
			}
			rulesets, err := checked(*folder)
			if err != nil {
				return fmt.Errorf("%w. Nothing is applied", err)
			}
			hub.Out = command.OutOrStdout()
			if isDryRun {
				return hub.Preview(rulesets)
			}
			if hub.Token = os.Getenv("GITHUB_TOKEN"); hub.Token == "" {
				hub.Token = os.Getenv("GH_TOKEN")
			}
			return hub.Apply(command.Context(), rulesets)
		},
	}
	flags := command.Flags()
	flags.StringVar(&hub.Repository, "repository", "", "OWNER/NAME")
	flags.StringVar(&hub.API, "api", "https://api.github.com", "address of GitHub's API")
	flags.BoolVar(&isDryRun, "dry-run", false, "print the API calls, and make none")
	if err := command.MarkFlagRequired("repository"); err != nil {
		panic(err)
	}
	return command
}
