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

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/settings"
)

const (
	publicPort    = 8000
	keysFolder    = "/run/secrets/dunlin"
	storageFolder = "/var/lib/dunlin"
	storageVolume = "storage"
	backupsFolder = "backups"
)

// InternalPort of a node serves the server API, the health check and the metrics.
const InternalPort = 9000

// Dunlin renders a valid cluster of nodes, and its NATS servers if it has any. keys are those of spec.keys.file.
func Dunlin(dunlin *v1alpha1.Dunlin, keys settings.Settings, cluster Cluster) ([]runtime.Object, error) {
	view := &dunlinView{
		owner: owner{kind: kindDunlin, name: dunlin.Name, namespace: dunlin.Namespace, cluster: cluster.withDefaults()},
		spec:  &dunlin.Spec,
		drain: DrainOf(&dunlin.Spec),
		keys:  keys,
	}
	config, err := view.serverConfig()
	if err != nil {
		return nil, err
	}
	if view.revision, err = Revision(dunlin.Spec, keys, dunlin.Namespace+"/"+dunlin.Name); err != nil {
		return nil, err
	}
	storage := view.storageApp(dunlin)
	view.isStopped = storage.isStopped()
	files := view.configMap("config", partMain, map[string]string{"config.json": config})
	objects := []runtime.Object{
		view.serviceAccount(view.name, partMain), files, view.networkPolicy(),
		view.service(view.name, partMain, []corev1.ServicePort{servicePort("http", publicPort)}),
		view.service(InternalName(view.name), partMain, []corev1.ServicePort{servicePort("internal", InternalPort)}),
		view.headless(PodsName(view.name), partMain, []corev1.ServicePort{servicePort("internal", InternalPort)}),
		view.nodes(NodesName(dunlin), files.Name), view.disruptionBudget(view.name, partMain),
	}
	if view.spec.Keys.File != "" {
		objects = append(objects, view.secretOf(view.keysName(), keys.Secret))
	}
	if view.hasOwnNATSPassword() {
		objects = append(objects, view.secretOf(view.natsPasswordName(), view.natsPasswordValue()))
	}
	if view.spec.Host != "" {
		objects = append(objects, view.ingressTo(view.spec.AllHosts(), cmp.Or(view.spec.Path, "/"), view.spec.TLS, view.name, "http"))
	}
	if view.natsServers() > 0 {
		objects = append(objects, view.nats()...)
	}
	if view.spec.Backup != nil {
		objects = append(objects, storage.backups()...)
	}
	return sorted(objects), nil
}

// storageApp returns the App that represents the storage. Its backups save the folder of the volume to which the node writes backups of the
// storage, because the storage itself changes all the time. With NATS, they save the streams instead.
func (view *dunlinView) storageApp(dunlin *v1alpha1.Dunlin) *appView {
	spec := &v1alpha1.AppSpec{Image: view.spec.Image, PullSecret: view.spec.PullSecret, Backup: view.spec.Backup, Resources: view.resources()}
	if storage := view.spec.Storage; storage != nil {
		spec.Volumes = []v1alpha1.Volume{{Name: storageVolume, Path: storageFolder, Size: &storage.Size, StorageClass: storage.StorageClass}}
	}
	storage := &appView{owner: view.owner, values: view.keys, backup: dunlin.Status.Backup, uid: string(dunlin.UID), spec: spec}
	if view.natsServers() > 0 {
		storage.streams = view.streams()
	} else {
		storage.savedFolder = backupsFolder
	}
	return storage
}

// dunlinView is a Dunlin while it is rendered.
type dunlinView struct {
	owner
	spec     *v1alpha1.DunlinSpec
	drain    Drain
	keys     settings.Settings
	revision string
	// isStopped is true if the node has to be stopped, because its volume is being restored.
	isStopped bool
}

// Drain holds the durations of the shutdown of a node. They are derived from one number and add up to it.
type Drain struct {
	// PreStopSeconds is the time from the deletion of the pod to SIGTERM, in which proxies remove the pod from their endpoints.
	PreStopSeconds int64
	// DelaySeconds is how long the health check answers 503 while everything else continues: `shutdown.delay`.
	DelaySeconds int64
	// TimeoutSeconds is how long sessions are closed: `shutdown.timeout`.
	TimeoutSeconds int64
	// GraceSeconds is the time after which Kubernetes kills the process: the sum of the above and a margin.
	GraceSeconds int64
}

