package render

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/settings"
)

const revisionsKept = 5

// App renders a valid app. The caller must validate the spec first: App does not check it.
func App(app *v1alpha1.App, values settings.Settings, cluster Cluster) ([]runtime.Object, error) {
	revision, err := Revision(app.Spec, values, app.Namespace+"/"+app.Name)
	if err != nil {
		return nil, err
	}
	view := &appView{
		owner:    owner{kind: kindApp, name: app.Name, namespace: app.Namespace, cluster: cluster.withDefaults()},
		spec:     &app.Spec,
		values:   values,
		backup:   app.Status.Backup,
		uid:      string(app.UID),
		hash:     values.Hash(app.Namespace + "/" + app.Name),
		revision: revision,
	}
	objects := []runtime.Object{view.serviceAccount(app.Name, partMain), view.networkPolicy()}
	objects = append(objects, view.environment()...)
	objects = append(objects, view.mountedFiles()...)
	objects = append(objects, view.services()...)
	views := []*appView{view}
	for index := range app.Spec.Processes {
		views = append(views, view.ofProcess(&app.Spec.Processes[index]))
	}
	for _, process := range views {
		template, err := patched(process.template(), app.Spec.PodPatch)
		if err != nil {
			return nil, fmt.Errorf("spec.podPatch.template: %w", err)
		}
		objects = append(objects, process.workload(template), process.budget())
	}
	if view.spec.Autoscaling != nil {
		objects = append(objects, view.autoscaler())
	}
	objects = append(objects, view.jobs()...)
	if view.spec.Host != "" {
		objects = append(objects, view.ingress())
	}
	return sorted(objects), nil
}

// appView is an app while it is rendered.
type appView struct {
	owner
	spec     *v1alpha1.AppSpec
	values   settings.Settings
	hash     string
	revision string
	// backup is the state that an operation leads to.
	backup *v1alpha1.BackupStatus
	// savedFolder is the only folder of each volume that is saved. If it is empty, the whole volume is saved.
	savedFolder string
	// streams of a Dunlin that are saved instead of volumes.
	streams *streamsView
	// uid of the app. It is empty outside a cluster.
	uid string
}

// hasPersistentVolume decides between a Deployment and a StatefulSet.
func (view *appView) hasPersistentVolume() bool {
	for _, volume := range view.spec.Volumes {
		if volume.Size != nil {
			return true
		}
	}
	return false
}

// ofProcess returns the view of a process beside the app's own one: without ports, and without the persistent volumes, which belong to the pods of a
// StatefulSet.
func (view *appView) ofProcess(process *v1alpha1.Process) *appView {
	spec := *view.spec
	spec.Command, spec.Args, spec.Replicas, spec.Resources = process.Command, nil, process.Replicas, process.Resources
	spec.Health = v1alpha1.Health{ProcessHealth: process.Health}
	spec.Ports, spec.Autoscaling, spec.Volumes = nil, nil, nil
	for _, volume := range view.spec.Volumes {
		if volume.Temporary != nil {
			spec.Volumes = append(spec.Volumes, volume)
		}
	}
	own := *view
	own.spec, own.process = &spec, string(process.Name)
	return &own
}

func (view *appView) user() int64 {
	if view.spec.User != nil {
		return *view.spec.User
	}
	return defaultUser
}

// container runs the app's image with its settings, volumes and files. All parts of the app start from it.
func (view *appView) container() corev1.Container {
	container := corev1.Container{
		Name:      "app",
		Image:     view.spec.Image,
		Resources: resourcesOf(view.spec.Resources),
		EnvFrom:   view.envFrom(),
	}
	for _, volume := range view.spec.Volumes {
		mount := corev1.VolumeMount{Name: string(volume.Name), MountPath: volume.Path}
		container.VolumeMounts = append(container.VolumeMounts, mount)
	}
	container.VolumeMounts = append(container.VolumeMounts, view.fileMounts()...)
	return container
}

// temporaryVolumes returns the volumes that are deleted with the pod.
func (view *appView) temporaryVolumes() []corev1.Volume {
	var volumes []corev1.Volume
	for _, volume := range view.spec.Volumes {
		if volume.Temporary != nil {
			source := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: volume.Temporary}}
			volumes = append(volumes, corev1.Volume{Name: string(volume.Name), VolumeSource: source})
		}
	}
	return volumes
}

func (view *appView) template() corev1.PodTemplateSpec {
	container := view.container()
	container.Command, container.Args = words(view.spec.Command), words(view.spec.Args)
	for _, port := range view.spec.Ports {
		container.Ports = append(container.Ports, corev1.ContainerPort{Name: portName(port), ContainerPort: port.Port, Protocol: corev1.ProtocolTCP})
	}
	view.setHealth(&container)
	grace := int64(30)
	if view.spec.Update.DrainSeconds != nil {
		grace = int64(*view.spec.Update.DrainSeconds)
	}
	if len(view.spec.Ports) > 0 {
		container.Lifecycle = sleepBeforeStop(endpointSeconds)
		grace += endpointSeconds
	}
	pod := podOf(view.user(), container, append(view.temporaryVolumes(), view.fileVolumes()...))
	pod.ServiceAccountName = view.name
	pod.ImagePullSecrets = pullSecrets(view.spec.PullSecret)
	pod.TerminationGracePeriodSeconds = &grace
	pod.TopologySpreadConstraints = spread(view.selector(view.part()))
	pod.Tolerations = leavesLostNode(view.hasPersistentVolume())
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      view.labels(view.part()),
			Annotations: map[string]string{AnnotationSettings: view.hash},
		},
		Spec: pod,
	}
}

