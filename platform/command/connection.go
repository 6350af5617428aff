package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// fieldManager owns the fields that users and CI apply.
const fieldManager = "roost-deploy"

const requestSecondsMax = 30

// ClusterRoles of deploy/roles.yaml.
const (
	roleDeployer = "roost-deployer"
	roleReader   = "roost-reader"
	roleRunner   = "roost-runner"
	roleDebugger = "roost-debugger"
)

// cluster is a connection to an API server.
type cluster struct {
	client.Client
	connection *rest.Config
	host       string
	// role is the ClusterRole that the user of the command needs.
	role string
}

func (program *program) addClusterFlags(command *cobra.Command) {
	command.Flags().StringVar(&program.kubeconfig, "kubeconfig", "", "file with the API server and your credentials (default $KUBECONFIG, then ~/.kube/config)")
	command.Flags().StringVar(&program.site, "site", "", "folder of a site: connect to its cluster, through SSH where it is needed, instead of --kubeconfig")
	command.Flags().StringVar(&program.context, "context", "", "context in the kubeconfig file (default the current context)")
}

// reachSite takes the kubeconfig of a site, and opens the tunnel to its API server until the program ends.
func (program *program) reachSite() error {
	if program.kubeconfig != "" {
		return usageError{errors.New("--site and --kubeconfig are mutually exclusive; remove one of them")}
	}
	run, err := program.newBootstrap(program.site, 0)
	if err != nil {
		return err
	}
	if !isFile(program.kubeconfig) {
		return fmt.Errorf("%s does not exist; `roost up %s` writes it", program.kubeconfig, program.site)
	}
	program.site = ""
	program.atEnd = append(program.atEnd, func() { run.tunnel() })
	return run.reach(context.Background())
}

func (program *program) connect() (*cluster, error) {
	if program.site != "" {
		if err := program.reachSite(); err != nil {
			return nil, err
		}
	}
	config, err := program.restConfig()
	if err != nil {
		return nil, fmt.Errorf("no API server is configured: %w; name a file with --kubeconfig", err)
	}
	if program.tunnelled != "" {
		config.Host = program.tunnelled
	}
	// No client-side rate limit: one user does not overload a server.
	config.Timeout, config.QPS = requestSecondsMax*time.Second, -1
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, rbacv1.AddToScheme, authenticationv1.AddToScheme,
	} {
		if err := add(known); err != nil {
			return nil, err
		}
	}
	connected, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		return nil, explained(err, config.Host, roleDeployer)
	}
	return &cluster{connected, config, config.Host, roleDeployer}, nil
}

// restConfig reads the configuration from a file or, in a pod, from its service account.
func (program *program) restConfig() (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: program.kubeconfig}
	paths := filepath.SplitList(program.Variable("KUBECONFIG"))
	if len(paths) == 0 {
		paths = []string{filepath.Join(program.Variable("HOME"), ".kube", "config")}
	}
	rules.Precedence = paths
	if program.kubeconfig == "" && program.Variable("KUBERNETES_SERVICE_HOST") != "" && !isAnyThere(paths) {
		return rest.InClusterConfig()
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: program.context}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
}

func isAnyThere(paths []string) bool {
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// explained adds a remedy to an error of the API.
func (cluster *cluster) explained(err error) error { return explained(err, cluster.host, cluster.role) }

func explained(err error, host, role string) error {
	var unreachable *url.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unreachable), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the API server at %s does not answer: %w; check --kubeconfig and the network", host, err)
	case meta.IsNoMatchError(err):
		return &noDefinitionsError{host}
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; ask an administrator for the ClusterRole %s in that namespace", err, role)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w; the credentials in the file of --kubeconfig are wrong or have expired; get a new kubeconfig", err)
	}
	return err
}

// noDefinitionsError is the error for a kind that the API server does not serve, or not yet.
type noDefinitionsError struct{ host string }

func (e *noDefinitionsError) Error() string {
	return fmt.Sprintf("the API server at %s does not have the CustomResourceDefinitions of Roost; apply the files in platform/crd", e.host)
}

// newSubject returns an empty object of a kind.
func newSubject(kind, namespace, name string) client.Object {
	var object client.Object = &v1alpha1.App{}
	if kind == "Dunlin" {
		object = &v1alpha1.Dunlin{}
	}
	object.SetNamespace(namespace)
	object.SetName(name)
	return object
}

func statusOf(object client.Object) v1alpha1.Status {
	switch object := object.(type) {
	case *v1alpha1.App:
		return object.Status
	case *v1alpha1.Dunlin:
		return object.Status
	}
	return v1alpha1.Status{}
}

func imageOf(object client.Object) string {
	switch object := object.(type) {
	case *v1alpha1.App:
		return object.Spec.Image
	case *v1alpha1.Dunlin:
		return object.Spec.Image
	}
	return ""
}
