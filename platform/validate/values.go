package validate

import (
	"regexp"
	"slices"
	"strings"
	"time"
	// The zones of a machine without a database of its own.
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

// This file checks values that go unchanged into objects of Kubernetes, with the rules of the API server and the kubelet for these objects.

const (
	pathComponent = `[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*`
	// imageName is the grammar of https://pkg.go.dev/github.com/distribution/reference, by which the kubelet parses images.
	imageName = `^([a-z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?/)?` +
		pathComponent + `(/` + pathComponent + `)*`
	imageNameBytesMax = 255
	fileSegment       = `[.]?[-_a-zA-Z0-9]+([.][-_a-zA-Z0-9]+)*`
)

var (
	imagePattern     = regexp.MustCompile(imageName + `(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
	unfixedPattern   = regexp.MustCompile(imageName + `$`)
	ingressPattern   = regexp.MustCompile(`//|/[.][.]?(/|$)|%2[fF]|[[:cntrl:] ?#]`)
	spacePattern     = regexp.MustCompile(`[[:cntrl:] ]`)
	fileNamePattern  = regexp.MustCompile(`^` + fileSegment + `(/` + fileSegment + `)*$`)
	runtimePattern   = regexp.MustCompile(`^/(proc|sys|dev/termination-log|etc/hosts|etc/hostname|etc/resolv[.]conf)(/|$)|^/dev$`)
	filePattern      = regexp.MustCompile(`^(/[-._@+a-zA-Z0-9]+)+$`)
	keptPattern      = regexp.MustCompile(`^/(proc|sys|dev|tmp|backup)(/|$)|^/etc/(hosts|hostname|resolv[.]conf)(/|$)`)
	unmountedPattern = regexp.MustCompile(`[[:cntrl:]]|[^/]{256}`)
	fieldsPattern    = regexp.MustCompile(`^[-0-9A-Za-z*/,?]+( [-0-9A-Za-z*/,?]+){4}$`)
	// schedulePatterns are for an item of the list in each field.
	schedulePatterns = [5]*regexp.Regexp{
		scheduleItem(`[0-5]?[0-9]`),
		scheduleItem(`([01]?[0-9]|2[0-3])`),
		scheduleItem(`(0?[1-9]|[12][0-9]|3[01])`),
		scheduleItem(`(0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))`),
		scheduleItem(`(0?[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat))`),
	}
)

func scheduleItem(value string) *regexp.Regexp {
	return regexp.MustCompile(`^([*?]|` + value + `(-` + value + `)?)(/[1-9][0-9]{0,2})?$`)
}

// metadata checks what an API server checks for every object.
func (found *problems) metadata(meta *metav1.ObjectMeta) {
	found.name(meta.Name)
	found.namespace("metadata.namespace", meta.Namespace)
	for _, key := range sortedNames(meta.Labels) {
		found.qualifiedName("metadata.labels", key)
		found.check(len(validation.IsValidLabelValue(meta.Labels[key])) == 0, "metadata.labels["+key+"]",
			"%q is not the value of a label; use at most 63 of A-Z, a-z, 0-9, -, _ and ., and begin and end with a letter or a digit", meta.Labels[key])
	}
	bytes := 0
	for _, key := range sortedNames(meta.Annotations) {
		found.qualifiedName("metadata.annotations", strings.ToLower(key))
		bytes += len(key) + len(meta.Annotations[key])
	}
	found.check(bytes <= apivalidation.TotalAnnotationSizeLimitB, "metadata.annotations", "there are %d bytes, more than %d; shorten them", bytes, apivalidation.TotalAnnotationSizeLimitB)
}

func (found *problems) qualifiedName(at, key string) {
	found.check(len(validation.IsQualifiedName(key)) == 0, at+"["+key+"]", "%q is not a key; write one such as team or example.com/team", key)
}

// Cluster checks the names of the cluster, which go into the objects of every App and Dunlin. The prefix is before the name of each setting.
func Cluster(prefix string, cluster render.Cluster) []Problem {
	found := &problems{}
	found.objectName(prefix+"ingressClass", "an IngressClass", cluster.IngressClass)
	found.check(cluster.HTTPSEntryPoint == "" || entryPointPattern.MatchString(cluster.HTTPSEntryPoint), prefix+"httpsEntryPoint",
		"%q is not the name of an entry point of Traefik; use a-z, A-Z, 0-9, - and _", cluster.HTTPSEntryPoint)
	for _, namespace := range []struct{ setting, name string }{
		{"ingressNamespace", cluster.IngressNamespace}, {"monitoringNamespace", cluster.MonitoringNamespace}, {"operatorNamespace", cluster.OperatorNamespace},
	} {
		found.namespace(prefix+namespace.setting, namespace.name)
	}
	if cluster.BackupImage != "" {
		found.image(prefix+"backupImage", cluster.BackupImage)
	}
	return *found
}

// Namespaces checks a list of names.
func Namespaces(path string, names []string) []Problem {
	found := &problems{}
	for _, name := range names {
		found.check(name != "", path, "a name is empty; write names such as web,jobs")
		found.namespace(path, name)
	}
	return *found
}

func (found *problems) namespace(at, name string) {
	found.check(name == "" || len(validation.IsDNS1123Label(name)) == 0, at, "%q is not the name of a namespace; use a-z, 0-9 and -", name)
}

// schedule checks a schedule as the API server checks that of a CronJob. The parser alone takes some that nobody means, such as `,` for never.
func (found *problems) schedule(at string, schedule v1alpha1.Schedule) {
	text := string(schedule)
	if !fieldsPattern.MatchString(text) {
		found.addf(at, `%q does not have the five fields minute, hour, day, month and weekday; write one such as "30 4 * * *"`, text)
		return
	}
	for position, field := range strings.Split(text, " ") {
		for item := range strings.SplitSeq(field, ",") {
			if !schedulePatterns[position].MatchString(item) {
				found.addf(at, "%q is not a schedule of Kubernetes; write minute 0-59, hour 0-23, day 1-31, month 1-12 or JAN-DEC, and weekday 0-6 or SUN-SAT (Sunday is 0)", text)
				return
			}
		}
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		found.addf(at, "%q has a range that ends before it begins; write the smaller value first, or two ranges such as FRI-SAT,SUN", text)
		return
	}
	// The parser looks five years ahead. Those after this date have a leap year.
	found.check(!parsed.Next(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero(), at, "%q is a day that no year has; write another day or month", text)
}

func (found *problems) timeZone(at, zone string) {
	isName := zonePattern.MatchString(zone) && !strings.EqualFold(zone, "Local")
	if zone != "" && isName {
		_, err := time.LoadLocation(zone)
		isName = err == nil
	}
	found.check(zone == "" || isName, at, "%q is not a time zone; write one such as Europe/Berlin or UTC", zone)
}

func (found *problems) image(at, image string) {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		name = name[:colon]
	}
	switch {
	case !imagePattern.MatchString(image) || len(name) > imageNameBytesMax:
		found.addf(at, "%q is not the name of an image; write registry/name:tag or registry/name@sha256:digest", image)
	case unfixedPattern.MatchString(image):
		found.addf(at, "%q has no tag and no digest, which means the tag latest; name a version or a digest", image)
	case strings.HasSuffix(image, ":latest"):
		found.addf(at, "%q has the tag latest, which changes without a release; name a version or a digest", image)
	}
}

// objectName checks the optional name of an object that others have made, such as a Secret.
func (found *problems) objectName(at, kind, name string) {
	found.check(name == "" || len(validation.IsDNS1123Subdomain(name)) == 0, at, "%q is not the name of %s; use a-z, 0-9, - and .", name, kind)
}

// ingressPath checks the path of an Ingress.
func (found *problems) ingressPath(at, text string) {
	found.absolute(at, text)
	found.check(!strings.HasPrefix(text, "/") || !ingressPattern.MatchString(text), at,
		"%q is not a path that an Ingress can serve; write one such as /shop, without //, /./, /../, %%2F, spaces, ? and #", text)
}

// words checks arguments.
func (found *problems) words(at string, command v1alpha1.Command) {
	for index, word := range command {
		found.check(!strings.Contains(string(word), "\x00"), indexed(at, index), "has the character U+0000, which no argument can have; remove it")
	}
}

// program checks a program with its arguments. Both may be missing.
func (found *problems) program(at string, command v1alpha1.Command) {
	found.check(len(command) == 0 || command[0] != "", at, "the command is empty; write the program and its arguments")
	found.words(at, command)
}

// folder checks the path of a volume.
func (found *problems) folder(at, folder string) {
	isFolder := folderPattern.MatchString(folder) && folder != "/tmp" && !dotsPattern.MatchString(folder)
	switch {
	case !isFolder:
		found.addf(at, "%q is not a folder for a volume; write an absolute path such as /data, other than / and /tmp", folder)
	case runtimePattern.MatchString(folder):
		found.addf(at, "%q belongs to the container runtime; write another path such as /data", folder)
	case unmountedPattern.MatchString(folder):
		found.addf(at, "%q has a control character, or a part of more than 255 characters; write a path such as /data", folder)
	}
}

// besideDump checks that no volume covers the folder of a dump.
func (found *problems) besideDump(spec *v1alpha1.AppSpec) {
	if spec.Backup == nil || spec.Backup.Repository == nil || len(spec.Backup.Command) == 0 {
		return
	}
	covers := slices.ContainsFunc(spec.Volumes, func(volume v1alpha1.Volume) bool {
		return volume.Path == render.BackupFolder || strings.HasPrefix(volume.Path, render.BackupFolder+"/")
	})
	found.check(!covers, "spec.volumes", "a volume is at /backup, where spec.backup.command writes its dump; move the volume to another path")
}

// envFile checks the name of a file that is carried as a key of a ConfigMap.
func (found *problems) envFile(at string, name v1alpha1.FileName) {
	text := string(name)
	isBelow := strings.HasSuffix(text, ".env") && fileNamePattern.MatchString(text)
	found.check(isBelow, at, "%q is not an .env file below the manifest; write a relative path such as shop.env", text)
	found.check(!isBelow || len(render.FilesKey(text)) <= validation.DNS1123SubdomainMaxLength, at,
		"%q has more than 253 characters when each / counts as two; shorten it", text)
}

// files checks the files that pods mount.
func (found *problems) files(files v1alpha1.Files, volumes []v1alpha1.Volume) {
	var paths []string
	for index, file := range files {
		at := indexed("spec.files", index)
		found.mountedFile(at+".file", file.File)
		// Kubernetes refuses a path inside a volume that begins with two dots, and that of a file is its path without the slash.
		isPath := filePattern.MatchString(file.Path) && !dotsPattern.MatchString(file.Path) && !strings.HasPrefix(file.Path, "/..")
		found.check(isPath, at+".path", "%q is not a path for a file; write an absolute path such as /etc/shop/shop.yml, with A-Z, a-z, 0-9, -, ., _, @ and +", file.Path)
		found.check(!keptPattern.MatchString(file.Path), at+".path",
			"%q belongs to the container runtime, to /tmp or to /backup; write another path such as /etc/shop/shop.yml", file.Path)
		found.check(file.Mode == "" || slices.Contains(render.FileModes, file.Mode), at+".mode",
			`%q is not a mode of a file that nobody can write; set "0440", "0444", "0550" or "0555"`, file.Mode)
		paths = append(paths, file.Path)
	}
	found.check(!hasTwice(paths), "spec.files", "duplicate path; change one of them")
	isBelow := func(path, folder string) bool { return strings.HasPrefix(path, folder+"/") }
	for _, path := range paths {
		if slices.ContainsFunc(paths, func(other string) bool { return isBelow(other, path) }) {
			found.addf("spec.files", "a path is below the path of another file; change one of them")
			break
		}
	}
	isInVolume := func(path string) bool {
		return slices.ContainsFunc(volumes, func(volume v1alpha1.Volume) bool {
			return path == volume.Path || isBelow(path, volume.Path) || isBelow(volume.Path, path)
		})
	}
	found.check(!slices.ContainsFunc(paths, isInVolume), "spec.files", "the path of a file overlaps the path of a volume; write a path outside of spec.volumes")
}

func (found *problems) mountedFile(at, name string) {
	isBelow, isEnv := fileNamePattern.MatchString(name), strings.HasSuffix(name, ".env")
	found.check(isBelow, at, "%q is not a file below the manifest; write a relative path such as files/shop.yml", name)
	found.check(!isEnv, at, "%q is an .env file, whose values become environment variables; name it in spec.envFiles", name)
	found.check(!isBelow || isEnv || len(render.FilesKey(name)) <= validation.DNS1123SubdomainMaxLength, at,
		"%q has more than 253 characters when each / counts as two; shorten it", name)
}
