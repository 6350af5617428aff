package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// PatchBytesMax bounds a patch of pods, which each Deployment of the App contains.
const PatchBytesMax = 64 << 10

const patchPath = "spec.podPatch.template"

// patchFields are the fields that a patch may set: nil allows a value with all that is below it. What is not listed is refused, so a new field of
// Kubernetes is refused until somebody has thought about it.
type patchFields map[string]patchFields

var (
	patchMetadata = patchFields{"labels": nil, "annotations": nil}
	patchSpec     = patchFields{
		"affinity": nil, "nodeSelector": nil, "tolerations": nil, "topologySpreadConstraints": nil,
		"priorityClassName": nil, "preemptionPolicy": nil, "schedulerName": nil, "runtimeClassName": nil,
		"dnsConfig": nil, "dnsPolicy": nil, "hostAliases": nil,
		"containers": patchContainer, "initContainers": patchContainer,
		"volumes": {"name": nil, "emptyDir": nil, "downwardAPI": nil},
	}
	patchContainer = patchFields{
		"name": nil, "image": nil, "imagePullPolicy": nil, "command": nil, "args": nil, "workingDir": nil, "resources": nil, "resizePolicy": nil,
		"volumeMounts": nil, "livenessProbe": patchProbe, "readinessProbe": patchProbe, "startupProbe": patchProbe, "restartPolicy": nil,
		"lifecycle":              {"postStart": patchHandler, "preStop": patchHandler, "stopSignal": nil},
		"terminationMessagePath": nil, "terminationMessagePolicy": nil,
		"ports": {"name": nil, "containerPort": nil, "protocol": nil},
		// Keys of Secrets and ConfigMaps are not here: whoever may deploy could read those of others in the namespace.
		"env": {"name": nil, "value": nil, "valueFrom": {"fieldRef": nil, "resourceFieldRef": nil}},
	}
	patchHandler = patchFields{"exec": nil, "sleep": nil, "httpGet": patchGet, "tcpSocket": patchConnection}
	patchProbe   = patchFields{
		"exec": nil, "grpc": nil, "httpGet": patchGet, "tcpSocket": patchConnection, "initialDelaySeconds": nil, "timeoutSeconds": nil,
		"periodSeconds": nil, "successThreshold": nil, "failureThreshold": nil, "terminationGracePeriodSeconds": nil,
	}
	patchGet        = patchFields{"path": nil, "port": nil, "scheme": nil, "httpHeaders": nil}
	patchConnection = patchFields{"port": nil}
	// patchLists are lists of objects with names, which the patch merges by them.
	patchLists = []string{"containers", "initContainers", "volumes", "ports", "env"}
	// patchRelaxed are further fields of a relaxed patch, by the name of what has them.
	patchRelaxed = map[string][]string{
		"spec":       {"securityContext", "hostNetwork", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace"},
		"containers": {"securityContext"}, "initContainers": {"securityContext"}, "ports": {"hostPort", "hostIP"}, "volumes": {"hostPath"},
		// The kubelet would call another host from the network of the node, which no NetworkPolicy restricts.
		"httpGet": {"host"}, "tcpSocket": {"host"},
	}
	// patchOwned are fields of the app's own container that other fields of the spec set.
	patchOwned = map[string]string{"image": "spec.image", "command": "spec.command", "args": "spec.args", "ports": "spec.ports"}
)

// relaxedAnnotations begin the keys of annotations that change the security of containers.
var relaxedAnnotations = []string{"container.apparmor.security.beta.kubernetes.io/", "container.seccomp.security.alpha.kubernetes.io/", "seccomp.security.alpha.kubernetes.io/"}

// networkDomains are those of network plugins, with the domains below them. Their annotations give a pod further networks, addresses or rates, and their
// labels are what their policies select: both reach past spec.network.
var networkDomains = []string{"cni.cncf.io", "multus-cni.io", "projectcalico.org", "cilium.io", "ovn.org", "ovn.kubernetes.io", "antrea.io"}

// rateAnnotations limit the traffic of a pod, in plugins of any kind.
var rateAnnotations = []string{"kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"}

func isOfNetwork(domain string) bool {
	return slices.ContainsFunc(networkDomains, func(of string) bool { return isBelow(domain, of) })
}

// isBelow reports whether a domain is another one or below it.
func isBelow(domain, other string) bool {
	return domain == other || strings.HasSuffix(domain, "."+other)
}

// PatchVolumeBytesMax bounds each temporary volume of a patch that is not relaxed. Data of an app belongs to spec.volumes, where `roost status` and those
// who review a manifest see it.
const PatchVolumeBytesMax = 10 << 30

// PatchProblem is what a patch of pods must not have.
type PatchProblem struct{ Path, Message string }

// PodPatchProblems returns the problems of a patch of pods, sorted by their paths.
func PodPatchProblems(patch *v1alpha1.PodPatch) []PatchProblem {
	if patch == nil {
		return nil
	}
	checked := &patchCheck{isRelaxed: patch.Relaxed}
	if patch.Template == nil {
		return []PatchProblem{{patchPath, "the field is missing; set it"}}
	}
	if size := len(patch.Template.Raw); size > PatchBytesMax {
		return []PatchProblem{{patchPath, fmt.Sprintf("there are %d bytes, more than %d; shorten it", size, PatchBytesMax)}}
	}
	var template map[string]any
	if err := utiljson.Unmarshal(patch.Template.Raw, &template); err != nil || template == nil {
		return []PatchProblem{{patchPath, "the patch is not a mapping; write metadata or spec"}}
	}
	for _, name := range slices.Sorted(maps.Keys(template)) {
		switch path := patchPath + "." + name; name {
		case "metadata":
			checked.object(path, name, template[name], patchMetadata)
			checked.metadata(path, template[name])
		case "spec":
			checked.object(path, name, template[name], patchSpec)
		default:
			checked.refuse(path, "is no part of a pod template that a patch may set; write metadata or spec")
		}
	}
	if len(checked.problems) == 0 {
		pod, err := patched(corev1.PodTemplateSpec{}, patch)
		if err != nil {
			checked.refuse(patchPath, fmt.Sprintf("%s; correct the patch", err))
		}
		checked.volumes(pod.Spec.Volumes, volumesOf(template))
	}
	return checked.problems
}

type patchCheck struct {
	isRelaxed bool
	problems  []PatchProblem
}

func (check *patchCheck) refuse(path, message string) {
	check.problems = append(check.problems, PatchProblem{path, message})
}

// object checks an object whose fields are listed. Its name is that of the field, or of the list, that it is in.
func (check *patchCheck) object(path, name string, value any, fields patchFields) {
	object, isObject := value.(map[string]any)
	if !isObject {
		check.refuse(path, "is not a mapping; write one with fields that a patch may set")
		return
	}
	for _, field := range slices.Sorted(maps.Keys(object)) {
		at := path + "." + field
		below, isListed := fields[field]
		switch {
		case slices.Contains(patchRelaxed[name], field):
			if !check.isRelaxed {
				check.refuse(at, "is below the security settings of Roost; remove it, or set spec.podPatch.relaxed")
			}
		case name == "containers" && object["name"] == "app" && patchOwned[field] != "":
			check.refuse(at, "belongs to Roost; set "+patchOwned[field]+" instead")
		case !isListed:
			check.refuse(at, "is not a field that a patch may set, because it belongs to Roost or reaches beyond the App; remove it")
		case field == "priorityClassName" && isOfSystem(object[field]) && !check.isRelaxed:
			check.refuse(at, "is for pods of Kubernetes itself, which displace all others; use another class, or set spec.podPatch.relaxed")
		case field == "affinity" && !check.isRelaxed:
			check.affinity(at, object[field])
		// A patch removes an object with null.
		case below == nil || object[field] == nil && !slices.Contains(patchLists, field):
		case slices.Contains(patchLists, field):
			check.list(at, field, object[field], below)
		default:
			check.object(at, field, object[field], below)
		}
	}
}

func (check *patchCheck) list(path, name string, value any, fields patchFields) {
	list, isList := value.([]any)
	if !isList {
		check.refuse(path, "is not a list; write one of objects")
		return
	}
	for index, element := range list {
		object, _ := element.(map[string]any)
		// The patch would be merged into an element without a name, which no pod has.
		if text, _ := object["name"].(string); text == "" && object != nil && name != "ports" {
			check.refuse(fmt.Sprintf("%s[%d].name", path, index), "is missing; write the name of what the patch changes or adds")
			continue
		}
		check.object(fmt.Sprintf("%s[%d]", path, index), name, element, fields)
	}
}

// affinity refuses terms about pods of other namespaces: a required one would keep them away from the nodes of the App.
func (check *patchCheck) affinity(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(value)) {
			// JSON is decoded into fields whatever the case of their names.
			isField := func(name string) bool { return strings.EqualFold(field, name) }
			switch at := path + "." + field; {
			case isField("labelSelector"):
			case isField("namespaces"), isField("namespaceSelector"):
				check.refuse(at, "reaches beyond the namespace of the App; remove it, or set spec.podPatch.relaxed")
			default:
				check.affinity(at, value[field])
			}
		}
	case []any:
		for index, element := range value {
			check.affinity(fmt.Sprintf("%s[%d]", path, index), element)
		}
	}
}