const (
	defaultDrainSeconds = 60
	graceMarginSeconds  = 5
)

// DrainOf divides spec.drainSeconds.
func DrainOf(spec *v1alpha1.DunlinSpec) Drain {
	total := int64(defaultDrainSeconds)
	if spec.DrainSeconds != nil {
		total = int64(*spec.DrainSeconds)
	}
	drain := Drain{PreStopSeconds: min(endpointSeconds, total/5), DelaySeconds: min(5, total/5)}
	drain.TimeoutSeconds = total - drain.PreStopSeconds - drain.DelaySeconds
	drain.GraceSeconds = total + graceMarginSeconds
	return drain
}

// nodeCount returns the minimum with autoscaling. The operator sets another number according to the load.
func (view *dunlinView) nodeCount() int32 {
	if scaling := view.spec.Autoscaling; scaling != nil {
		return scaling.Min
	}
	if view.spec.Nodes != nil {
		return *view.spec.Nodes
	}
	return 1
}

// natsServers returns the number of servers that Roost runs. It is 0 if there are none, or if they are external.
func (view *dunlinView) natsServers() int32 {
	if view.spec.NATS == nil || view.spec.NATS.Servers == nil {
		return 0
	}
	return *view.spec.NATS.Servers
}

// configMap returns a ConfigMap whose name contains the hash of its content. So a change restarts the pods, and the pods of the old revision
// keep the content that they started with.
func (owner owner) configMap(suffix, part string, data map[string]string) *corev1.ConfigMap {
	hash := settings.Settings{Plain: data}.Hash(owner.namespace + "/" + owner.name)
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: owner.meta(owner.name+"-"+suffix+"-"+hash[:10], part),
		Data:       data,
		Immutable:  new(true),
	}
}

// nodes returns a StatefulSet: the names of its pods stay the same, and it replaces one pod at a time, the next one only when the previous one
// is ready.
func (view *dunlinView) nodes(name, config string) runtime.Object {
	meta := view.meta(name, partMain)
	meta.Annotations = map[string]string{AnnotationRevision: view.revision}
	replicas := view.nodeCount()
	if view.isStopped {
		replicas = 0
	}
	var claims []corev1.PersistentVolumeClaim
	if storage := view.spec.Storage; storage != nil {
		claims = append(claims, view.claim(storageVolume, partMain, storage.Size, storage.StorageClass))
	}
	return &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: meta,
		Spec: appsv1.StatefulSetSpec{
			Replicas:                             &replicas,
			Selector:                             &metav1.LabelSelector{MatchLabels: view.selector(partMain)},
			ServiceName:                          PodsName(view.name),
			PodManagementPolicy:                  appsv1.ParallelPodManagement,
			RevisionHistoryLimit:                 new(int32(revisionsKept)),
			VolumeClaimTemplates:                 claims,
			PersistentVolumeClaimRetentionPolicy: retained(),
			UpdateStrategy:                       appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			// Sessions of the previous node must reconnect before the next node is replaced.
			MinReadySeconds: 10,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: view.labels(partMain), Annotations: view.mountedHash()},
				Spec:       view.nodePod(config),
			},
		},
	}
}

