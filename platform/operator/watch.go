// Package operator keeps namespaces as their Apps and Dunlins have them: it watches, reads, and performs what package
// reconcile decides.
package operator

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// scheme has the kinds that are read or written, and no others: each takes memory.
var scheme = NewScheme()

// NewScheme has the kinds of Roost, and those that they render to.
func NewScheme() *runtime.Scheme {
	fresh := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme,
		policyv1.AddToScheme, autoscalingv2.AddToScheme,
	} {
		utilruntime.Must(add(fresh))
	}
	metav1.AddToGroupVersion(fresh, metav1.SchemeGroupVersion)
	return fresh
}

// LeaseSecondsDefault has another operator take over in 16.4 s at most: it looks for the Lease every second, and by client-go's jitter up to
// 1.2 seconds later, so it may see the last renewal, and then the end of the Lease, 2.2 s late each.
const LeaseSecondsDefault = 12

// LeaseSecondsMin keeps the pauses between renewals above half a second.
const LeaseSecondsMin = 8

const (
	// retriesOfLease are the looks at the Lease in its duration.
	retriesOfLease = 12
	// A leader that could not renew the Lease for two thirds of it ends, and writes nothing after five sixths.
	renewShare, writeShare = 2.0 / 3, 5.0 / 6
)

// Options of an operator.
type Options struct {
	// Namespaces that are looked after. In each, the operator has the rights of its ClusterRole.
	Namespaces []string
	// LeaderNamespace has the Lease by which one of several operators is chosen. Empty: there is only one.
	LeaderNamespace string
	// LeaseSeconds after which another operator takes over from one that does not answer. LeaseSecondsDefault without it.
	LeaseSeconds int
	// CallSeconds after which a call of the API has failed. CallSecondsDefault without it.
	CallSeconds  int
	IdentityFile string
	Cluster      render.Cluster
	// ImageKeysFile and UnsignedImages are those of Signatures. RegistryCAFile has further certificate authorities of registries.
	ImageKeysFile, RegistryCAFile string
	UnsignedImages                []string
	// HealthAddress and MetricsAddress are listened on. "0": not at all.
	HealthAddress, MetricsAddress string
	Log                           logr.Logger
}

const (
	workers  = 4
	leaderID = "roost-operator"
	// The first second try is soon, and none is later than half a minute.
	retryMin = 200 * time.Millisecond
	retryMax = 30 * time.Second
)

// Run returns when the context ends, or when another operator has become the leader.
func Run(ctx context.Context, connection *rest.Config, options Options) error {
	running, err := newManager(connection, options)
	if err != nil {
		return err
	}
	for _, kind := range []string{KindApp, KindDunlin} {
		if err := running.GetFieldIndexer().IndexField(ctx, newObject(kind), fieldHosts, hostsOf); err != nil {
			return err
		}
	}
	for _, object := range append(slices.Collect(maps.Keys(children())), &corev1.Pod{}) {
		if err := running.GetFieldIndexer().IndexField(ctx, object, fieldApp, appOf); err != nil {
			return err
		}
	}
	recorder, stopRecorder, err := NewRecorder(running.GetConfig())
	if err != nil {
		return err
	}
	defer stopRecorder()
	registries, err := registryClient(options.RegistryCAFile)
	if err != nil {
		return err
	}
	operator := &Operator{
		Reader: running.GetClient(), Live: running.GetAPIReader(), Writer: running.GetClient(),
		Namespaces: options.Namespaces, IdentityFile: options.IdentityFile, Cluster: options.Cluster,
		Recorder: recorder, isIndexed: true, ServerNow: ServerTime(running.GetClient()),
		Signatures: Signatures{KeysFile: options.ImageKeysFile, Unsigned: options.UnsignedImages, Registry: registries},
	}
	for _, kind := range []string{KindApp, KindDunlin} {
		if err := watch(running, operator, kind); err != nil {
			return err
		}
	}
	if err := running.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := running.AddReadyzCheck("caches", areSynced(running.GetCache())); err != nil {
		return err
	}
	if options.MetricsAddress != "0" {
		subjects := &SubjectMetrics{Reader: running.GetClient(), Namespaces: options.Namespaces}
		if err := ctrlmetrics.Registry.Register(subjects); err != nil {
			return err
		}
		defer ctrlmetrics.Registry.Unregister(subjects)
	}
	return running.Start(ctx)
}

