package render

import corev1 "k8s.io/api/core/v1"

// HostOfVolume returns the host name that the affinity of a volume requires, or "" if it requires anything else.
func HostOfVolume(volume *corev1.PersistentVolume) string {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil || len(affinity.Required.NodeSelectorTerms) != 1 {
		return ""
	}
	for _, wanted := range affinity.Required.NodeSelectorTerms[0].MatchExpressions {
		if wanted.Key == corev1.LabelHostname && wanted.Operator == corev1.NodeSelectorOpIn && len(wanted.Values) == 1 {
			return wanted.Values[0]
		}
	}
	return ""
}
