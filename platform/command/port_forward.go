package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/portforward"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// forwardQuery is the command line of `roost port-forward`.
type forwardQuery struct {
	podQuery
	port string
}

// forwarded is what `roost port-forward` prints when it listens.
type forwarded struct {
	Local uint16 `json:"local"`
	Pod   string `json:"pod"`
	Port  uint16 `json:"port"`
}

func (program *program) portForwardCommand() *cobra.Command {
	query := forwardQuery{}
	command := &cobra.Command{
		Use:   "port-forward NAME [LOCAL:]PORT",
		Short: "Forward a port of this machine to a pod of an App or a Dunlin",
		Long: `Forward a port of this machine, at 127.0.0.1, to a running pod of an App or a Dunlin: to a ready one if there is any, or to the pod that --pod
names. PORT is a number, or the name of a port in spec.ports. LOCAL is the port of this machine: by default the same as PORT; 0 chooses a free one.

The command runs until you interrupt it, or until the pod ends (exit code 3). Connections bypass the NetworkPolicy of the App, so whoever
may forward ports can reach each port of its pods. With -o json, the line about the connection is an object with local, pod and port. You
need the ClusterRole roost-debugger.`,
		Example: `  roost port-forward -n web shop 8080
  roost port-forward -n web database 15432:5432
  roost port-forward -n web shop 0:http -o json`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 2 {
				return usageError{fmt.Errorf("there are %d arguments; name one App or Dunlin, and a port such as 8080 or 15432:5432", len(arguments))}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, arguments []string) error {
			query.port = arguments[1]
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			cluster.role = roleDebugger
			ctx, cancel := program.interruptible()
			defer cancel()
			return program.portForward(ctx, cluster, arguments[0], query)
		},
	}
	program.addPodFlags(command, &query.podQuery, "forward to this pod")
	return command
}

func (program *program) portForward(ctx context.Context, cluster *cluster, name string, query forwardQuery) error {
	subject, err := cluster.find(ctx, query.namespace, name)
	if err != nil {
		return err
	}
	local, port, err := portsOf(subject, query.port)
	if err != nil {
		return err
	}
	pod, err := cluster.podOfSubject(ctx, subject, query.podQuery)
	if err != nil {
		return err
	}
	if err := checkLocalPort(local); err != nil {
		return err
	}
	connection, request, err := cluster.streamTo(pod, "portforward", nil)
	if err != nil {
		return err
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(request.URL(), connection)
	if err != nil {
		return cluster.explained(err)
	}
	dialer := &failingDialer{Dialer: tunnel}
	ready, failures := make(chan struct{}), noteWriter{program}
	spec := []string{fmt.Sprintf("%d:%d", local, port)}
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, spec, ctx.Done(), ready, io.Discard, failures)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		if dialer.isConnected && ctx.Err() == nil {
			// The forwarder connects, listens, and is ready.
			return &localPortError{local, err}
		}
		return forwardingFailed(ctx, cluster, cmp.Or(dialer.failure, err))
	}
	listening, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	if err := program.printForwarded(forwarded{listening[0].Local, pod.Name, port}); err != nil {
		return err
	}
	err = <-ended
	if errors.Is(err, portforward.ErrLostConnectionToPod) {
		return fmt.Errorf("the connection to the pod %s has ended; run the command again", pod.Name)
	}
	return forwardingFailed(ctx, cluster, err)
}

// localPortError is the error for a port of this machine at which nothing can listen.
type localPortError struct {
	port  uint16
	cause error
}

func (e *localPortError) Error() string {
	why := "it cannot be used (" + e.cause.Error() + ")"
	switch {
	case errors.Is(e.cause, syscall.EADDRINUSE):
		why = "another program has it"
	case errors.Is(e.cause, fs.ErrPermission):
		why = "it needs other rights"
	}
	return fmt.Sprintf("this machine cannot listen at port %d: %s; write another port, such as 0:8080 for a free one", e.port, why)
}

func (e *localPortError) Unwrap() error { return e.cause }

// checkLocalPort listens once, because the forwarder returns only the text of its error.
func checkLocalPort(port uint16) error {
	listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return &localPortError{port, err}
	}
	return listener.Close()
}

// failingDialer keeps the outcome of a dial, of which the forwarder keeps only the text.
type failingDialer struct {
	httpstream.Dialer
	failure     error
	isConnected bool
}

func (dialer *failingDialer) Dial(protocols ...string) (httpstream.Connection, string, error) {
	connection, protocol, err := dialer.Dialer.Dial(protocols...)
	dialer.failure, dialer.isConnected = err, err == nil && protocol == portforward.PortForwardProtocolV1Name
	return connection, protocol, err
}

// forwardingFailed returns nil if the user has interrupted the command.
func forwardingFailed(ctx context.Context, cluster *cluster, err error) error {
	if ctx.Err() != nil || err == nil {
		return nil
	}
	return cluster.explainedStream(err)
}

func (program *program) printForwarded(line forwarded) error {
	if program.isJSON() {
		return json.NewEncoder(program.Out).Encode(line)
	}
	program.print("127.0.0.1:%d forwards to port %d of %s", line.Local, line.Port, line.Pod)
	return nil
}

// portsOf reads [LOCAL:]PORT.
func portsOf(subject client.Object, text string) (local, port uint16, err error) {
	first, second, hasLocal := strings.Cut(text, ":")
	if !hasLocal {
		second = first
	}
	if port, err = portNumber(subject, second); err != nil {
		return 0, 0, err
	}
	if !hasLocal {
		return port, port, nil
	}
	number, err := strconv.ParseUint(first, 10, 16)
	if err != nil {
		return 0, 0, usageError{fmt.Errorf("the port %q is not a port of this machine; write 0 to 65535, such as 15432:5432", first)}
	}
	return uint16(number), port, nil
}

func portNumber(subject client.Object, text string) (uint16, error) {
	var names []string
	if app, isApp := subject.(*v1alpha1.App); isApp {
		for _, port := range app.Spec.Ports {
			if port.Name == text || port.Name == "" && text == "http" {
				return uint16(port.Port), nil
			}
			names = append(names, strings.TrimSpace(fmt.Sprintf("%d %s", port.Port, port.Name)))
		}
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err == nil && number > 0 {
		return uint16(number), nil
	}
	known := ""
	if len(names) > 0 {
		known = ", or one of spec.ports: " + strings.Join(names, ", ")
	}
	return 0, usageError{fmt.Errorf("the port %q is neither a number nor a name in spec.ports; write 1 to 65535%s", text, known)}
}

// noteWriter prints the failures of single connections, which do not end the command.
type noteWriter struct{ program *program }

func (writer noteWriter) Write(text []byte) (int, error) {
	writer.program.note("%s", strings.TrimSpace(string(text)))
	return len(text), nil
}
