package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

// execQuery is the command line of `roost exec`.
type execQuery struct {
	podQuery
	withInput, withTerminal bool
	command                 []string
}

func (program *program) execCommand() *cobra.Command {
	query := execQuery{}
	command := &cobra.Command{
		Use:   "exec NAME -- PROGRAM [ARGUMENT...]",
		Short: "Run a program in a running pod of an App or a Dunlin",
		Long: `Run a program in a running pod of an App or a Dunlin: in a ready one if there is any, or in the pod that --pod names. Arguments reach the program
as they are; no shell reads them. The program sees the volumes, the processes and the memory limit of the pod. To run a command in a pod of its own, use ` + "`roost run`" + `.

The exit code is that of the program. 125: the program did not run, or its exit code is not known; 130: you interrupted it, and it may still
run in the pod. 2 and 3 may also come from roost itself, before it runs the program. The output is that of the program, so there is no -o json.
With -it, the program keeps the size that the terminal has at the start. You need the ClusterRole roost-debugger.`,
		Example: `  roost exec -n web shop -- cat /etc/shop/shop.yml
  roost exec -n web shop -it -- sh
  roost exec -n web shop -i -- psql < change.sql`,
		Args: func(command *cobra.Command, arguments []string) error {
			if command.ArgsLenAtDash() != 1 || len(arguments) < 2 {
				return usageError{errors.New("write the name of one App or Dunlin, then --, then the program with its arguments, such as `roost exec shop -- env`")}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, arguments []string) error {
			query.command = arguments[1:]
			if program.isJSON() {
				return usageError{errors.New("--output is json, and the output of exec is that of the program; remove -o json")}
			}
			if query.withTerminal && !query.withInput {
				return usageError{errors.New("--tty is set without --stdin, so nothing could be typed; add -i, or remove -t")}
			}
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			cluster.role = roleDebugger
			ctx, cancel := program.interruptible()
			defer cancel()
			return program.exec(ctx, cluster, arguments[0], query)
		},
	}
	program.addPodFlags(command, &query.podQuery, "run the program in this pod")
	command.Flags().BoolVarP(&query.withInput, "stdin", "i", false, "connect standard input")
	command.Flags().BoolVarP(&query.withTerminal, "tty", "t", false, "connect the terminal, such as for a shell; needs -i")
	return command
}

func (program *program) exec(ctx context.Context, cluster *cluster, name string, query execQuery) error {
	subject, err := cluster.find(ctx, query.namespace, name)
	if err != nil {
		return err
	}
	pod, err := cluster.podOfSubject(ctx, subject, query.podQuery)
	if err != nil {
		return err
	}
	options := &corev1.PodExecOptions{
		Container: pod.Spec.Containers[0].Name, Command: query.command,
		// A terminal has one output.
		Stdin: query.withInput, Stdout: true, Stderr: !query.withTerminal, TTY: query.withTerminal,
	}
	connection, request, err := cluster.streamTo(pod, "exec", options)
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewWebSocketExecutor(connection, "GET", request.URL().String())
	if err != nil {
		return cluster.explained(err)
	}
	streams := remotecommand.StreamOptions{Stdout: program.Out, Tty: query.withTerminal}
	if query.withInput {
		streams.Stdin = program.In
	}
	if query.withTerminal {
		restore, size, err := rawTerminal(ctx, program.In)
		if err != nil {
			return err
		}
		defer restore()
		streams.TerminalSizeQueue = size
	} else {
		streams.Stderr = program.Err
	}
	err = executor.StreamWithContext(ctx, streams)
	var ended exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &endedError{ExitInterrupted, fmt.Errorf("interrupted; the program may still run in the pod %s", pod.Name)}
	case errors.As(err, &ended) && ended.Exited():
		return &endedError{code: ended.ExitStatus()}
	}
	return &endedError{ExitNotRun, cluster.explainedStream(err)}
}

// terminalSize is the size of the terminal at the start. The next one never comes.
type terminalSize struct {
	ctx   context.Context
	first *remotecommand.TerminalSize
}

func (size *terminalSize) Next() *remotecommand.TerminalSize {
	if first := size.first; first != nil {
		size.first = nil
		return first
	}
	<-size.ctx.Done()
	return nil
}

// rawTerminal makes each key go to the program in the pod, and returns a function that undoes it.
func rawTerminal(ctx context.Context, input io.Reader) (restore func(), size remotecommand.TerminalSizeQueue, err error) {
	file, isFile := input.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return nil, nil, errors.New("--tty is set, and standard input is no terminal; remove -t")
	}
	descriptor := int(file.Fd())
	width, height, err := term.GetSize(descriptor)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the size of the terminal: %w; remove -t", err)
	}
	before, err := term.MakeRaw(descriptor)
	if err != nil {
		return nil, nil, fmt.Errorf("setting up the terminal: %w; remove -t", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	restore = func() {
		cancel()
		_ = term.Restore(descriptor, before) // nothing else can be done
	}
	return restore, &terminalSize{ctx, &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}}, nil
}