func (view *appView) startSeconds() int32 {
	if view.spec.Health.StartSeconds != nil {
		return *view.spec.Health.StartSeconds
	}
	return 60
}

func (view *appView) setHealth(container *corev1.Container) {
	health := view.spec.Health
	port := health.Port
	if port == 0 && len(view.spec.Ports) > 0 {
		port = view.spec.Ports[0].Port
	}
	var handler corev1.ProbeHandler
	switch {
	case health.Path != "":
		handler = httpProbe(health.Path, port)
	case health.TCP:
		handler = tcpProbe(port)
	case len(health.Command) > 0:
		handler = corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: words(health.Command)}}
	default:
		return
	}
	setProbes(container, handler, view.startSeconds(), health.Restart)
}

func (view *appView) workload(template corev1.PodTemplateSpec) runtime.Object {
	meta := view.meta(view.workloadName(), view.part())
	meta.Annotations = map[string]string{AnnotationRevision: view.revision}
	selector := &metav1.LabelSelector{MatchLabels: view.selector(view.part())}
	replicas := view.spec.Replicas
	if replicas == nil && view.spec.Autoscaling == nil {
		replicas = new(int32(1))
	}
	if view.isStopped() {
		replicas = new(int32(0))
	}
	if view.hasPersistentVolume() {
		setMeta := meta
		setMeta.Name = WorkloadName(view.name, view.backup)
		return &appsv1.StatefulSet{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
			ObjectMeta: setMeta,
			Spec: appsv1.StatefulSetSpec{
				Replicas: replicas, Selector: selector, ServiceName: PodsName(view.name), Template: template,
				// With ordered management, a revision whose first pod fails must be deleted by hand before a fixed revision can follow.
				PodManagementPolicy:                  appsv1.ParallelPodManagement,
				RevisionHistoryLimit:                 new(int32(revisionsKept)),
				VolumeClaimTemplates:                 view.claims(),
				PersistentVolumeClaimRetentionPolicy: retained(),
			},
		}
	}
	strategy := appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1)),
		},
	}
	if view.spec.Update.Recreate {
		strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: replicas, Selector: selector, Template: template, Strategy: strategy,
			RevisionHistoryLimit:    new(int32(revisionsKept)),
			ProgressDeadlineSeconds: new(view.startSeconds() + 60),
		},
	}
}

// retained keeps the data of pods that are deleted or scaled down.
func retained() *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	return &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	}
}

// claimName returns the claim of a volume of the first pod.
func (view *appView) claimName(volume string) string {
	generation := generationOf(view.backup)
	if operation := view.operation(); operation != nil && operation.Generation > 0 {
		generation = operation.Generation
	}
	return volume + "-" + setName(view.name, generation) + "-0"
}

func (view *appView) claims() []corev1.PersistentVolumeClaim {
	var claims []corev1.PersistentVolumeClaim
	for _, volume := range view.spec.Volumes {
		if volume.Size != nil {
			claims = append(claims, view.claim(string(volume.Name), partMain, *volume.Size, volume.StorageClass))
		}
	}
	return claims
}

func (owner owner) claim(name, part string, size resource.Quantity, class string) corev1.PersistentVolumeClaim {
	claim := corev1.PersistentVolumeClaim{
		// The claim template has no kind: the API server does not return it in Protobuf, so the live object would differ.
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: owner.selector(part)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		},
	}
	if class != "" {
		claim.Spec.StorageClassName = &class
	}
	return claim
}

func (view *appView) budget() runtime.Object {
	return view.disruptionBudget(view.workloadName(), view.part())
}

// disruptionBudget lets a drain of a node evict one pod at a time. It limits the unavailable pods instead of requiring available ones, so it
// never blocks the drain for an app of one pod.
func (owner owner) disruptionBudget(name, part string) runtime.Object {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: owner.meta(name, part),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable:             new(intstr.FromInt32(1)),
			Selector:                   &metav1.LabelSelector{MatchLabels: owner.selector(part)},
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

func (view *appView) autoscaler() runtime.Object {
	scaling := view.spec.Autoscaling
	var metrics []autoscalingv2.MetricSpec
	add := func(name corev1.ResourceName, percent *int32) {
		if percent != nil {
			target := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: percent}
			source := &autoscalingv2.ResourceMetricSource{Name: name, Target: target}
			metrics = append(metrics, autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: source})
		}
	}
	add(corev1.ResourceCPU, scaling.CPUPercent)
	add(corev1.ResourceMemory, scaling.MemoryPercent)
	return &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: view.meta(view.name, partMain),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: view.name},
			MinReplicas:    &scaling.Min,
			MaxReplicas:    scaling.Max,
			Metrics:        metrics,
		},
	}
}
