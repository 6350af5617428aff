package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// usage is the load of a pod.
type usage struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Pod  string `json:"pod"`
	// CPUMillis and MemoryBytes are nil until metrics-server has measured the pod.
	CPUMillis      *int64 `json:"cpuMillis,omitempty"`
	CPUMillisMax   int64  `json:"cpuMillisMax,omitempty"`
	MemoryBytes    *int64 `json:"memoryBytes,omitempty"`
	MemoryBytesMax int64  `json:"memoryBytesMax,omitempty"`
	Restarts       int32  `json:"restarts"`
	// Preview is nil for a pod of an App that is none.
	Preview *previewState `json:"preview,omitempty"`
}

// podMetrics is the part of an object of metrics.k8s.io that `roost top` reads.
type podMetrics struct {
	Containers []struct {
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
}

func (program *program) topCommand() *cobra.Command {
	query := podQuery{}
	command := &cobra.Command{
		Use:   "top [NAME]",
		Short: "Show the processor time and the memory of the pods of Apps and Dunlins",
		Long: `Show the processor time and the memory that pods use, beside their limits, and how often their containers have restarted: the pods of one App
or Dunlin, or of all in the namespace. metrics-server, which k3s includes, measures every 15 seconds by default. A pod without a measurement has -.

You need the ClusterRole roost-reader.`,
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) > 1 {
				return usageError{fmt.Errorf("there are %d arguments; name one App or Dunlin, or none", len(names))}
			}
			if query.process != "" && len(names) == 0 {
				return usageError{errProcessOfNone}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, names []string) error {
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			cluster.role = roleReader
			found, err := cluster.usages(context.Background(), query, names)
			if err != nil {
				return err
			}
			return program.printUsages(found)
		},
	}
	program.addPodFlags(command, &query, "show only this pod")
	return command
}

func (cluster *cluster) usages(ctx context.Context, query podQuery, names []string) ([]usage, error) {
	subjects, err := cluster.subjects(ctx, query.namespace, names)
	if err != nil {
		return nil, err
	}
	measured, err := cluster.measured(ctx, query.namespace)
	if err != nil {
		return nil, err
	}
	found := []usage{}
	if len(subjects) == 0 {
		return found, query.checkFound(found)
	}
	owners, err := cluster.podOwners(ctx, subjects, false)
	if err != nil {
		return nil, err
	}
	selector, err := query.selector(subjects...)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := cluster.List(ctx, &pods, client.InNamespace(query.namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, cluster.explained(err)
	}
	for index := range pods.Items {
		pod := &pods.Items[index]
		if subject := owners[controllerOf(pod)]; subject != nil && (query.pod == "" || query.pod == pod.Name) {
			found = append(found, usageOf(subject, pod, measured))
		}
	}
	slices.SortFunc(found, func(a, b usage) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Pod, b.Pod))
	})
	return found, query.checkFound(found)
}

// checkFound returns an error if a pod is named and not found.
func (query podQuery) checkFound(found []usage) error {
	if query.pod != "" && len(found) == 0 {
		return fmt.Errorf("there is no pod %s of an App or a Dunlin here; leave out --pod to see which there are", query.pod)
	}
	return nil
}

func (cluster *cluster) subjects(ctx context.Context, namespace string, names []string) ([]client.Object, error) {
	if len(names) == 1 {
		subject, err := cluster.find(ctx, namespace, names[0])
		return []client.Object{subject}, err
	}
	return cluster.allSubjects(ctx, namespace)
}

// measured returns what each pod of a namespace uses.
func (cluster *cluster) measured(ctx context.Context, namespace string) (map[string]corev1.ResourceList, error) {
	var all unstructured.UnstructuredList
	all.SetAPIVersion("metrics.k8s.io/v1beta1")
	all.SetKind("PodMetricsList")
	err := cluster.List(ctx, &all, client.InNamespace(namespace))
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the API server at %s has no metrics of pods (metrics.k8s.io); install metrics-server, which k3s has unless it was started with --disable metrics-server", cluster.host)
	case apierrors.IsServiceUnavailable(err):
		return nil, fmt.Errorf("metrics-server does not answer: %w; look at its pods in kube-system", err)
	case err != nil:
		return nil, cluster.explained(err)
	}
	measured := map[string]corev1.ResourceList{}
	for _, item := range all.Items {
		var metrics podMetrics
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &metrics); err != nil {
			return nil, fmt.Errorf("reading the metrics of the pod %s: %w; check the version of metrics-server", item.GetName(), err)
		}
		total := corev1.ResourceList{}
		for _, container := range metrics.Containers {
			addTo(total, container.Usage)
		}
		measured[item.GetName()] = total
	}
	return measured, nil
}

func addTo(total, more corev1.ResourceList) {
	for name, amount := range more {
		sum := total[name]
		sum.Add(amount)
		total[name] = sum
	}
}

func usageOf(subject client.Object, pod *corev1.Pod, measured map[string]corev1.ResourceList) usage {
	found := usage{Kind: kindOf(subject), Name: subject.GetName(), Pod: pod.Name, Preview: previewOf(subject)}
	limits := corev1.ResourceList{}
	for _, container := range pod.Spec.Containers {
		addTo(limits, container.Resources.Limits)
	}
	found.CPUMillisMax, found.MemoryBytesMax = limits.Cpu().MilliValue(), limits.Memory().Value()
	for _, status := range pod.Status.ContainerStatuses {
		found.Restarts += status.RestartCount
	}
	if used, isMeasured := measured[pod.Name]; isMeasured {
		found.CPUMillis, found.MemoryBytes = new(used.Cpu().MilliValue()), new(used.Memory().Value())
	}
	return found
}

func (program *program) printUsages(usages []usage) error {
	if program.isJSON() {
		return program.printJSON(usages)
	}
	table := tabwriter.NewWriter(program.Out, 0, 0, 2, ' ', 0)
	hasPreviews := slices.ContainsFunc(usages, func(usage usage) bool { return usage.Preview != nil })
	fmt.Fprint(table, "KIND\tNAME\tPOD\tCPU\tOF\tMEMORY\tOF\tRESTARTS")
	if hasPreviews {
		fmt.Fprint(table, "\tPREVIEW")
	}
	fmt.Fprintln(table)
	for _, usage := range usages {
		cpu, memory := "-", "-"
		if usage.CPUMillis != nil {
			cpu, memory = fmt.Sprintf("%dm", *usage.CPUMillis), mebibytes(*usage.MemoryBytes)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%dm\t%s\t%s\t%d", usage.Kind, usage.Name, usage.Pod, cpu, usage.CPUMillisMax, memory, mebibytes(usage.MemoryBytesMax), usage.Restarts)
		switch {
		case usage.Preview != nil:
			fmt.Fprint(table, "\t"+usage.Preview.left())
		case hasPreviews:
			fmt.Fprint(table, "\t-")
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// mebibytes rounds up, so that a small process does not use 0Mi.
func mebibytes(bytes int64) string {
	const mebibyte = 1 << 20
	return resource.NewQuantity((bytes+mebibyte-1)/mebibyte*mebibyte, resource.BinarySI).String()
}