func (view *dunlinView) nodePod(config string) corev1.PodSpec {
	container := corev1.Container{
		Name:      "dunlin",
		Image:     view.spec.Image,
		Args:      []string{"serve", "--config", "/etc/dunlin/config.json"},
		Env:       view.environment(),
		Resources: resourcesOf(view.resources()),
		Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: publicPort, Protocol: corev1.ProtocolTCP},
			{Name: "internal", ContainerPort: InternalPort, Protocol: corev1.ProtocolTCP},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/dunlin", ReadOnly: true},
			{Name: "keys", MountPath: keysFolder, ReadOnly: true},
		},
		Lifecycle: sleepBeforeStop(view.drain.PreStopSeconds),
	}
	if view.spec.Storage != nil {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: storageVolume, MountPath: storageFolder})
	}
	setProbes(&container, httpProbe("/health", InternalPort), 60, false)
	// The health check answers 503 while the node drains, so a failing check must not restart the node.
	container.LivenessProbe = &corev1.Probe{ProbeHandler: tcpProbe(InternalPort), PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 6}
	volumes := []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: config},
		}}},
		{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: view.keysName()}}},
	}
	pod := podOf(defaultUser, container, volumes)
	pod.ServiceAccountName = view.name
	pod.ImagePullSecrets = pullSecrets(view.spec.PullSecret)
	pod.TerminationGracePeriodSeconds = &view.drain.GraceSeconds
	pod.TopologySpreadConstraints = spread(view.selector(partMain))
	pod.Tolerations = leavesLostNode(view.spec.Storage != nil)
	return pod
}

// resources of a node. The default limits of a node are higher than those of an app.
func (view *dunlinView) resources() v1alpha1.Resources {
	resources := view.spec.Resources
	if resources.Memory == nil {
		resources.Memory = new(resource.MustParse("1Gi"))
	}
	if resources.CPU == nil {
		resources.CPU = new(resource.MustParse("1"))
	}
	return resources
}

// environment contains the paths of the keys, never the keys. Only the NATS password is a value, because it is part of a URL.
func (view *dunlinView) environment() []corev1.EnvVar {
	environment := []corev1.EnvVar{{Name: "DUNLIN_HTTP_API_KEY_FILE", Value: keysFolder + "/" + keyAPI}}
	if !view.hasOwnTokenKeys() {
		environment = append(environment, corev1.EnvVar{Name: "DUNLIN_CLIENT_TOKEN_HMAC_SECRET_KEY_FILE", Value: keysFolder + "/" + keyTokenHMAC})
	}
	environment = append(environment, corev1.EnvVar{Name: "DUNLIN_NODE_NAME", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"},
	}})
	if view.spec.NATS != nil {
		environment = append(environment, view.natsPassword(), corev1.EnvVar{Name: "DUNLIN_BROKER_NATS_URL", Value: view.natsURL()})
	}
	return environment
}

func (view *dunlinView) natsPassword() corev1.EnvVar {
	return view.natsSecret("NATS_PASSWORD", keyNATSPassword)
}

func (view *dunlinView) natsSecret(variable, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: view.natsPasswordName()},
		Key:                  key,
		// The URL of external servers may need no password.
		Optional: new(view.natsServers() == 0),
	}}}
}

// natsURL contains the addresses of all servers. Kubernetes replaces `$(NATS_PASSWORD)`.
func (view *dunlinView) natsURL() string {
	if view.spec.NATS.URL != "" {
		return view.spec.NATS.URL
	}
	var addresses []string
	for _, server := range view.natsNames() {
		user := cmp.Or(view.natsUser(keyNATSPassword), natsUser)
		addresses = append(addresses, fmt.Sprintf("nats://%s:$(NATS_PASSWORD)@%s:%d", user, server, natsPort))
	}
	return strings.Join(addresses, ",")
}

// networkPolicy lets clients reach the public port. Only monitoring, the operator and the peers of the spec can reach the internal port.
func (view *dunlinView) networkPolicy() runtime.Object {
	var ingress []networkingv1.NetworkPolicyIngressRule
	if view.spec.Host != "" {
		ingress = append(ingress, allowFrom([]networkingv1.NetworkPolicyPeer{namespacePeer(view.cluster.IngressNamespace)}, []int32{publicPort}))
	}
	readers := []networkingv1.NetworkPolicyPeer{namespacePeer(view.cluster.MonitoringNamespace), namespacePeer(view.cluster.OperatorNamespace)}
	ingress = append(ingress, allowFrom(readers, []int32{InternalPort}))
	ingress = append(ingress, allowPeers(view.spec.Network.From, []int32{InternalPort})...)
	egress := append(egressDNS(), egressPeers(view.spec.Network.To)...)
	if view.natsServers() > 0 {
		peer := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: view.selector(partNATS)}}
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{peer}, Ports: policyPorts([]int32{natsPort})})
	}
	return view.policy(view.name, partMain, view.selector(partMain), ingress, egress)
}
