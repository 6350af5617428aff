package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	volumesOfNode      = 12
	volumesSeconds     = 30
	defaultStoragePath = "/var/lib/rancher/k3s/storage"
)

func volumePath(folder string, number int) string { return fmt.Sprintf("%s/%d", folder, number) }

// makeFolders creates the folders of the volumes of this machine.
func makeFolders(folder string) error {
	for number := range volumesOfNode {
		if err := os.MkdirAll(volumePath(folder, number), 0o777); err != nil {
			return err
		}
	}
	return nil
}

// makeVolumes creates the volumes of a node in advance. k3s has a program that creates them on demand.
func (admission *admission) makeVolumes(asked joining) error {
	ctx, cancel := context.WithTimeout(context.Background(), volumesSeconds*time.Second)
	defer cancel()
	terms := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{strings.ToLower(asked.Name)},
	}}}}
	for number := range volumesOfNode {
		_, err := admission.cluster.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", asked.Name, number)},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: "local-path", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
				PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: volumePath(asked.StoragePath, number)}},
				NodeAffinity:           &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}},
			},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
