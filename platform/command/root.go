// Package command is the program `roost`. It reads files and prints. The packages validate, render and settings contain the logic.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitFine = 0
	// ExitFound is for problems in manifests, for differences, and for an App or a Dunlin that does not serve.
	ExitFound = 1
	// ExitUsage is for a wrong command line.
	ExitUsage = 2
	// ExitFailed is for files that cannot be read, written or decrypted, and for an API server that does not answer, refuses a request, or does
	// not have the named object.
	ExitFailed = 3
	// ExitNotRun is for `roost run` and `roost exec`: the program has not run, or its exit code is unknown. Otherwise the exit code is that of the program.
	ExitNotRun = 125
	// ExitInterrupted is for `roost run` and `roost exec` when the user interrupts it.
	ExitInterrupted = 130
)

// Surroundings are the inputs and outputs of the process.
type Surroundings struct {
	In       io.Reader
	Out, Err io.Writer
	// Variable returns the value of an environment variable, or "".
	Variable func(name string) string
	// Interruptible returns a context that ends when the user interrupts the program. If it is nil, the context never ends.
	Interruptible func() (context.Context, context.CancelFunc)
}

// foundError ends the program with ExitFound. The findings have been printed already.
type foundError struct{ summary string }

func (e *foundError) Error() string { return e.summary }

// endedError ends the program with the exit code of a program that it has run, or with a code that says why there is none.
type endedError struct {
	code  int
	cause error
}

func (e *endedError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.cause) }

func (e *endedError) Unwrap() error { return e.cause }

// usageError ends the program with ExitUsage.
type usageError struct{ error }

// program holds the state that all subcommands share.
type program struct {
	Surroundings
	output   string
	identity string
	// kubeconfig and context select the API server, or site, the folder of one.
	kubeconfig, context, site string
	// tunnelled is the local address of the tunnel to the API server. Empty without one.
	tunnelled string
	// atEnd are called when the command has ended.
	atEnd []func()
}

// Run runs the program and returns its exit code.
func Run(arguments []string, surroundings Surroundings) int {
	program := &program{Surroundings: surroundings}
	root := program.root()
	root.SetArgs(arguments)
	err := root.Execute()
	for _, end := range program.atEnd {
		end()
	}
	var found *foundError
	var usage usageError
	var ended *endedError
	switch {
	case err == nil:
		return ExitFine
	case errors.As(err, &found):
		program.note("%s", err)
		return ExitFound
	case errors.As(err, &ended):
		if ended.cause != nil {
			program.note("roost: %s", ended.cause)
		}
		return ended.code
	case errors.As(err, &usage):
		program.note("roost: %s", err)
		return ExitUsage
	}
	program.note("roost: %s", err)
	return ExitFailed
}

// Root returns the command with all commands below it, for the reference. It has no inputs and outputs.
func Root() *cobra.Command {
	root := (&program{Surroundings: Surroundings{Variable: func(string) string { return "" }}}).root()
	root.InitDefaultCompletionCmd()
	return root
}

func (program *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "roost",
		Short: "Deploys Dunlin and other apps on Kubernetes",
		Long: `Roost validates, renders and deploys manifests of the kinds App and Dunlin, and edits and checks encrypted .env files.

Exit codes: 0 success; 1 problems or differences were found, or an app does not serve; 2 the command line is wrong; 3 a file could not be
read, written or decrypted, or the API server could not be reached, refused a request, or does not have a named object. ` + "`roost run`" + ` and ` + "`roost exec`" + ` have their own exit codes.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(program.In)
	root.SetOut(program.Out)
	root.SetErr(program.Err)
	root.PersistentFlags().StringVarP(&program.output, "output", "o", "text", "text or json")
	root.PersistentFlags().StringVar(&program.identity, "identity", "", "file with age identities, which decrypt .env files (default $ROOST_IDENTITY_FILE, then $SOPS_AGE_KEY_FILE, then ~/.config/roost/identity.txt)")
	completeValues(root, "output", "text", "json")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if program.output != "text" && program.output != "json" {
			return usageError{fmt.Errorf("--output is %q; write text or json", program.output)}
		}
		return nil
	}
	root.RunE = func(command *cobra.Command, arguments []string) error {
		if len(arguments) > 0 {
			return usageError{fmt.Errorf("unknown command %q; `roost help` lists the commands", arguments[0])}
		}
		return command.Help()
	}
	root.Args = cobra.ArbitraryArgs
	root.AddCommand(program.initCommand(), program.validateCommand(), program.renderCommand(), program.diffCommand(), program.secretsCommand(),
		program.deployCommand(), program.rollbackCommand(), program.statusCommand(), program.logsCommand(), program.topCommand(),
		program.runCommand(), program.execCommand(), program.portForwardCommand(), program.deleteCommand(),
		program.backupCommand(), program.drillCommand(), program.restoreCommand(), program.gitopsCommand(), program.identityCommand(),
		program.upCommand(), program.replaceNATSCommand())
	return root
}

// atLeastOne refuses a command line without a file.
func atLeastOne(_ *cobra.Command, arguments []string) error {
	if len(arguments) == 0 {
		return usageError{errors.New("there is no file; name manifests, or folders with manifests")}
	}
	return nil
}

func exactlyOne(_ *cobra.Command, arguments []string) error {
	if len(arguments) != 1 {
		return usageError{fmt.Errorf("there are %d arguments; name one file", len(arguments))}
	}
	return nil
}

// note prints to standard error, so that other programs can parse standard output.
func (program *program) note(format string, values ...any) {
	fmt.Fprintf(program.Err, format+"\n", values...)
}

// interruptible returns a context for commands that have to clean up when they are interrupted.
func (program *program) interruptible() (context.Context, context.CancelFunc) {
	if program.Interruptible == nil {
		return context.WithCancel(context.Background())
	}
	return program.Surroundings.Interruptible()
}

func (program *program) print(format string, values ...any) {
	fmt.Fprintf(program.Out, format+"\n", values...)
}

func (program *program) isJSON() bool { return program.output == "json" }

func (program *program) printJSON(value any) error {
	encoder := json.NewEncoder(program.Out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

func plural(count int, one, many string) string {
	if count == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", count, many)
}