// volumes refuses temporary volumes that could fill the disk of a node. They have a size, because the patch was applied. Names are those of the patch, in
// its order.
func (check *patchCheck) volumes(volumes []corev1.Volume, names []string) {
	for _, volume := range volumes {
		if !check.isRelaxed && volume.EmptyDir != nil && volume.EmptyDir.SizeLimit.CmpInt64(PatchVolumeBytesMax) > 0 {
			check.refuse(fmt.Sprintf("%s.spec.volumes[%d].emptyDir.sizeLimit", patchPath, slices.Index(names, volume.Name)),
				fmt.Sprintf("%s is more than 10Gi; use spec.volumes with temporary, or set spec.podPatch.relaxed", volume.EmptyDir.SizeLimit))
		}
	}
}

// volumesOf returns the names of the volumes of a patch.
func volumesOf(template map[string]any) []string {
	spec, _ := template["spec"].(map[string]any)
	volumes, _ := spec["volumes"].([]any)
	var names []string
	for _, element := range volumes {
		volume, _ := element.(map[string]any)
		name, _ := volume["name"].(string)
		names = append(names, name)
	}
	return names
}

// isOfSystem reports whether the name of a priority class is one of those that Kubernetes keeps for itself.
func isOfSystem(class any) bool {
	name, _ := class.(string)
	return strings.HasPrefix(name, "system-")
}

