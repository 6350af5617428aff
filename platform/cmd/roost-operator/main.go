// The operator of Roost reconciles the Apps and Dunlins of namespaces.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dunlin-project/dunlin/platform/coredump"
	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/validate"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "roost-operator: %s\n", err)
		os.Exit(1)
	}
}

func run() error {
	if err := coredump.Forbid(); err != nil {
		return err
	}
	var options operator.Options
	namespaces := flag.String("namespaces", "", "namespaces to reconcile, separated by commas")
	flag.StringVar(&options.IdentityFile, "identity", "/etc/roost/identity.txt", "file with the age identities that decrypt settings, for an operator of one namespace; the file NAMESPACE.txt in its folder has those of a namespace, and comes first")
	flag.StringVar(&options.LeaderNamespace, "leader-namespace", "", "namespace of the Lease for leader election; empty: no leader election, for a single operator")
	flag.IntVar(&options.LeaseSeconds, "lease-seconds", operator.LeaseSecondsDefault, "seconds after which another operator takes over from a leader that does not renew the Lease")
	flag.StringVar(&options.HealthAddress, "health", ":8081", "address of /healthz and /readyz; 0: none")
	flag.StringVar(&options.MetricsAddress, "metrics", ":8080", "address of /metrics; 0: none")
	flag.StringVar(&options.Cluster.IngressClass, "ingress-class", "", "class of Ingresses (default traefik)")
	flag.StringVar(&options.Cluster.IngressNamespace, "ingress-namespace", "", "namespace of the ingress controller (default kube-system)")
	flag.StringVar(&options.Cluster.MonitoringNamespace, "monitoring-namespace", "", "namespace of the monitoring that scrapes metrics (default monitoring)")
	flag.StringVar(&options.Cluster.OperatorNamespace, "operator-namespace", "", "namespace of the operator, which reads metrics of Dunlins (default roost-system)")
	flag.StringVar(&options.Cluster.BackupImage, "backup-image", "", "image with roost-backup and restic; with --image-keys, name a signed one by its digest, or its repository in --unsigned-images (default registry.example.com/roost-backup:0.1.0)")
	flag.StringVar(&options.ImageKeysFile, "image-keys", "", "file with public keys in PEM; each image must be signed with one of them; empty: images need no signature")
	unsigned := flag.String("unsigned-images", "", "repositories whose images need no signature, such as docker.io/library/nats, separated by commas")
	flag.StringVar(&options.RegistryCAFile, "registry-ca", "", "file with the PEM certificates of the registries' certificate authorities, in addition to those of the system")
	flag.Parse()
	if *namespaces == "" {
		return errors.New("--namespaces is missing; set it to the namespaces to reconcile, such as web,jobs")
	}
	if options.LeaseSeconds < operator.LeaseSecondsMin {
		return fmt.Errorf("--lease-seconds: %d is less than %d; set it to %d or more", options.LeaseSeconds, operator.LeaseSecondsMin, operator.LeaseSecondsMin)
	}
	if *unsigned != "" {
		options.UnsignedImages = strings.Split(*unsigned, ",")
	}
	options.Namespaces = strings.Split(*namespaces, ",")
	if err := checkNames(options); err != nil {
		return err
	}
	options.Log = logr.FromSlogHandler(slog.NewJSONHandler(os.Stderr, nil))
	ctrl.SetLogger(options.Log)
	klog.SetLogger(options.Log)
	connection, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return operator.Run(ctx, connection, options)
}

// checkNames checks the names that go into the objects of every App and Dunlin.
func checkNames(options operator.Options) error {
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
