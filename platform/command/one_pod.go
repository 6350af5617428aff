package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/reconcile"
	"github.com/dunlin-project/dunlin/platform/render"
)

var errProcessOfNone = errors.New("--process needs the name of an App; add it")

// podQuery says on the command line which pods of an App or a Dunlin are meant.
type podQuery struct {
	namespace, pod string
	// process is the name of a process of an App, or empty.
	process string
	// withJobs adds the pods of Jobs.
	withJobs bool
}

// addPodFlags adds the options of a podQuery. The usage of --pod differs between commands.
func (program *program) addPodFlags(command *cobra.Command, query *podQuery, usageOfPod string) {
	program.addNamespaceFlags(command, &query.namespace)
	command.Flags().StringVar(&query.process, "process", "", "only this process of an App with spec.processes; "+render.MainProcess+" is that of spec.command")
	command.Flags().StringVar(&query.pod, "pod", "", usageOfPod)
}

// selector selects the pods of Apps and Dunlins of one namespace that are meant.
func (query podQuery) selector(subjects ...client.Object) (labels.Selector, error) {
	selector := labelsOfPods(query.withJobs, subjects...)
	if query.process == "" {
		return selector, nil
	}
	switch {
	case query.withJobs:
		return nil, usageError{errors.New("--process and --jobs are mutually exclusive: the pods of Jobs belong to no process; remove one of them")}
	case len(subjects) != 1:
		return nil, usageError{errProcessOfNone}
	}
	if err := query.checkProcess(subjects[0]); err != nil {
		return nil, err
	}
	label, value := render.LabelProcess, query.process
	if query.process == render.MainProcess {
		label, value = render.LabelPart, render.PartMain
	}
	isOfProcess, err := labels.NewRequirement(label, selection.Equals, []string{value})
	if err != nil {
		return nil, usageError{err}
	}
	return selector.Add(*isOfProcess), nil
}

// checkProcess returns an error if an App has no process of the name.
func (query podQuery) checkProcess(subject client.Object) error {
	app, isApp := subject.(*v1alpha1.App)
	if !isApp {
		return fmt.Errorf("%s is a Dunlin, which has no processes; remove --process", subject.GetName())
	}
	names := []string{render.MainProcess}
	for _, process := range app.Spec.Processes {
		names = append(names, string(process.Name))
	}
	if !slices.Contains(names, query.process) {
		return fmt.Errorf("App %s/%s has no process %s; it has %s", app.Namespace, app.Name, query.process, strings.Join(names, ", "))
	}
	return nil
}

// source returns the pods of an App or a Dunlin that are meant.
func (cluster *cluster) source(subject client.Object, query podQuery) (*logSource, error) {
	selector, err := query.selector(subject)
	if err != nil {
		return nil, err
	}
	return cluster.logSource(subject.GetNamespace(), selector, cluster.ofSubject(subject, query.withJobs))
}

// template returns the pod template of an App as its workload has it now, and the revision of the workload.
func (cluster *cluster) template(ctx context.Context, subject client.Object, query podQuery) (*corev1.PodTemplateSpec, string, error) {
	namespace, name := subject.GetNamespace(), subject.GetName()
	deployment, set := &appsv1.Deployment{}, &appsv1.StatefulSet{}
	var workload client.Object = deployment
	template, deploymentName, described := &deployment.Spec.Template, name, "the App"
	if query.process != "" {
		if err := query.checkProcess(subject); err != nil {
			return nil, "", err
		}
		if query.process != render.MainProcess {
			deploymentName, described = render.ProcessName(name, query.process), "the process "+query.process+" of the App"
		}
	}
	err := cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: deploymentName}, deployment)
	if deploymentName == name && apierrors.IsNotFound(err) {
		workload, template = set, &set.Spec.Template
		err = cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: render.WorkloadName(name, statusOf(subject).Backup)}, set)
	}
	if apierrors.IsNotFound(err) || err == nil && !reconcile.IsOwnedBy(workload, subject.GetUID()) {
		return nil, "", fmt.Errorf("no revision of %s %s/%s has been applied; `roost status -n %s %s` shows why", described, namespace, name, namespace, name)
	}
	if err != nil {
		return nil, "", cluster.explained(err)
	}
	return template, workload.GetAnnotations()[render.AnnotationRevision], nil
}

// podOfSubject returns the named pod of an App or a Dunlin, or one of its running pods: a ready one if there is any, and a node before a NATS server.
func (cluster *cluster) podOfSubject(ctx context.Context, subject client.Object, query podQuery) (*corev1.Pod, error) {
	name := query.pod
	described := fmt.Sprintf("%s %s/%s", kindOf(subject), subject.GetNamespace(), subject.GetName())
	source, err := cluster.source(subject, query)
	if err != nil {
		return nil, err
	}
	pods, err := source.Pods(ctx)
	if err != nil {
		return nil, err
	}
	if name != "" && !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Name == name }) {
		return nil, fmt.Errorf("%s has no pod %s; it has %s", described, name, cmp.Or(namesOf(pods), "none"))
	}
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		isOther := name != "" && pod.Name != name
		return isOther || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil
	})
	if len(pods) == 0 {
		return nil, fmt.Errorf("%s has no running pod; `roost status -n %s %s` shows why", cmp.Or(name, described), subject.GetNamespace(), subject.GetName())
	}
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(rankOf(&a), rankOf(&b)) })
	return &pods[0], nil
}

func rankOf(pod *corev1.Pod) int {
	rank := 0
	if pod.Labels[render.LabelPart] != render.PartMain {
		rank += 2
	}
	isReady := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
	if !isReady {
		rank++
	}
	return rank
}

// streamTo returns a connection without a time limit and the URL of a subresource of a pod.
func (cluster *cluster) streamTo(pod *corev1.Pod, subresource string, options *corev1.PodExecOptions) (*rest.Config, *rest.Request, error) {
	connection := rest.CopyConfig(cluster.connection)
	connection.Timeout = 0
	connection.GroupVersion, connection.APIPath, connection.NegotiatedSerializer = &corev1.SchemeGroupVersion, "/api", scheme.Codecs.WithoutConversion()
	made, err := rest.RESTClientFor(connection)
	if err != nil {
		return nil, nil, cluster.explained(err)
	}
	request := made.Get().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource(subresource)
	if options != nil {
		request = request.VersionedParams(options, scheme.ParameterCodec)
	}
	return connection, request, nil
}

// explainedStream adds a remedy to an error of a stream, which hides the answer of the API server.
func (cluster *cluster) explainedStream(err error) error {
	var failed *httpstream.UpgradeFailureError
	if errors.As(err, &failed) {
		err = failed.Cause
	}
	return cluster.explained(err)
}
