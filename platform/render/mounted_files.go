package render

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// FileModes are the modes of files that pods mount. Nobody can write these files, so no mode has a bit for writing.
var FileModes = []string{"0440", "0444", "0550", "0555"}

const (
	fileModeDefault = 0o440
	// The names of these volumes are longer than a volume of a spec can have.
	secretFilesVolume, plainFilesVolume = "mounted-secret-files", "mounted-plain-files"
)

// mountedFilesName contains the hash of the files, so a change of a file starts new pods, and pods of an old revision keep theirs.
func (view *appView) mountedFilesName() string {
	files := settings.Settings{Secret: view.values.SecretFiles, Plain: view.values.PlainFiles}
	return view.name + "-mounted-" + files.Hash(view.namespace + "/" + view.name)[:10]
}

// mountedFiles returns a Secret and a ConfigMap, each only if it has a file. Both are immutable.
func (view *appView) mountedFiles() []runtime.Object {
	var objects []runtime.Object
	if len(view.values.PlainFiles) > 0 {
		objects = append(objects, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: view.meta(view.mountedFilesName(), partMain),
			Data:       byFilesKey(view.values.PlainFiles),
			Immutable:  new(true),
		})
	}
	if len(view.values.SecretFiles) > 0 {
		objects = append(objects, view.secretOf(view.mountedFilesName(), byFilesKey(view.values.SecretFiles)))
	}
	return objects
}

func byFilesKey(files map[string]string) map[string]string {
	keyed := map[string]string{}
	for name, text := range files {
		keyed[FilesKey(name)] = text
	}
	return keyed
}

// fileVolumes returns the volumes of the files. Inside a volume, a file has the path that it has in the container.
func (view *appView) fileVolumes() []corev1.Volume {
	var plain, secret []corev1.KeyToPath
	for _, file := range view.spec.Files {
		item := corev1.KeyToPath{Key: FilesKey(file.File), Path: strings.TrimPrefix(file.Path, "/"), Mode: new(fileMode(file))}
		if view.isSecretFile(file) {
			secret = append(secret, item)
		} else {
			plain = append(plain, item)
		}
	}
	var volumes []corev1.Volume
	name := view.mountedFilesName()
	if len(plain) > 0 {
		source := &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: plain, DefaultMode: new(int32(fileModeDefault)),
		}
		volumes = append(volumes, corev1.Volume{Name: plainFilesVolume, VolumeSource: corev1.VolumeSource{ConfigMap: source}})
	}
	if len(secret) > 0 {
		source := &corev1.SecretVolumeSource{SecretName: name, Items: secret, DefaultMode: new(int32(fileModeDefault))}
		volumes = append(volumes, corev1.Volume{Name: secretFilesVolume, VolumeSource: corev1.VolumeSource{Secret: source}})
	}
	return volumes
}

// fileMounts mounts each file at its path. A mount of one file is not updated later, and the objects never change.
func (view *appView) fileMounts() []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	for _, file := range view.spec.Files {
		volume := plainFilesVolume
		if view.isSecretFile(file) {
			volume = secretFilesVolume
		}
		mounts = append(mounts, corev1.VolumeMount{Name: volume, MountPath: file.Path, SubPath: strings.TrimPrefix(file.Path, "/"), ReadOnly: true})
	}
	return mounts
}

func (view *appView) isSecretFile(file v1alpha1.MountedFile) bool {
	_, isSecret := view.values.SecretFiles[file.File]
	return isSecret
}

func fileMode(file v1alpha1.MountedFile) int32 {
	mode, err := strconv.ParseInt(file.Mode, 8, 32)
	if err != nil {
		return fileModeDefault
	}
	return int32(mode)
}
