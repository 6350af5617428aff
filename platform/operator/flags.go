package operator

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/dunlin-project/dunlin/platform/deploy"
	"github.com/dunlin-project/dunlin/platform/validate"
)

// CommandLine is the command line of the program roost-operator.
type CommandLine struct {
	options              Options
	namespaces, unsigned string
}

// NewCommandLine declares the flags. After they are parsed, Options returns their values.
func NewCommandLine(flags *flag.FlagSet) *CommandLine {
	line := &CommandLine{}
	options := &line.options
	flags.StringVar(&line.namespaces, "namespaces", "", "namespaces to reconcile, separated by commas")
	flags.StringVar(&options.IdentityFile, "identity", "/etc/roost/identity.txt", "file with the age identities that decrypt settings, for an operator of one namespace; the file NAMESPACE.txt in its folder has those of a namespace, and comes first")
	flags.StringVar(&options.LeaderNamespace, "leader-namespace", "", "namespace of the Lease for leader election; empty: no leader election, for a single operator")
	flags.IntVar(&options.LeaseSeconds, "lease-seconds", LeaseSecondsDefault, "seconds after which another operator takes over from a leader that does not renew the Lease")
	flags.StringVar(&options.HealthAddress, "health", ":8081", "address of /healthz and /readyz; 0: none")
	flags.StringVar(&options.MetricsAddress, "metrics", ":8080", "address of /metrics; 0: none")
	flags.StringVar(&options.Cluster.IngressClass, "ingress-class", "", "class of Ingresses (default traefik)")
	flags.StringVar(&options.Cluster.HTTPSEntryPoint, "https-entry-point", "", "Traefik's entry point of hosts with tls, such as websecure, which then serve no HTTP; Traefik has to redirect it; empty: they serve both")
	flags.StringVar(&options.Cluster.IngressNamespace, "ingress-namespace", "", "namespace of the ingress controller (default kube-system)")
	flags.StringVar(&options.Cluster.MonitoringNamespace, "monitoring-namespace", "", "namespace of the monitoring that scrapes metrics (default monitoring)")
	flags.StringVar(&options.Cluster.OperatorNamespace, "operator-namespace", "", "namespace of the operator, which reads metrics of Dunlins (default roost-system)")
	flags.StringVar(&options.Cluster.BackupImage, "backup-image", "", "image with roost-backup and restic; with --image-keys, name a signed one by its digest, or its repository in --unsigned-images (default "+deploy.Image("roost-backup")+")")
	flags.StringVar(&options.ImageKeysFile, "image-keys", "", "file with public keys in PEM; each image must be signed with one of them; empty: images need no signature")
	flags.StringVar(&line.unsigned, "unsigned-images", "", "repositories whose images need no signature, such as docker.io/library/nats, separated by commas")
	flags.StringVar(&options.RegistryCAFile, "registry-ca", "", "file with the PEM certificates of the registries' certificate authorities, in addition to those of the system")
	return line
}

// Options returns the parsed options, or the error of the first one that is wrong.
func (line *CommandLine) Options() (Options, error) {
	options := line.options
	if line.namespaces == "" {
		return options, errors.New("--namespaces is missing; set it to the namespaces to reconcile, such as web,jobs")
	}
	if options.LeaseSeconds < LeaseSecondsMin {
		return options, fmt.Errorf("--lease-seconds: %d is less than %d; set it to %d or more", options.LeaseSeconds, LeaseSecondsMin, LeaseSecondsMin)
	}
	if line.unsigned != "" {
		options.UnsignedImages = strings.Split(line.unsigned, ",")
	}
	// A namespace that is named twice is one: an operator of one namespace may use the shared age identity.
	options.Namespaces = slices.Compact(slices.Sorted(slices.Values(strings.Split(line.namespaces, ","))))
	return options, checkNames(options)
}

// checkNames checks the names that go into the objects of every App and Dunlin.
func checkNames(options Options) error {
	for _, problem := range validate.Cluster("", options.Cluster) {
		return fmt.Errorf("--%s: %s", kebabOf(problem.Path), problem.Message)
	}
	for _, problem := range validate.Namespaces("--namespaces", options.Namespaces) {
		return errors.New(problem.String())
	}
	return nil
}

// kebabOf returns the flag of a setting: ingress-class for ingressClass.
func kebabOf(setting string) string {
	var flag strings.Builder
	for _, char := range setting {
		if unicode.IsUpper(char) {
			flag.WriteByte('-')
		}
		flag.WriteRune(unicode.ToLower(char))
	}
	return flag.String()
}
