// Package v1alpha1 has the kinds of Roost: App and Dunlin. platform/generate writes their CustomResourceDefinitions.
//
// The rules in the comments are checked by the API server. Package validate has the same sentences for use without one.
// +kubebuilder:object:generate=true
// +groupName=apps.roost.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group of all kinds, and prefix of the labels and annotations that Roost sets.
const Group = "apps.roost.dev"

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme makes the kinds known to a client.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &App{}, &AppList{}, &Dunlin{}, &DunlinList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
