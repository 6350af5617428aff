package render

import (
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	natsPort        = 4222
	natsClusterPort = 6222
	natsMonitorPort = 8222
	natsFolder      = "/data"
	natsUser        = "dunlin"
)

func (view *dunlinView) natsName() string { return NATSName(view.name) }

// natsNames returns the host names of the servers in the cluster.
func (view *dunlinView) natsNames() []string {
	var names []string
	for index := range view.natsServers() {
		names = append(names, fmt.Sprintf("%s-%d.%s", view.natsName(), index, view.natsName()))
	}
	return names
}

func (view *dunlinView) natsPrefix() string { return cmp.Or(view.spec.NATS.Prefix, view.name) }

func (view *dunlinView) nats() []runtime.Object {
	files := view.configMap("nats", partNATS, map[string]string{"nats.conf": view.natsConfig()})
	ports := []corev1.ServicePort{servicePort("client", natsPort), servicePort("cluster", natsClusterPort)}
	return []runtime.Object{
		files, view.natsPolicy(), view.headless(view.natsName(), partNATS, ports),
		view.natsSet(files.Name), view.disruptionBudget(view.natsName(), partNATS),
	}
}

// natsConfig returns the configuration of docs/clustering.md, with a password, and a port for the health check.
func (view *dunlinView) natsConfig() string {
	size := view.natsSize()
	lines := []string{
		`server_name: $POD_NAME`,
		fmt.Sprintf(`listen: "0.0.0.0:%d"`, natsPort),
		fmt.Sprintf(`http: "0.0.0.0:%d"`, natsMonitorPort),
		`write_deadline: "2s"`,
		`max_pending: 16MB`,
		`ping_interval: "5s"`,
		`authorization {`,
		`  users: [` + strings.Join(view.natsUsers(), ", ") + `]`,
		`}`,
		`jetstream {`,
		`  store_dir: "` + natsFolder + `"`,
		`  sync_interval: always`,
		fmt.Sprintf(`  max_file_store: %d`, size.Value()/10*9),
		`}`,
	}
	if view.natsServers() > 1 {
		var routes []string
		for _, name := range view.natsNames() {
			routes = append(routes, fmt.Sprintf(`"nats://%s:%d"`, name, natsClusterPort))
		}
		lines = append(lines,
			`cluster {`,
			`  name: `+view.name,
			fmt.Sprintf(`  listen: "0.0.0.0:%d"`, natsClusterPort),
			`  routes: [`+strings.Join(routes, ", ")+`]`,
			`}`)
	}
	return strings.Join(lines, "\n") + "\n"
}

// natsUsers returns the users of the nodes, and of other clients that know the password. While the password is changed, nodes may use the
// previous one.
func (view *dunlinView) natsUsers() []string {
	user := func(name, variable string) string { return fmt.Sprintf(`{ user: %s, password: $%s }`, name, variable) }
	users := []string{user(natsUser, "NATS_PASSWORD_QUOTED")}
	current, previous := view.natsUser(keyNATSPassword), view.natsUser(keyNATSPrevious)
	if current != "" {
		users = append(users, user(current, "NATS_PASSWORD_QUOTED"))
	}
	if previous != "" && previous != current {
		users = append(users, user(previous, "NATS_PREVIOUS_PASSWORD_QUOTED"))
	}
	return users
}

func (view *dunlinView) natsSize() resource.Quantity {
	if size := view.spec.NATS.Size; size != nil {
		return *size
	}
	return resource.MustParse("10Gi")
}

// natsSet keeps the servers' names and volumes. The servers start in parallel, because a cluster needs a majority to be ready.
func (view *dunlinView) natsSet(config string) runtime.Object {
	size := view.natsSize()
	return &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: view.meta(view.natsName(), partNATS),
		Spec: appsv1.StatefulSetSpec{
			Replicas:                             view.spec.NATS.Servers,
			Selector:                             &metav1.LabelSelector{MatchLabels: view.selector(partNATS)},
			ServiceName:                          view.natsName(),
			PodManagementPolicy:                  appsv1.ParallelPodManagement,
			RevisionHistoryLimit:                 new(int32(revisionsKept)),
			PersistentVolumeClaimRetentionPolicy: retained(),
			UpdateStrategy:                       appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			// Streams elect leaders in 4 to 8 seconds. The next server is replaced only after that.
			MinReadySeconds:      10,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{view.claim("data", partNATS, size, view.spec.NATS.StorageClass)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: view.labels(partNATS), Annotations: view.mountedHash(keyNATSPassword, keyNATSPrevious)},
				Spec:       view.natsPod(config),
			},
		},
	}
}

