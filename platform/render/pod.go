package render

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

const (
	defaultUser = 65532
	// endpointSeconds is the pause before SIGTERM in which proxies remove the pod from their endpoints. Without it, a rollout under 200 requests
	// per second lost 30 to 35 of them; with it, none.
	endpointSeconds = 4
	tmpVolume       = "tmp"
)

var tmpSize = resource.MustParse("64Mi")

// podOf returns a pod that the restricted profile of Pod Security admits.
func podOf(user int64, container corev1.Container, volumes []corev1.Volume) corev1.PodSpec {
	container.SecurityContext = restricted()
	// The status of a pod contains the end of the log of a failed container, so reading it needs no right to read logs.
	container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: tmpVolume, MountPath: "/tmp"})
	tmp := corev1.Volume{Name: tmpVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &tmpSize}}}
	onRootMismatch := corev1.FSGroupChangeOnRootMismatch
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(false),
		// With service links, a Service called dunlin would set DUNLIN_PORT, which the server refuses.
		EnableServiceLinks: new(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:        new(true),
			RunAsUser:           &user,
			RunAsGroup:          &user,
			FSGroup:             &user,
			FSGroupChangePolicy: &onRootMismatch,
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{container},
		Volumes:    append(volumes, tmp),
	}
}

// restricted are the security settings of each container.
func restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func resourcesOf(resources v1alpha1.Resources) corev1.ResourceRequirements {
	cpu, memory, limit := resource.MustParse("100m"), resource.MustParse("256Mi"), resource.MustParse("1")
	if resources.CPU != nil {
		cpu = *resources.CPU
	}
	if resources.Memory != nil {
		memory = *resources.Memory
	}
	if resources.CPULimit != nil {
		limit = *resources.CPULimit
	} else if limit.Cmp(cpu) < 0 {
		limit = cpu
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: limit, corev1.ResourceMemory: memory},
	}
}

// spread puts pods on different nodes if there are enough nodes.
func spread(selector map[string]string) []corev1.TopologySpreadConstraint {
	return []corev1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       corev1.LabelHostname,
		WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: selector},
	}}
}

// lostNodeSeconds is how long pods without data stay on a lost node before they are replaced. The default of Kubernetes is 5 minutes.
const lostNodeSeconds = 30

// leavesLostNode returns the tolerations of a pod that can start on any node. If a pod has data on its node, a replacement would have to wait
// for that node anyway.
func leavesLostNode(hasData bool) []corev1.Toleration {
	if hasData {
		return nil
	}
	var tolerations []corev1.Toleration
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerations = append(tolerations, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(lostNodeSeconds)),
		})
	}
	return tolerations
}

func pullSecrets(name string) []corev1.LocalObjectReference {
	if name == "" {
		return nil
	}
	return []corev1.LocalObjectReference{{Name: name}}
}

func httpProbe(path string, port int32) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}}
}

func tcpProbe(port int32) corev1.ProbeHandler {
	return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}}
}

// setProbes uses one health check as the startup probe, the readiness probe and, if requested, the liveness probe.
func setProbes(container *corev1.Container, handler corev1.ProbeHandler, startSeconds int32, restart bool) {
	const startPeriod = 2
	container.StartupProbe = &corev1.Probe{
		ProbeHandler: handler, PeriodSeconds: startPeriod, TimeoutSeconds: 2,
		FailureThreshold: max(1, (startSeconds+startPeriod-1)/startPeriod),
	}
	container.ReadinessProbe = &corev1.Probe{ProbeHandler: handler, PeriodSeconds: 2, TimeoutSeconds: 2, FailureThreshold: 2}
	if restart {
		container.LivenessProbe = &corev1.Probe{ProbeHandler: handler, PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 6}
	}
}

func sleepBeforeStop(seconds int64) *corev1.Lifecycle {
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}}
}

// literal returns an argument that Kubernetes passes on as it is. It would replace `$(NAME)` by the value of a variable, and `$$` by `$`.
func literal(argument string) string { return strings.ReplaceAll(argument, "$", "$$") }

func words(command v1alpha1.Command) []string {
	var plain []string
	for _, word := range command {
		plain = append(plain, string(word))
	}
	return plain
}
