package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// identityLabel is on the ServiceAccounts and RoleBindings of identities. Its value is the identity's name.
	identityLabel = "apps.roost.dev/identity"
	// Kubernetes refuses tokens with a lifetime of less than 10 minutes.
	tokenMin, tokenDefault, tokenMax = 10 * time.Minute, time.Hour, 24 * time.Hour
)

var identityRoles = []string{"deployer", "reader", "runner", "debugger", "operator"}

const identityRolesText = "deployer, reader, runner, debugger or operator"

// clusterRoles are those of deploy/roles.yaml. The ClusterRole of the operator program is named roost-operator.
var clusterRoles = map[string]string{
	"deployer": "roost-deployer", "reader": "roost-reader", "runner": "roost-runner", "debugger": "roost-debugger",
	"operator": "roost-identity-operator",
}

func roleOf(clusterRole string) string {
	for role, name := range clusterRoles {
		if name == clusterRole {
			return role
		}
	}
	return clusterRole
}

// clusterIdentity is a ServiceAccount with a role in a namespace.
type clusterIdentity struct {
	Name      string      `json:"name"`
	Namespace string      `json:"namespace"`
	Role      string      `json:"role"`
	Since     metav1.Time `json:"since"`
}

// identityToken is a secret, which is printed once.
type identityToken struct {
	clusterIdentity
	Expires    metav1.Time `json:"expires"`
	Kubeconfig string      `json:"kubeconfig"`
}

func (program *program) identityCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "identity",
		Short: "Create and revoke access identities: short-lived access to a namespace, for people and CI",
		Long: `Create and revoke access identities: short-lived access to a namespace, for people and CI. They are not age identities, which decrypt .env files.

An access identity is a ServiceAccount with one role in one namespace. A deployer can use deploy, rollback and status. A reader can use status,
logs and top, and can list what runs. Neither can read Secrets, open a shell in a pod, or delete an App. But an app that a deployer deploys can use a
Secret of the namespace as its keys. A runner can use status, logs and run; it can make Jobs, and a Job can read each Secret of the
namespace. A debugger can use status, logs, top, exec and port-forward; a shell in a pod can read what the app can. An operator is a person who
has the rights of a deployer and a reader, and can also delete Apps, Dunlins, pods and Jobs.

You need the rights to create ServiceAccounts, their tokens and RoleBindings in the namespace.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(program.identityCreateCommand(), program.identityListCommand(), program.identityRevokeCommand())
	return command
}

func (program *program) identityCreateCommand() *cobra.Command {
	namespace, role, server, lifetime := "", "", "", time.Duration(0)
	command := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an access identity if it does not exist, and print a kubeconfig with a new token",
		Long: `Create an access identity if it does not exist, and print a kubeconfig with a new token. Older tokens stay valid until they expire; revoke
invalidates all of them.

The kubeconfig is a secret. The command prints it once, and does not store it. It contains the address of the API server from your own
kubeconfig. If you use a tunnel, set the address that others use with --server; the server's certificate must be valid for that address.`,
		Example: `  roost identity create ci --role deployer -n web --server https://10.78.0.11:6443`,
		Args:    exactlyOneIdentity,
		RunE: func(_ *cobra.Command, names []string) error {
			if !slices.Contains(identityRoles, role) {
				return usageError{fmt.Errorf("--role is %q; write %s", role, identityRolesText)}
			}
			if lifetime < tokenMin || lifetime > tokenMax {
				return usageError{fmt.Errorf("--lifetime is %s; write %s to %s", lifetime, tokenMin, tokenMax)}
			}
			if err := checkServer(server); err != nil {
				return usageError{err}
			}
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			connection, err := program.restConfig()
			if err != nil {
				return err
			}
			if server != "" {
				connection.Host, connection.ServerName = server, ""
			}
			identity := clusterIdentity{Name: names[0], Namespace: namespace, Role: role}
			token, err := cluster.createIdentity(context.Background(), identity, lifetime, connection)
			if err != nil {
				return err
			}
			program.note("access identity %s: %s in %s until %s", identity.Name, role, namespace, token.Expires.UTC().Format(time.RFC3339))
			if program.isJSON() {
				return program.printJSON(token)
			}
			program.print("%s", strings.TrimSuffix(token.Kubeconfig, "\n"))
			return nil
		},
	}
	program.addIdentityFlags(command, &namespace)
	command.Flags().StringVar(&role, "role", "", identityRolesText)
	completeValues(command, "role", identityRoles...)
	command.Flags().StringVar(&server, "server", "", "address of the API server in the new kubeconfig (default the address in your kubeconfig)")
	command.Flags().DurationVar(&lifetime, "lifetime", tokenDefault, "how long the token is valid: 10m to 24h")
	return command
}

