package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/podlog"
	"github.com/dunlin-project/dunlin/platform/render"
)

const (
	runTimeoutDefault, runTimeoutMax = time.Hour, 24 * time.Hour
	startTimeoutDefault              = 2 * time.Minute
	// cleanUpSecondsMax bounds the deletion of the Job, which also happens after an interruption.
	cleanUpSecondsMax = 10
)

// unansweredSecondsMax is how long after --timeout roost waits for Kubernetes to end the Job.
const unansweredSecondsMax = 90

var errDeleted = errors.New("its pod was deleted; run the command again if it can be repeated")

// runQuery is the command line of `roost run`.
type runQuery struct {
	podQuery
	timeout, startTimeout time.Duration
	command               []string
}

func (program *program) runCommand() *cobra.Command {
	query := runQuery{}
	command := &cobra.Command{
		Use:   "run NAME -- PROGRAM [ARGUMENT...]",
		Short: "Run a command once with the image and the settings of an App",
		Long: `Run a command once with the image and the settings that the pods of an App have now, and show its log. Standard input is not connected.
Arguments reach the program as they are: neither a shell nor Kubernetes replaces $NAME or $(NAME) in them.

The command runs as a Job, once, without the persistent volumes and the ports of the App. The Job is deleted at the end, and when you
interrupt the command. If roost itself is killed, Kubernetes ends the Job after --timeout, and deletes it 10 minutes later.

The exit code is that of the program. 125: the program did not run, or its exit code is not known; 130: you interrupted it. 2 and 3 may also
come from roost itself, before it creates the Job. With -o json, each line of the log is an object with pod, time and text; the last
object has job and exitCode. You need the ClusterRole roost-runner.`,
		Example: `  roost run -n web shop -- shop-admin reindex
  roost run -n web shop --timeout 6h -- shop-admin import /tmp/list.csv`,
		Args: func(command *cobra.Command, arguments []string) error {
			if command.ArgsLenAtDash() != 1 || len(arguments) < 2 {
				return usageError{errors.New("write the name of one App, then --, then the program with its arguments, such as `roost run shop -- shop-admin reindex`")}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, arguments []string) error {
			query.command = arguments[1:]
			if query.timeout < time.Second || query.timeout > runTimeoutMax {
				return usageError{fmt.Errorf("--timeout is %s; write 1s to %s", query.timeout, runTimeoutMax)}
			}
			if query.startTimeout < time.Second || query.startTimeout > query.timeout {
				query.startTimeout = query.timeout
			}
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			cluster.role = roleRunner
			ctx, cancel := program.interruptible()
			defer cancel()
			return program.run(ctx, cluster, arguments[0], query)
		},
	}
	program.addNamespaceFlags(command, &query.namespace)
	command.Flags().StringVar(&query.process, "process", "", "process of an App with spec.processes whose settings and resources the command gets (default "+render.MainProcess+", that of spec.command)")
	command.Flags().DurationVar(&query.timeout, "timeout", runTimeoutDefault, "how long the program may run, including the start of its pod: 1s to 24h")
	command.Flags().DurationVar(&query.startTimeout, "start-timeout", startTimeoutDefault, "how long its pod may take to start")
	return command
}

func (program *program) run(ctx context.Context, cluster *cluster, name string, query runQuery) (err error) {
	job, err := cluster.oneOff(ctx, name, query)
	if err != nil {
		return err
	}
	if err := cluster.Create(ctx, job); err != nil {
		return cluster.explained(err)
	}
	program.note("Job %s/%s: created from revision %s", job.Namespace, job.Name, job.Annotations[render.AnnotationRevision])
	defer func() {
		if failure := cluster.deleteJob(job); failure != nil {
			program.note("the Job %s/%s cannot be deleted: %s; Kubernetes deletes it 10 minutes after its end", job.Namespace, job.Name, failure)
		}
	}()
	code, err := program.runJob(ctx, cluster, job, query)
	switch {
	case ctx.Err() != nil:
		return &endedError{ExitInterrupted, errors.New("interrupted; the Job is deleted")}
	case err != nil:
		return &endedError{ExitNotRun, err}
	}
	if program.isJSON() {
		if err := json.NewEncoder(program.Out).Encode(map[string]any{"job": job.Name, "exitCode": code}); err != nil {
			return err
		}
	}
	if code != 0 {
		return &endedError{code: code}
	}
	return nil
}

// oneOff returns the Job of a command, made from the current pod template of the app.
func (cluster *cluster) oneOff(ctx context.Context, name string, query runQuery) (*batchv1.Job, error) {
	subject, err := cluster.find(ctx, query.namespace, name)
	if err != nil {
		return nil, err
	}
	if kindOf(subject) != "App" {
		return nil, fmt.Errorf("%s is a %s; `roost run` is for an App", name, kindOf(subject))
	}
	template, revision, err := cluster.template(ctx, subject, query.podQuery)
	if err != nil {
		return nil, err
	}
	return render.OneOff{
		Namespace: query.namespace, App: name,
		Owner:    metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "App", Name: name, UID: subject.GetUID()},
		Template: *template, Revision: revision,
		Command: query.command, TimeoutSeconds: int64(query.timeout / time.Second),
	}.Job(), nil
}

