package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/render"
)

// podOfSubject returns the named pod of an App or a Dunlin, or one of its running pods: a ready one if there is any, and a node before a NATS server.
func (cluster *cluster) podOfSubject(ctx context.Context, subject client.Object, name string) (*corev1.Pod, error) {
	described := fmt.Sprintf("%s %s/%s", kindOf(subject), subject.GetNamespace(), subject.GetName())
	source, err := cluster.logSource(subject.GetNamespace(), labelsOfPods(false, subject), cluster.ofSubject(subject, false))
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