// checkServer refuses a value that is not the address of an API server. "" stands for the connected API server.
func checkServer(server string) error {
	if server == "" {
		return nil
	}
	parsed, err := url.Parse(server)
	if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return fmt.Errorf("--server is %q; write an address such as https://10.78.0.11:6443", server)
	}
	return nil
}

func (program *program) identityListCommand() *cobra.Command {
	namespace := ""
	command := &cobra.Command{
		Use:   "list",
		Short: "List the access identities of a namespace",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			identities, err := cluster.identities(context.Background(), namespace)
			if err != nil {
				return err
			}
			if program.isJSON() {
				return program.printJSON(identities)
			}
			table := tabwriter.NewWriter(program.Out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "NAME\tNAMESPACE\tROLE\tSINCE")
			for _, one := range identities {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", one.Name, one.Namespace, one.Role, one.Since.UTC().Format(time.RFC3339))
			}
			return table.Flush()
		},
	}
	program.addIdentityFlags(command, &namespace)
	return command
}

func (program *program) identityRevokeCommand() *cobra.Command {
	namespace := ""
	command := &cobra.Command{
		Use:   "revoke NAME",
		Short: "Delete an access identity; its tokens become invalid within 10 seconds",
		Args:  exactlyOneIdentity,
		RunE: func(_ *cobra.Command, names []string) error {
			cluster, err := program.connect()
			if err != nil {
				return err
			}
			if err := cluster.revokeIdentity(context.Background(), namespace, names[0]); err != nil {
				return err
			}
			program.note("access identity %s in %s is revoked", names[0], namespace)
			if program.isJSON() {
				return program.printJSON(map[string]string{"name": names[0], "namespace": namespace})
			}
			return nil
		},
	}
	program.addIdentityFlags(command, &namespace)
	return command
}

func (program *program) addIdentityFlags(command *cobra.Command, namespace *string) {
	program.addClusterFlags(command)
	command.Flags().StringVarP(namespace, "namespace", "n", "default", "namespace")
}

func exactlyOneIdentity(_ *cobra.Command, names []string) error {
	if len(names) != 1 {
		return usageError{fmt.Errorf("there are %d arguments; name one access identity", len(names))}
	}
	if problems := validation.IsDNS1123Label(names[0]); len(problems) > 0 {
		return usageError{fmt.Errorf("%q is not the name of an access identity: %s", names[0], problems[0])}
	}
	return nil
}

// account returns the name of the ServiceAccount and the RoleBinding.
func (identity *clusterIdentity) account() string { return "identity-" + identity.Name }

func (identity *clusterIdentity) meta() metav1.ObjectMeta {
	labels := map[string]string{identityLabel: identity.Name}
	return metav1.ObjectMeta{Name: identity.account(), Namespace: identity.Namespace, Labels: labels}
}

// ensureIdentity creates an access identity if there is none.
func (cluster *cluster) ensureIdentity(ctx context.Context, identity clusterIdentity) (*corev1.ServiceAccount, error) {
	account := &corev1.ServiceAccount{ObjectMeta: identity.meta()}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: identity.meta(),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRoles[identity.Role]},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: identity.account(), Namespace: identity.Namespace}},
	}
	if err := cluster.createOrFind(ctx, account); err != nil {
		return nil, err
	}
	wanted := binding.RoleRef.Name
	if err := cluster.createOrFind(ctx, binding); err != nil {
		return nil, err
	}
	if binding.RoleRef.Name != wanted {
		return nil, fmt.Errorf("access identity %s in %s has the role %s; revoke it first, or choose another name",
			identity.Name, identity.Namespace, roleOf(binding.RoleRef.Name))
	}
	return account, nil
}

