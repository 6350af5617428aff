package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/dunlin-project/dunlin/platform/validate"
)

const bootstrapFile = "bootstrap.yaml"

// bootstrapConfig is the content of bootstrap.yaml. Paths are relative to its folder.
type bootstrapConfig struct {
	// Inventory, Playbook and Token are for Ansible. Token is an encrypted .env file that contains the token as K3S_TOKEN.
	Inventory string `json:"inventory"`
	Playbook  string `json:"playbook"`
	Token     string `json:"token"`
	// SSH is the host from which the server's kubeconfig is read, and through which connections to its API server go.
	SSH string `json:"ssh"`
	// Kubeconfig is the file to write. It must not be committed.
	Kubeconfig string `json:"kubeconfig"`
	// Operator lists the manifests of the operator, in this order. They contain the operator's Deployment.
	Operator []string `json:"operator"`
	// AgeIdentities lists the files with the operator's age identities, each named NAMESPACE.txt. Without them, the operator gets that of the user.
	AgeIdentities []string `json:"ageIdentities,omitempty"`
	// Identities are access identities. No tokens are created for them.
	Identities []bootstrapIdentity `json:"identities,omitempty"`
	// ArgoCD lists manifests of Argo CD, in this order.
	ArgoCD []string `json:"argocd,omitempty"`
	// Apps lists manifests of Apps and Dunlins.
	Apps []string `json:"apps"`
}

type bootstrapIdentity struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Role      string `json:"role"`
}

// check finds what would fail only after the machines are set up.
func (identity *bootstrapIdentity) check() error {
	if len(validation.IsDNS1123Label(identity.Name)) > 0 {
		return fmt.Errorf("name: %q is not the name of an access identity; use a-z, 0-9 and -", identity.Name)
	}
	if len(validation.IsDNS1123Label(identity.Namespace)) > 0 {
		return fmt.Errorf("namespace: %q is not the name of a namespace; use a-z, 0-9 and -", identity.Namespace)
	}
	if !slices.Contains(identityRoles, identity.Role) {
		return fmt.Errorf("role: %q is not a role; write %s", identity.Role, identityRolesText)
	}
	return nil
}

// bootstrap is a run of the command.
type bootstrap struct {
	*program
	config bootstrapConfig
	folder string
	// cluster is nil until there is a connection.
	cluster *cluster
	// tunnel ends the connection through SSH.
	tunnel func()
	wait   time.Duration
}

// bootstrapStep is a step of the command. It is done if nothing is missing. Each run inspects the machines and the cluster to find what is
// missing; there is no state file.
type bootstrapStep struct {
	name    string
	missing func(ctx context.Context) (string, error)
	do      func(ctx context.Context) error
}

func (program *program) upCommand() *cobra.Command {
	isPlan, wait := false, time.Duration(0)
	command := &cobra.Command{
		Use:     "up SITE",
		Aliases: []string{"bootstrap"},
		Short:   "Set up a cluster and its apps on bare machines, from the files of one folder",
		Long: `Set up a cluster and its apps on bare machines, from the files of one folder: machines and k3s with Ansible, the operator, access identities,
Argo CD (optional), and apps. ` + "`roost init SITE`" + ` writes the files. SITE/bootstrap.yaml names those for each step:

  inventory: hosts.yml                       # for Ansible
  playbook: ../platform/machines/site.yml
  token: token.env                           # encrypted, with K3S_TOKEN, and K3S_COPIES_… if snapshots are copied
  ssh: ops@203.0.113.11                      # the server
  kubeconfig: k3s.kubeconfig                 # written by this command; do not commit it
  operator: [../platform/crd, ../platform/deploy/machines, ../platform/deploy/roles.yaml, ../platform/deploy/namespace.yaml]
  ageIdentities: []                          # a file NAMESPACE.txt for each namespace; do not commit them. Without any, the operator gets yours
  identities: [{ name: ci, namespace: web, role: deployer }]
  argocd: []                                 # manifests of Argo CD; optional
  apps: [apps]

The command first prints the plan: each step with its pending changes. It compares the folder with the machines and the cluster, and skips steps
without a pending change. So you can run it again after a failure, or after a change of the folder. It needs ansible-playbook, ansible-inventory
and ssh. ` + "`roost bootstrap`" + ` is the same command.`,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 1 {
				return usageError{fmt.Errorf("there are %d arguments; name the folder that contains %s", len(arguments), bootstrapFile)}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, arguments []string) error {
			run, err := program.newBootstrap(arguments[0], wait)
			if err != nil {
				return err
			}
			ctx, cancel := program.interruptible()
			defer cancel()
			defer func() { run.tunnel() }()
			return run.run(ctx, isPlan)
		},
	}
	command.Flags().BoolVar(&isPlan, "plan", false, "print the plan, and change nothing")
	command.Flags().DurationVar(&wait, "wait", waitDefault, "how long to wait until the operator is available, and then until the apps serve")
	return command
}

