package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionSecondsMax bounds how long a user waits for names after the tab key.
const completionSecondsMax = 3

// addNamespaceFlags is for commands whose arguments name Apps and Dunlins of a namespace.
func (program *program) addNamespaceFlags(command *cobra.Command, namespace *string) {
	program.addClusterFlags(command)
	command.Flags().StringVarP(namespace, "namespace", "n", "default", "namespace")
	command.ValidArgsFunction = func(_ *cobra.Command, arguments []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(arguments) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return program.completeNames(*namespace, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames returns the names of Apps and Dunlins. If the API server does not answer, it returns none.
func (program *program) completeNames(namespace, begun string) []string {
	cluster, err := program.connect()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionSecondsMax*time.Second)
	defer cancel()
	states, err := cluster.allStates(ctx, namespace)
	if err != nil {
		return nil
	}
	var names []string
	for _, state := range states {
		if strings.HasPrefix(state.Name, begun) {
			names = append(names, state.Name+"\t"+state.Kind)
		}
	}
	slices.Sort(names)
	return names
}

// completeValues completes a flag with one of a few values.
func completeValues(command *cobra.Command, flag string, values ...string) {
	// The flag exists, so there is no error.
	err := command.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err)
	}
}