// metadata refuses labels by which Roost, Kubernetes and network plugins select pods, and annotations that mean something to Roost, to the security of a pod
// or to its network.
func (check *patchCheck) metadata(path string, value any) {
	metadata, _ := value.(map[string]any)
	for _, field := range []string{"annotations", "labels"} {
		keys, isObject := metadata[field].(map[string]any)
		if _, isThere := metadata[field]; isThere && !isObject {
			check.refuse(path+"."+field, "is not a mapping; write keys and values")
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			domain, _, _ := strings.Cut(key, "/")
			isOwn := isBelow(domain, "roost.dev") || strings.HasPrefix(key, "$") ||
				field == "labels" && (strings.HasSuffix(domain, "kubernetes.io") || strings.HasSuffix(domain, "k8s.io") || !strings.Contains(key, "/") && isOfKubernetes(key))
			at := fmt.Sprintf("%s.%s[%s]", path, field, key)
			switch {
			case isOwn:
				check.refuse(at, "belongs to Roost or Kubernetes; use another key")
			case !check.isRelaxed && (isOfNetwork(domain) || slices.Contains(rateAnnotations, key)):
				check.refuse(at, "changes the network of the pod, which spec.network restricts; remove it, or set spec.podPatch.relaxed")
			case field == "annotations" && !check.isRelaxed && slices.ContainsFunc(relaxedAnnotations, func(start string) bool { return strings.HasPrefix(key, start) }):
				check.refuse(at, "is below the security settings of Roost; remove it, or set spec.podPatch.relaxed")
			}
		}
	}
}

// isOfKubernetes reports whether controllers of Kubernetes set a label without a domain.
func isOfKubernetes(key string) bool {
	return slices.Contains([]string{"pod-template-hash", "controller-revision-hash", "job-name", "controller-uid"}, key)
}

// patched returns a pod template with the patch of the spec. Containers that the patch adds get the security settings that all containers have, and
// volumes a bound.
func patched(template corev1.PodTemplateSpec, patch *v1alpha1.PodPatch) (corev1.PodTemplateSpec, error) {
	if patch == nil {
		return template, nil
	}
	original, err := json.Marshal(template)
	if err != nil {
		return template, err
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch.Template.Raw, corev1.PodTemplateSpec{})
	if err != nil {
		return template, err
	}
	var result corev1.PodTemplateSpec
	decoder := json.NewDecoder(bytes.NewReader(merged))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&result); err != nil {
		return template, err
	}
	for _, containers := range [][]corev1.Container{result.Spec.Containers, result.Spec.InitContainers} {
		for index := range containers {
			complete(&containers[index])
		}
	}
	for index := range result.Spec.Volumes {
		bound(&result.Spec.Volumes[index])
	}
	return result, nil
}

// bound gives a temporary volume the size of /tmp where a patch has left it out, because one without a size can fill the disk of its node.
func bound(volume *corev1.Volume) {
	if volume.VolumeSource == (corev1.VolumeSource{}) {
		// What Kubernetes makes of it.
		volume.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	// Kubernetes reads a size of 0 as none.
	if volume.EmptyDir != nil && (volume.EmptyDir.SizeLimit == nil || volume.EmptyDir.SizeLimit.IsZero()) {
		volume.EmptyDir.SizeLimit = &tmpSize
	}
}

// complete gives a container what each container of Roost has, where a patch has left it out.
func complete(container *corev1.Container) {
	if container.SecurityContext == nil {
		container.SecurityContext = restricted()
	}
	if container.TerminationMessagePolicy == "" {
		container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}
	resources, defaults := &container.Resources, resourcesOf(v1alpha1.Resources{})
	if resources.Limits == nil {
		resources.Limits = corev1.ResourceList{}
	}
	if resources.Requests == nil {
		resources.Requests = corev1.ResourceList{}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, isSet := resources.Limits[name]; !isSet {
			resources.Limits[name] = defaults.Limits[name]
			if requested := resources.Requests[name]; requested.Cmp(resources.Limits[name]) > 0 {
				resources.Limits[name] = requested
			}
		}
		if _, isSet := resources.Requests[name]; !isSet {
			resources.Requests[name] = resources.Limits[name]
			if fallback := defaults.Requests[name]; name == corev1.ResourceCPU && fallback.Cmp(resources.Limits[name]) < 0 {
				resources.Requests[name] = fallback
			}
		}
	}
}
