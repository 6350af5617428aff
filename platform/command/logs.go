package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/podlog"
	"github.com/dunlin-project/dunlin/platform/render"
)

// tailDefault is the number of lines of each pod that are shown without --tail and --since.
const tailDefault = 100

// logsQuery is the command line of `roost logs`.
type logsQuery struct {
	podlog.Query
	podQuery
	isFollowing, withTime bool
}

func (program *program) logsCommand() *cobra.Command {
	query := logsQuery{}
	command := &cobra.Command{
		Use:   "logs NAME",
		Short: "Show the logs of the pods of an App or a Dunlin",
		Long: `Show the logs of the pods of an App or a Dunlin, ordered by time. If there are several pods, each line begins with the name of its pod.

With --follow, the command also shows the logs of pods that start later, until you interrupt it. A line of more than 64 KiB is split.
With -o json, each line is an object with pod, time and text. You need the ClusterRole roost-reader.`,
		Example: `  roost logs -n web shop
  roost logs -n web shop --follow --since 10m
  roost logs -n web shop --previous          # the logs of containers before their last restart
  roost logs -n web shop --jobs              # also migrations, cron tasks, backups and runs`,
		Args: exactlyOneName,
		RunE: func(command *cobra.Command, names []string) error {
			if query.Previous && query.isFollowing {
				return usageError{errors.New("--previous and --follow exclude each other: the log of a container that has ended does not grow; remove one of them")}
			}
			if query.Since < 0 {
				return usageError{fmt.Errorf("--since is %s; write a duration such as 10m", query.Since)}
			}
			if query.Since > 0 && !command.Flags().Changed("tail") {
				query.TailLines = -1
			}
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			cluster.role = roleReader
			ctx, cancel := program.interruptible()
			defer cancel()
			return program.logs(ctx, cluster, names[0], query)
		},
	}
	program.addPodFlags(command, &query.podQuery, "show only this pod")
	command.Flags().BoolVarP(&query.isFollowing, "follow", "f", false, "follow the logs until interrupted, including pods that start later")
	command.Flags().BoolVarP(&query.Previous, "previous", "p", false, "show the logs of containers before their last restart")
	command.Flags().DurationVar(&query.Since, "since", 0, "show only lines that are newer than a duration such as 10m")
	command.Flags().Int64Var(&query.TailLines, "tail", tailDefault, "number of last lines of each pod; -1: all lines, which is the default with --since")
	command.Flags().BoolVar(&query.withJobs, "jobs", false, "include the pods of Jobs: migrations, cron tasks, backups and runs")
	command.Flags().BoolVar(&query.withTime, "timestamps", false, "begin each line with its time")
	return command
}

func (program *program) logs(ctx context.Context, cluster *cluster, name string, query logsQuery) error {
	subject, err := cluster.find(ctx, query.namespace, name)
	if err != nil {
		return err
	}
	source, err := cluster.source(subject, query.podQuery)
	if err != nil {
		return err
	}
	pods, err := source.Pods(ctx)
	if err != nil {
		return err
	}
	described := fmt.Sprintf("%s %s/%s", kindOf(subject), query.namespace, name)
	if query.pod != "" {
		if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Name == query.pod }) {
			return fmt.Errorf("%s has no pod %s; it has %s", described, query.pod, cmp.Or(namesOf(pods), "none"))
		}
		source.pod = query.pod
	}
	if len(pods) == 0 {
		if !query.isFollowing {
			return fmt.Errorf("%s has no pod; `roost status -n %s %s` shows why", described, query.namespace, name)
		}
		program.note("%s has no pod yet", described)
	}
	withPod := query.pod == "" && (len(pods) != 1 || query.isFollowing)
	output := program.logOutput(withPod, query.withTime)
	if query.isFollowing {
		return podlog.Follow(ctx, source, query.Query, output)
	}
	return podlog.Read(ctx, source, query.Query, output)
}

func namesOf(pods []corev1.Pod) string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return strings.Join(names, ", ")
}

// logOutput prints lines to standard output, and notes to standard error.
func (program *program) logOutput(withPod, withTime bool) podlog.Output {
	note := func(pod, text string) { program.note("%s", strings.TrimPrefix(pod+": "+text, ": ")) }
	if program.isJSON() {
		encoder := json.NewEncoder(program.Out)
		encoder.SetEscapeHTML(false)
		return podlog.Output{Line: func(line podlog.Line) error { return encoder.Encode(line) }, Note: note}
	}
	return podlog.Output{Note: note, Line: func(line podlog.Line) error {
		text := line.Text + "\n"
		if withTime {
			text = line.Time.UTC().Format(time.RFC3339Nano) + " " + text
		}
		if withPod {
			text = line.Pod + " | " + text
		}
		_, err := io.WriteString(program.Out, text)
		return err
	}}
}

// labelsOfPods selects the pods of the workloads of Apps and Dunlins, or also those of their Jobs.
func labelsOfPods(withJobs bool, subjects ...client.Object) labels.Selector {
	selector := labelsOfSubjects(subjects)
	if withJobs {
		return selector
	}
	// The operator and the values are valid, so there is no error.
	isWorkload, err := labels.NewRequirement(render.LabelPart, selection.In, render.WorkloadParts)
	if err != nil {
		panic(err)
	}
	return selector.Add(*isWorkload)
}

// logSource reads logs from the API server, which requests them from the kubelets.
type logSource struct {
	cluster   *cluster
	logs      typedcorev1.PodInterface
	namespace string
	selector  labels.Selector
	filter    podFilter
	// pod is the only pod to read. If it is empty, all pods are read.
	pod string
}

func (cluster *cluster) logSource(namespace string, selector labels.Selector, filter podFilter) (*logSource, error) {
	connection := rest.CopyConfig(cluster.connection)
	// A followed log has no end, so there is no timeout.
	connection.Timeout = 0
	connected, err := typedcorev1.NewForConfig(connection)
	if err != nil {
		return nil, cluster.explained(err)
	}
	return &logSource{cluster: cluster, logs: connected.Pods(namespace), namespace: namespace, selector: selector, filter: filter}, nil
}

// Pods returns the pods, sorted by name.
func (source *logSource) Pods(ctx context.Context) ([]corev1.Pod, error) {
	var all corev1.PodList
	options := []client.ListOption{client.InNamespace(source.namespace), client.MatchingLabelsSelector{Selector: source.selector}}
	if err := source.cluster.List(ctx, &all, options...); err != nil {
		return nil, source.cluster.explained(err)
	}
	pods, err := source.filter(ctx, all.Items)
	if err != nil {
		return nil, err
	}
	if source.pod != "" {
		pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return pod.Name != source.pod })
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

// Open opens the log of a pod.
func (source *logSource) Open(ctx context.Context, pod *corev1.Pod, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	stream, err := source.logs.GetLogs(pod.Name, options).Stream(ctx)
	return stream, source.cluster.explained(err)
}
