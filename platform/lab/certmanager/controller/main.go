// Controller runs the controllers of cert-manager that get certificates from an ACME server for Ingresses. The released program is not part of
// cert-manager's module, and its other controllers are not needed here.
//
//	controller KUBECONFIG NAMESERVER SOLVER-IMAGE
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/acmechallenges"
	"github.com/cert-manager/cert-manager/pkg/controller/acmeorders"
	ingresses "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/ingresses"
	requestsacme "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/acme"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/acme"
)

var controllers = []string{
	acmechallenges.ControllerName, acmeorders.ControllerName, ingresses.ControllerName, requestsacme.CRControllerName,
	approver.ControllerName, issuing.ControllerName, keymanager.ControllerName, readiness.ControllerName,
	requestmanager.ControllerName, revisionmanager.ControllerName, trigger.ControllerName, clusterissuers.ControllerName,
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: controller KUBECONFIG NAMESERVER SOLVER-IMAGE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, options(os.Args[1], os.Args[2], os.Args[3])); err != nil {
		log.Fatal(err)
	}
}

func options(kubeconfig, nameserver, image string) controller.ContextOptions {
	return controller.ContextOptions{
		Kubeconfig: kubeconfig, KubernetesAPIQPS: 100, KubernetesAPIBurst: 200,
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: "kube-system"},
		ACMEOptions: controller.ACMEOptions{
			HTTP01SolverImage: image, HTTP01SolverNameservers: []string{nameserver}, ACMEHTTP01SolverRunAsNonRoot: true,
			HTTP01SolverResourceRequestCPU: resource.MustParse("10m"), HTTP01SolverResourceRequestMemory: resource.MustParse("32Mi"),
			HTTP01SolverResourceLimitsCPU: resource.MustParse("100m"), HTTP01SolverResourceLimitsMemory: resource.MustParse("64Mi"),
			DNS01CheckRetryPeriod: time.Second,
		},
		IngressShimOptions: controller.IngressShimOptions{DefaultIssuerKind: "Issuer", DefaultIssuerGroup: "cert-manager.io"},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour, CertificateRequestMaximumBackoffDuration: time.Hour,
		},
		SchedulerOptions: controller.SchedulerOptions{MaxConcurrentChallenges: 10},
	}
}

func run(ctx context.Context, options controller.ContextOptions) error {
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		return err
	}
	root, err := factory.Build()
	if err != nil {
		return err
	}
	var running []controller.Interface
	for _, name := range controllers {
		made, err := controller.Known()[name](factory)
		if err != nil {
			return err
		}
		running = append(running, made)
	}
	root.SharedInformerFactory.Start(ctx.Done())
	root.KubeSharedInformerFactory.Start(ctx.Done())
	root.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	var ended sync.WaitGroup
	for _, each := range running {
		ended.Go(func() {
			if err := each.Run(1, ctx); err != nil {
				log.Print(err)
			}
		})
	}
	ended.Wait()
	return nil
}