// deleteJob deletes a Job and its pods.
func (cluster *cluster) deleteJob(job *batchv1.Job) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpSecondsMax*time.Second)
	defer cancel()
	options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID}}
	return cluster.explained(client.IgnoreNotFound(cluster.Delete(ctx, job, options...)))
}

// runJob returns the exit code of the program.
func (program *program) runJob(ctx context.Context, cluster *cluster, job *batchv1.Job, query runQuery) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, query.timeout+unansweredSecondsMax*time.Second)
	defer cancel()
	selector := labels.SelectorFromSet(labels.Set{batchv1.JobNameLabel: job.Name})
	source, err := cluster.logSource(job.Namespace, selector, ofJob(job.UID))
	if err != nil {
		return 0, err
	}
	started, err := program.podOf(ctx, cluster, job, source, query.startTimeout)
	if err != nil {
		return 0, err
	}
	source.pod = started.Name
	if err := podlog.FollowOne(ctx, source, started, program.logOutput(false, false)); err != nil {
		return 0, err
	}
	return cluster.exitCode(ctx, job, source)
}

// podOf waits until the pod of a Job has started.
func (program *program) podOf(ctx context.Context, cluster *cluster, job *batchv1.Job, source *logSource, startTimeout time.Duration) (*corev1.Pod, error) {
	pause := time.NewTicker(pollPause)
	defer pause.Stop()
	deadline := time.After(startTimeout)
	waiting := "there is no pod yet"
	for {
		pods, err := source.Pods(ctx)
		if err != nil {
			return nil, err
		}
		if len(pods) > 0 {
			if podlog.HasLog(&pods[0]) {
				return &pods[0], nil
			}
			if found := podlog.Waiting(&pods[0]); found != waiting {
				waiting = found
				program.note("%s: %s", pods[0].Name, waiting)
			}
		}
		if err := cluster.failureOf(ctx, job); err != nil {
			return nil, fmt.Errorf("the program did not run: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-deadline:
			return nil, fmt.Errorf("timed out after %s waiting for the pod to start: %s; fix the cause, or set a longer --start-timeout", startTimeout, waiting)
		case <-pause.C:
		}
	}
}

// failureOf returns why Kubernetes has given up a Job, or nil.
func (cluster *cluster) failureOf(ctx context.Context, job *batchv1.Job) error {
	current := &batchv1.Job{}
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(job), current); err != nil {
		return cluster.explained(err)
	}
	for _, condition := range current.Status.Conditions {
		isFailure := condition.Type == batchv1.JobFailed || condition.Type == batchv1.JobFailureTarget
		if !isFailure || condition.Status != corev1.ConditionTrue {
			continue
		}
		if condition.Reason == batchv1.JobReasonDeadlineExceeded {
			return errors.New("the Job exceeded --timeout; set a longer one")
		}
		return fmt.Errorf("the Job failed: %s: %s", condition.Reason, condition.Message)
	}
	return nil
}

// exitCode waits until the status of the pod contains the exit code: the log may end before the status is updated.
func (cluster *cluster) exitCode(ctx context.Context, job *batchv1.Job, source *logSource) (int, error) {
	pause := time.NewTicker(pollPause)
	defer pause.Stop()
	for {
		pods, err := source.Pods(ctx)
		if err != nil {
			return 0, err
		}
		if len(pods) > 0 {
			if ended := podlog.Ended(&pods[0]); ended != nil {
				// A pod that is being deleted has received SIGTERM, so its exit code does not show whether the program completed.
				if pods[0].DeletionTimestamp == nil {
					return int(ended.ExitCode), nil
				}
				pods = nil
			}
		}
		if len(pods) == 0 {
			err := cluster.failureOf(ctx, job)
			return 0, fmt.Errorf("the program was terminated: %w", cmp.Or(err, errDeleted))
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-pause.C:
		}
	}
}