// readyTimeout bounds a check of readiness. The kubelet waits for a second.
const readyTimeout = 500 * time.Millisecond

// areSynced checks that the caches have been filled. Until then, the operator reconciles nothing.
func areSynced(caches interface{ WaitForCacheSync(context.Context) bool }) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), readyTimeout)
		defer cancel()
		if !caches.WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet")
		}
		return nil
	}
}

func hostsOf(object client.Object) []string { return subjectOf(object).hosts }

func newManager(connection *rest.Config, options Options) (manager.Manager, error) {
	connection = rest.CopyConfig(connection)
	connection.QPS, connection.Burst = 200, 400
	limit := time.Duration(cmp.Or(options.CallSeconds, CallSecondsDefault)) * time.Second
	lease := time.Duration(cmp.Or(options.LeaseSeconds, LeaseSecondsDefault)) * time.Second
	if options.LeaderNamespace != "" {
		held := &heldLease{valid: time.Duration(float64(lease) * writeShare), now: time.Now}
		connection.Wrap(func(next http.RoundTripper) http.RoundTripper { return &fence{next, held} })
	}
	// Each attempt passes the fence, and the limit applies to all attempts together.
	connection.Wrap(func(next http.RoundTripper) http.RoundTripper { return &deadline{&retry{next}, limit} })
	return manager.New(connection, manager.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions(options.Namespaces),
		Logger:                        options.Log,
		HealthProbeBindAddress:        options.HealthAddress,
		Metrics:                       metricsserver.Options{BindAddress: options.MetricsAddress},
		LeaderElection:                options.LeaderNamespace != "",
		LeaderElectionID:              leaderID,
		LeaderElectionNamespace:       options.LeaderNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 new(time.Duration(float64(lease) * renewShare)),
		RetryPeriod:                   new(lease / retriesOfLease),
		Controller:                    config.Controller{SkipNameValidation: new(true)},
	})
}

// watch has a pass for each change of a subject by others, of what belongs to it, and of its files.
func watch(running manager.Manager, operator *Operator, kind string) error {
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, statusChanged(operator, kind))
	watched := builder.ControllerManagedBy(running).Named(kind).For(newObject(kind), builder.WithPredicates(changed))
	byLabel := handler.EnqueueRequestsFromMapFunc(requestsOf)
	for object := range children() {
		watched = watched.Watches(object, byLabel)
	}
	return watched.Watches(&corev1.Pod{}, byLabel).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrlreconcile.Request](retryMin, retryMax),
		}).
		Complete(ctrlreconcile.Func(func(ctx context.Context, request ctrlreconcile.Request) (ctrlreconcile.Result, error) {
			again, err := operator.Pass(ctx, kind, request.NamespacedName)
			return ctrlreconcile.Result{RequeueAfter: again}, err
		}))
}

// statusChanged selects the changes of statuses that no pass knows of. The API server may perform the write of a status after a pass has given it up.
// By then, a later pass may have reported that all is as desired, and nothing else would change.
func statusChanged(operator *Operator, kind string) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(change event.UpdateEvent) bool {
		before, after := subjectOf(change.ObjectOld).status, subjectOf(change.ObjectNew).status
		if equality.Semantic.DeepEqual(*before, *after) {
			return false
		}
		key := subjectName{kind, client.ObjectKeyFromObject(change.ObjectNew)}
		return operator.recent.isStatusUnknown(key, versionIn(change.ObjectNew), *after)
	}}
}

// requestsOf asks for a pass over the subject that an object's labels name. Of the two kinds, one finds nothing.
func requestsOf(_ context.Context, object client.Object) []ctrlreconcile.Request {
	name := cmp.Or(object.GetLabels()[render.LabelApp], object.GetLabels()[render.LabelFilesOf])
	if name == "" {
		return nil
	}
	return []ctrlreconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: name}}}
}
