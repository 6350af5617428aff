package render

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

func portName(port v1alpha1.Port) string {
	if port.Name == "" {
		return "http"
	}
	return port.Name
}

// services returns one Service for clients, and a headless one that names the pods of a StatefulSet.
func (view *appView) services() []runtime.Object {
	var ports []corev1.ServicePort
	for _, port := range view.spec.Ports {
		ports = append(ports, servicePort(portName(port), port.Port))
	}
	var objects []runtime.Object
	if len(ports) > 0 {
		objects = append(objects, view.service(view.name, partMain, ports))
	}
	if view.hasPersistentVolume() {
		objects = append(objects, view.headless(PodsName(view.name), partMain, ports))
	}
	return objects
}

func servicePort(name string, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(name)}
}

func (owner owner) service(name, part string, ports []corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: owner.meta(name, part),
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: owner.selector(part), Ports: ports},
	}
}

func (owner owner) headless(name, part string, ports []corev1.ServicePort) *corev1.Service {
	service := owner.service(name, part, ports)
	service.Spec.ClusterIP = corev1.ClusterIPNone
	service.Spec.PublishNotReadyAddresses = true
	return service
}

func (view *appView) ingress() runtime.Object {
	path := view.spec.Path
	if path == "" {
		path = "/"
	}
	return view.ingressTo(view.spec.AllHosts(), path, view.spec.TLS, view.name, portName(view.spec.Ports[0]))
}

// annotationIssuer makes cert-manager get a certificate for the hosts of an Ingress: https://cert-manager.io/docs/usage/ingress/
const annotationIssuer = "cert-manager.io/cluster-issuer"

// Annotations of Traefik that keep a host from its entry point for HTTP. There, the router that sends clients to HTTPS takes what no Ingress serves: it has
// the lowest priority (platform/machines/roles/k3s/templates/traefik.yaml.j2).
const (
	annotationEntryPoints = "traefik.ingress.kubernetes.io/router.entrypoints"
	annotationTLS         = "traefik.ingress.kubernetes.io/router.tls"
)

func (owner owner) ingressTo(hosts []string, path string, tls *v1alpha1.TLS, service, port string) runtime.Object {
	prefix := networkingv1.PathTypePrefix
	backend := &networkingv1.IngressServiceBackend{Name: service, Port: networkingv1.ServiceBackendPort{Name: port}}
	paths := []networkingv1.HTTPIngressPath{{Path: path, PathType: &prefix, Backend: networkingv1.IngressBackend{Service: backend}}}
	ingress := &networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"},
		ObjectMeta: owner.meta(owner.name, partMain),
		Spec: networkingv1.IngressSpec{
			IngressClassName: &owner.cluster.IngressClass,
		},
	}
	for _, host := range hosts {
		value := networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths}}
		ingress.Spec.Rules = append(ingress.Spec.Rules, networkingv1.IngressRule{Host: host, IngressRuleValue: value})
	}
	if tls != nil {
		secret := tls.Secret
		annotations := map[string]string{}
		if tls.Issuer != "" {
			annotations[annotationIssuer] = string(tls.Issuer)
			secret = cmp.Or(secret, owner.name+"-tls")
		}
		if entryPoint := owner.cluster.HTTPSEntryPoint; entryPoint != "" && tls.Redirects() {
			annotations[annotationEntryPoints], annotations[annotationTLS] = entryPoint, "true"
		}
		if len(annotations) > 0 {
			ingress.Annotations = annotations
		}
		ingress.Spec.TLS = []networkingv1.IngressTLS{{Hosts: hosts, SecretName: secret}}
	}
	return ingress
}

// networkPolicy covers all parts of the app. It denies connections that it does not list.
func (view *appView) networkPolicy() runtime.Object {
	var ports []int32
	for _, port := range view.spec.Ports {
		ports = append(ports, port.Port)
	}
	var ingress []networkingv1.NetworkPolicyIngressRule
	if view.spec.Host != "" && len(ports) > 0 {
		ingress = append(ingress, allowFrom([]networkingv1.NetworkPolicyPeer{namespacePeer(view.cluster.IngressNamespace)}, ports[:1]))
	}
	if len(ports) > 0 {
		ingress = append(ingress, allowPeers(view.spec.Network.From, ports)...)
	}
	return view.appPolicy(ingress, append(egressDNS(), egressPeers(view.spec.Network.To)...))
}

func (owner owner) policy(name, part string, selector map[string]string, ingress []networkingv1.NetworkPolicyIngressRule, egress []networkingv1.NetworkPolicyEgressRule) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: owner.meta(name, part),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: selector},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     ingress,
			Egress:      egress,
		},
	}
}

func allowFrom(peers []networkingv1.NetworkPolicyPeer, ports []int32) networkingv1.NetworkPolicyIngressRule {
	return networkingv1.NetworkPolicyIngressRule{From: peers, Ports: policyPorts(ports)}
}

// allowPeers gives each peer its own ports, or all ports of the app.
func allowPeers(peers []v1alpha1.Peer, ports []int32) []networkingv1.NetworkPolicyIngressRule {
	var rules []networkingv1.NetworkPolicyIngressRule
	for _, peer := range peers {
		own := ports
		if len(peer.Ports) > 0 {
			own = numbers(peer.Ports)
		}
		rules = append(rules, allowFrom([]networkingv1.NetworkPolicyPeer{policyPeer(peer)}, own))
	}
	return rules
}

func egressPeers(peers []v1alpha1.Peer) []networkingv1.NetworkPolicyEgressRule {
	var rules []networkingv1.NetworkPolicyEgressRule
	for _, peer := range peers {
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{
			To: []networkingv1.NetworkPolicyPeer{policyPeer(peer)}, Ports: policyPorts(numbers(peer.Ports)),
		})
	}
	return rules
}

func egressDNS() []networkingv1.NetworkPolicyEgressRule {
	port := intstr.FromInt32(53)
	udp, tcp := corev1.ProtocolUDP, corev1.ProtocolTCP
	return []networkingv1.NetworkPolicyEgressRule{{
		To:    []networkingv1.NetworkPolicyPeer{namespacePeer("kube-system")},
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: &udp, Port: &port}, {Protocol: &tcp, Port: &port}},
	}}
}

func numbers(ports []v1alpha1.PeerPort) []int32 {
	var plain []int32
	for _, port := range ports {
		plain = append(plain, int32(port))
	}
	return plain
}

func policyPorts(ports []int32) []networkingv1.NetworkPolicyPort {
	var allowed []networkingv1.NetworkPolicyPort
	for _, port := range ports {
		allowed = append(allowed, networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(port))})
	}
	return allowed
}

func namespacePeer(namespace string) networkingv1.NetworkPolicyPeer {
	labels := map[string]string{corev1.LabelMetadataName: namespace}
	return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: labels}}
}

func policyPeer(peer v1alpha1.Peer) networkingv1.NetworkPolicyPeer {
	if peer.CIDR != "" {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: peer.CIDR}}
	}
	var selected networkingv1.NetworkPolicyPeer
	if peer.Namespace != "" {
		selected = namespacePeer(peer.Namespace)
	}
	if peer.App != "" {
		selected.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{LabelApp: peer.App}}
	}
	return selected
}