func (view *dunlinView) natsResources() corev1.ResourceRequirements {
	resources := view.spec.NATS.Resources
	if resources.Memory == nil {
		resources.Memory = new(resource.MustParse("512Mi"))
	}
	if resources.CPU == nil {
		resources.CPU = new(resource.MustParse("250m"))
	}
	return resourcesOf(resources)
}

func (view *dunlinView) natsPod(config string) corev1.PodSpec {
	container := corev1.Container{
		Name:    "nats",
		Image:   view.spec.NATS.Image,
		Command: []string{"nats-server", "--config", "/etc/nats/nats.conf"},
		Env: []corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
			view.natsPassword(),
			// Without the quotes, the server parses a password such as 1e5 as a number.
			{Name: "NATS_PASSWORD_QUOTED", Value: `"$(NATS_PASSWORD)"`},
		},
		Resources: view.natsResources(),
		Ports: []corev1.ContainerPort{
			{Name: "client", ContainerPort: natsPort, Protocol: corev1.ProtocolTCP},
			{Name: "cluster", ContainerPort: natsClusterPort, Protocol: corev1.ProtocolTCP},
			{Name: "monitor", ContainerPort: natsMonitorPort, Protocol: corev1.ProtocolTCP},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/nats", ReadOnly: true},
			{Name: "data", MountPath: natsFolder},
		},
	}
	if view.key(keyNATSPrevious) != "" {
		container.Env = append(container.Env, view.natsSecret("NATS_PREVIOUS_PASSWORD", keyNATSPrevious),
			corev1.EnvVar{Name: "NATS_PREVIOUS_PASSWORD_QUOTED", Value: `"$(NATS_PREVIOUS_PASSWORD)"`})
	}
	// A server without a leader is alive, but not ready.
	setProbes(&container, httpProbe("/healthz?js-server-only=true", natsMonitorPort), 120, false)
	container.ReadinessProbe.ProbeHandler = httpProbe("/healthz", natsMonitorPort)
	container.LivenessProbe = &corev1.Probe{ProbeHandler: httpProbe("/healthz?js-server-only=true", natsMonitorPort), PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 6}
	volumes := []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: config},
	}}}}
	pod := podOf(defaultUser, container, volumes)
	pod.ServiceAccountName = view.name
	pod.ImagePullSecrets = pullSecrets(view.spec.PullSecret)
	pod.TerminationGracePeriodSeconds = new(int64(60))
	pod.TopologySpreadConstraints = spread(view.selector(partNATS))
	return pod
}

// natsPolicy accepts connections from the nodes, from the pods that save and restore streams, and from the other servers.
func (view *dunlinView) natsPolicy() runtime.Object {
	nodes := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: view.selector(partMain)}}
	clients := []networkingv1.NetworkPolicyPeer{nodes}
	if view.spec.Backup != nil {
		clients = append(clients, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: view.selector(partBackup)}})
	}
	servers := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: view.selector(partNATS)}}
	ingress := []networkingv1.NetworkPolicyIngressRule{
		allowFrom(clients, []int32{natsPort}),
		allowFrom([]networkingv1.NetworkPolicyPeer{servers}, []int32{natsClusterPort}),
	}
	egress := append(egressDNS(), networkingv1.NetworkPolicyEgressRule{
		To: []networkingv1.NetworkPolicyPeer{servers}, Ports: policyPorts([]int32{natsClusterPort}),
	})
	return view.policy(view.natsName(), partNATS, view.selector(partNATS), ingress, egress)
}