func (cluster *cluster) createIdentity(ctx context.Context, identity clusterIdentity, lifetime time.Duration, connection *rest.Config) (*identityToken, error) {
	account, err := cluster.ensureIdentity(ctx, identity)
	if err != nil {
		return nil, err
	}
	identity.Since = account.CreationTimestamp
	seconds := int64(lifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := cluster.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, cluster.explainedIdentity(err)
	}
	kubeconfig, err := kubeconfigOf(connection, &identity, request.Status.Token)
	if err != nil {
		return nil, err
	}
	return &identityToken{identity, request.Status.ExpirationTimestamp, string(kubeconfig)}, nil
}

// createOrFind creates an object of an identity, or reads it if it exists.
func (cluster *cluster) createOrFind(ctx context.Context, object client.Object) error {
	identity := object.GetLabels()[identityLabel]
	err := cluster.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		err = cluster.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil && object.GetLabels()[identityLabel] != identity {
			return fmt.Errorf("%s/%s exists and belongs to no access identity; choose another name", object.GetNamespace(), object.GetName())
		}
	}
	return cluster.explainedIdentity(err)
}

func (cluster *cluster) identities(ctx context.Context, namespace string) ([]clusterIdentity, error) {
	var bindings rbacv1.RoleBindingList
	if err := cluster.List(ctx, &bindings, client.InNamespace(namespace), client.HasLabels{identityLabel}); err != nil {
		return nil, cluster.explainedIdentity(err)
	}
	found := []clusterIdentity{}
	for _, binding := range bindings.Items {
		role := roleOf(binding.RoleRef.Name)
		found = append(found, clusterIdentity{binding.Labels[identityLabel], namespace, role, binding.CreationTimestamp})
	}
	return found, nil
}

// explainedIdentity adds the rights that creating identities requires.
func (cluster *cluster) explainedIdentity(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; this needs the rights to serviceaccounts, serviceaccounts/token and rolebindings, and all rights of the role", err)
	}
	return cluster.explained(err)
}

// revokeIdentity deletes the ServiceAccount first: a token is bound to it, and becomes invalid without it.
func (cluster *cluster) revokeIdentity(ctx context.Context, namespace, name string) error {
	identity := clusterIdentity{Name: name, Namespace: namespace}
	missing := 0
	for _, object := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.RoleBinding{}} {
		key := client.ObjectKey{Namespace: namespace, Name: identity.account()}
		err := cluster.Get(ctx, key, object)
		if err == nil && object.GetLabels()[identityLabel] != name {
			return fmt.Errorf("%s/%s belongs to no access identity; it is not deleted", namespace, identity.account())
		}
		if err == nil {
			err = cluster.Delete(ctx, object)
		}
		if apierrors.IsNotFound(err) {
			missing++
			continue
		}
		if err != nil {
			return cluster.explainedIdentity(err)
		}
	}
	if missing == 2 {
		return errors.New("there is no access identity " + name + " in " + namespace + "; `roost identity list` lists them")
	}
	return nil
}

// kubeconfigOf returns a kubeconfig with the API server of the connection, and the token.
func kubeconfigOf(connection *rest.Config, identity *clusterIdentity, token string) ([]byte, error) {
	if err := rest.LoadTLSFiles(connection); err != nil {
		return nil, err
	}
	user := identity.Name + "@" + identity.Namespace
	return clientcmd.Write(api.Config{
		CurrentContext: user,
		Contexts:       map[string]*api.Context{user: {Cluster: "cluster", AuthInfo: user, Namespace: identity.Namespace}},
		Clusters: map[string]*api.Cluster{"cluster": {
			Server: connection.Host, CertificateAuthorityData: connection.CAData, TLSServerName: connection.ServerName,
		}},
		AuthInfos: map[string]*api.AuthInfo{user: {Token: token}},
	})
}