func (program *program) newBootstrap(folder string, wait time.Duration) (*bootstrap, error) {
	text, err := os.ReadFile(filepath.Join(folder, bootstrapFile))
	if err != nil {
		return nil, fmt.Errorf("%w; `roost help up` shows an example", err)
	}
	run := &bootstrap{program: program, folder: folder, wait: wait, tunnel: func() {}}
	if err := validate.Decode(text, &run.config); err != nil {
		return nil, fmt.Errorf("%s: %w; `roost help up` shows an example", bootstrapFile, err)
	}
	for key, value := range map[string]string{
		"inventory": run.config.Inventory, "playbook": run.config.Playbook, "token": run.config.Token, "ssh": run.config.SSH,
		"kubeconfig": run.config.Kubeconfig,
	} {
		if value == "" {
			return nil, fmt.Errorf("%s has no %s; set it. `roost help up` shows an example", bootstrapFile, key)
		}
		// Ansible and ssh would parse such a value as an option.
		if strings.HasPrefix(value, "-") || key == "ssh" && strings.Contains(value, "@-") {
			return nil, fmt.Errorf("%s: %s %q begins with -; write another name. `roost help up` shows an example", bootstrapFile, key, value)
		}
	}
	if len(run.config.Operator) == 0 || len(run.config.Apps) == 0 {
		return nil, fmt.Errorf("%s has no operator or no apps; set both. `roost help up` shows an example", bootstrapFile)
	}
	if err := run.config.checkAgeIdentities(); err != nil {
		return nil, fmt.Errorf("%s: %w", bootstrapFile, err)
	}
	for index, identity := range run.config.Identities {
		if err := identity.check(); err != nil {
			return nil, fmt.Errorf("%s: identities[%d].%w", bootstrapFile, index, err)
		}
	}
	program.kubeconfig = run.path(run.config.Kubeconfig)
	return run, nil
}

func (run *bootstrap) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(run.folder, name)
}

func (run *bootstrap) paths(names []string) []string {
	var paths []string
	for _, name := range names {
		paths = append(paths, run.path(name))
	}
	return paths
}

func (run *bootstrap) steps() []bootstrapStep {
	steps := []bootstrapStep{
		{"machines", run.missingMachines, run.makeMachines},
		{"connection", run.missingConnection, run.makeConnection},
		{"operator", run.missingOperator, run.makeOperator},
		{"identities", run.missingIdentities, run.makeIdentities},
	}
	if len(run.config.ArgoCD) > 0 {
		steps = append(steps, bootstrapStep{"argocd", run.missingArgoCD, run.makeArgoCD})
	}
	return append(steps, bootstrapStep{"apps", run.missingApps, run.makeApps})
}

// errNoCluster says that the missing objects of a cluster cannot be determined.
var errNoCluster = errors.New("the cluster cannot be reached yet")

// plan prints each step with what it has to do.
func (run *bootstrap) plan(ctx context.Context, steps []bootstrapStep) error {
	table := tabwriter.NewWriter(run.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STEP\tTO DO")
	for _, step := range steps {
		missing, err := step.missing(ctx)
		switch {
		case errors.Is(err, errNoCluster):
			missing = "unknown: " + err.Error()
		case err != nil:
			return fmt.Errorf("%s: %w", step.name, err)
		case missing == "":
			missing = "nothing"
		}
		fmt.Fprintf(table, "%s\t%s\n", step.name, missing)
	}
	return table.Flush()
}

// run runs the steps in order. It skips a step if nothing is missing, and checks after each step that nothing is missing any more.
func (run *bootstrap) run(ctx context.Context, isPlan bool) error {
	steps := run.steps()
	// With a connection from an earlier run, the plan is more precise.
	_ = run.connectAgain(ctx)
	if err := run.plan(ctx, steps); err != nil || isPlan {
		return err
	}
	var summary []string
	for number, step := range steps {
		missing, err := step.missing(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if missing == "" {
			summary = append(summary, step.name+": already done")
			continue
		}
		run.note("[%d/%d] %s: %s", number+1, len(steps), step.name, missing)
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("step %d of %d, %s: %w. The steps before it are done; run the command again to continue", number+1, len(steps), step.name, err)
		}
		if missing, err = step.missing(ctx); err == nil && missing != "" {
			err = errors.New("still pending: " + missing)
		}
		if err != nil {
			return fmt.Errorf("step %d of %d, %s: %w", number+1, len(steps), step.name, err)
		}
		took := fmt.Sprintf("%s: done in %.0f s", step.name, time.Since(began).Seconds())
		run.note("[%d/%d] %s", number+1, len(steps), took)
		summary = append(summary, took)
	}
	for _, line := range summary {
		run.print("%s", line)
	}
	run.print("KUBECONFIG=%s has administrator rights; `roost identity create` creates a kubeconfig with fewer rights", run.kubeconfig)
	run.print("`roost status --site %s -A` shows the apps", run.folder)
	return nil
}
