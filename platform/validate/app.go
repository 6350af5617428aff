package validate

import (
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/dotenv"
	"github.com/dunlin-project/dunlin/platform/render"
)

var (
	hostPattern    = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.])+[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	servicePattern = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	portPattern    = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,13}[a-z0-9])?$`)
	partPattern    = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,14}[a-z0-9])?$`)
	envKeyPattern  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	zonePattern    = regexp.MustCompile(`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$`)
	folderPattern  = regexp.MustCompile(`^(/[^/:]+)+$`)
	// entryPointPattern has no comma: the annotation is a list.
	entryPointPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)
	dotsPattern       = regexp.MustCompile(`/[.][.]?(/|$)`)
)

// NameCharactersMax is the length of the longest name of an App or a Dunlin.
const NameCharactersMax = 30

// App checks the rules for an App whose structure is correct.
func App(app *v1alpha1.App) []Problem {
	found := &problems{}
	spec := &app.Spec
	found.metadata(&app.ObjectMeta)
	found.image("spec.image", spec.Image)
	found.objectName("spec.pullSecret", "a Secret", spec.PullSecret)
	found.program("spec.command", spec.Command)
	found.words("spec.args", spec.Args)
	found.check(spec.User == nil || *spec.User > 0, "spec.user", "%d is not the number of a user without privileges; set one such as 65532", deref(spec.User))
	found.check(deref(spec.User) <= math.MaxInt32, "spec.user", "%d is out of range; set 1 to 2147483647", deref(spec.User))
	found.ports(spec.Ports)
	found.check(spec.Host == "" || len(spec.Ports) > 0, "spec.host", "a host needs a port; add to spec.ports the port that serves it")
	found.hosting(&spec.Hosting)
	found.envFiles("spec.envFiles", spec.EnvFiles)
	found.files(spec.Files, spec.Volumes)
	found.env(spec.Env)
	found.resources("spec.resources", spec.Resources)
	found.scale(spec)
	found.health(spec)
	found.processes(spec.Processes)
	found.tasks(spec)
	found.volumes(spec.Volumes)
	found.besideDump(spec)
	found.backup(spec, "spec.envFiles")
	found.onNodeLoss(spec.OnNodeLoss, spec.Backup)
	found.check(!restores(spec.OnNodeLoss) || deref(spec.Replicas) <= 1, "spec.onNodeLoss",
		"only the volumes of the first pod are saved; spec.replicas must be at most 1, or set Wait")
	found.deletionPolicy(spec.DeletionPolicy)
	found.check(!spec.Update.Recreate || !hasSize(spec.Volumes) || deref(spec.Replicas) <= 1, "spec.update.recreate",
		"pods with a persistent volume are replaced one at a time, so two versions would run at once; spec.replicas must be at most 1, or remove recreate")
	found.inRange("spec.update.drainSeconds", spec.Update.DrainSeconds, 1, 3600)
	found.network(spec.Network)
	found.preview(app)
	for _, problem := range render.PodPatchProblems(spec.PodPatch) {
		found.add(problem.Path, problem.Message)
	}
	return *found
}

func (found *problems) name(name string) {
	found.check(len(name) <= NameCharactersMax, "metadata.name", "%q has more than 30 characters; use at most 30, because names of jobs are made from it", name)
	found.check(servicePattern.MatchString(name), "metadata.name", "%q is not the name of a Service; use a-z, 0-9 and -, and begin with a letter", name)
}

func (found *problems) ports(ports []v1alpha1.Port) {
	var taken []int32
	var names []string
	unnamed := false
	for index, port := range ports {
		path := fmt.Sprintf("spec.ports[%d]", index)
		found.check(port.Port >= 1024 && port.Port <= 65535, path+".port",
			"%d is out of range; set 1024 to 65535, because the app does not run as root. Clients still use port 443 of the host", port.Port)
		found.check(port.Name == "" || portPattern.MatchString(port.Name) && !strings.Contains(port.Name, "--"), path+".name",
			"%q is not the name of a port; use at most 15 of a-z, 0-9 and single -, and begin with a letter", port.Name)
		taken = append(taken, port.Port)
		if port.Name == "" {
			unnamed = true
		} else {
			names = append(names, port.Name)
		}
	}
	found.check(!hasTwice(taken), "spec.ports", "duplicate port; remove one of them")
	found.check(len(ports) < 2 || !unnamed, "spec.ports", "each of several ports needs a name; name each of them")
	found.check(!hasTwice(names), "spec.ports", "duplicate name; rename one of them")
}

func (found *problems) hostName(at, host string) {
	found.check(hostPattern.MatchString(host), at,
		"%q is not the name of a host; write one such as shop.example.com, in lower case, without https:// and without a port", host)
	found.check(net.ParseIP(host) == nil, at, "%q is an address; write the name of a host such as shop.example.com", host)
}

// hosting checks where clients reach an App or a Dunlin.
func (found *problems) hosting(hosting *v1alpha1.Hosting) {
	host, path, tls := hosting.Host, hosting.Path, hosting.TLS
	if host != "" {
		found.hostName("spec.host", host)
	}
	for index, host := range hosting.Hosts {
		found.hostName(indexed("spec.hosts", index), string(host))
	}
	found.check(!hasTwice(hosting.Hosts), "spec.hosts", "duplicate host; remove one of them")
	found.check(len(hosting.Hosts) == 0 || host != "", "spec.hosts", "spec.hosts adds names to spec.host; set spec.host")
	found.check(host == "" || !slices.Contains(hosting.Hosts, v1alpha1.HostName(host)), "spec.hosts", "duplicate of spec.host; remove it")
	found.ingressPath("spec.path", path)
	found.check(path == "" || host != "", "spec.path", "a path belongs to a host; set spec.host")
	found.check(tls == nil || host != "", "spec.tls", "TLS belongs to a host; set spec.host")
	if tls == nil {
		return
	}
	found.objectName("spec.tls.secret", "a Secret", tls.Secret)
	found.check(tls.Issuer == "" || len(validation.IsDNS1123Subdomain(string(tls.Issuer))) == 0, "spec.tls.issuer",
		"%q is not the name of a ClusterIssuer; write one such as letsencrypt", tls.Issuer)
}

func (found *problems) absolute(at, path string) {
	found.check(path == "" || strings.HasPrefix(path, "/"), at, "%q does not begin with /; write /%s", path, path)
}

func (found *problems) envFiles(path string, files v1alpha1.EnvFiles) {
	for index, name := range files {
		found.envFile(indexed(path, index), name)
	}
	found.check(!hasTwice(files), path, "duplicate file; remove one of them")
}

func (found *problems) env(env map[string]v1alpha1.EnvValue) {
	isKey, isShort, isSops, isCiphertext := true, true, false, false
	for key, value := range env {
		isKey = isKey && envKeyPattern.MatchString(key)
		isShort = isShort && len(key) <= dotenv.KeyBytesMax
		found.check(!strings.Contains(string(value), "\x00"), "spec.env["+key+"]", "has the character U+0000, which no environment variable can have; remove it")
		isSops = isSops || strings.HasPrefix(key, "sops_")
		isCiphertext = isCiphertext || strings.HasPrefix(string(value), "ENC[")
	}
	found.check(isKey, "spec.env", "a key is not the name of an environment variable; use A-Z, a-z, 0-9 and _, and begin with no digit")
	found.check(isShort, "spec.env", "a key has more than 253 characters; shorten it")
	found.check(!isSops, "spec.env", "a key begins with sops_, which is part of an encrypted file; name the file in spec.envFiles")
	found.check(!isCiphertext, "spec.env", "a value is encrypted, and the app could not read it; name the encrypted file in spec.envFiles")
}

var memoryMin, cpuMin, sizeMin = resource.MustParse("16Mi"), resource.MustParse("1m"), resource.MustParse("1Mi")

// size checks the size of a volume. A lower one is a mistake, such as 500m, which is half a byte.
func (found *problems) size(path string, size *resource.Quantity) {
	found.check(size == nil || size.Cmp(sizeMin) >= 0, path, "%q is too little for a volume; set at least 1Mi", size)
}

func (found *problems) resources(path string, resources v1alpha1.Resources) {
	if memory := resources.Memory; memory != nil {
		found.check(memory.Cmp(memoryMin) >= 0, path+".memory", "%q is too little for any process; set at least 16Mi", memory)
	}
	found.check(resources.CPU == nil || resources.CPU.Cmp(cpuMin) >= 0, path+".cpu", "%q is too little for any process; set at least 1m", resources.CPU)
	found.check(resources.CPULimit == nil || resources.CPULimit.Cmp(cpuMin) >= 0, path+".cpuLimit", "%q is too little for any process; set at least 1m", resources.CPULimit)
	if cpu, limit := resources.CPU, resources.CPULimit; cpu != nil && limit != nil {
		found.check(limit.Cmp(*cpu) >= 0, path+".cpuLimit", "%q is less than cpu, which is %q; raise it", limit, cpu)
	}
}

func (found *problems) scale(spec *v1alpha1.AppSpec) {
	found.inRange("spec.replicas", spec.Replicas, 0, 100)
	scaling := spec.Autoscaling
	if scaling == nil {
		return
	}
	found.check(spec.Replicas == nil, "spec.replicas", "replicas and autoscaling are mutually exclusive; remove one of them")
	found.check(!hasSize(spec.Volumes), "spec.autoscaling", "the app has a persistent volume, whose data does not follow new pods; set spec.replicas instead")
	found.check(scaling.Min >= 1 && scaling.Max <= 100 && scaling.Min <= scaling.Max, "spec.autoscaling",
		"the range from %d to %d is not valid; set min and max, with 1 <= min <= max <= 100", scaling.Min, scaling.Max)
	found.check(scaling.CPUPercent != nil || scaling.MemoryPercent != nil, "spec.autoscaling",
		"no target for the load is set; set cpuPercent, such as 70, or memoryPercent")
	found.inRange("spec.autoscaling.cpuPercent", scaling.CPUPercent, 1, 1000)
	found.inRange("spec.autoscaling.memoryPercent", scaling.MemoryPercent, 1, 100)
}

func (found *problems) health(spec *v1alpha1.AppSpec) {
	health, hasPorts := spec.Health, len(spec.Ports) > 0
	found.check(count(health.Path != "", health.TCP, len(health.Command) > 0, health.None != "") == 1, "spec.health",
		"exactly one check is needed; set one of path, tcp, command and none")
	found.check(health.Port == 0 || health.Path != "" || health.TCP, "spec.health.port", "only path and tcp use a port; remove it")
	found.absolute("spec.health.path", health.Path)
	found.check(!spacePattern.MatchString(health.Path), "spec.health.path", "%q has a space or a control character; write %%20 for a space", health.Path)
	found.processHealth("spec.health", &health.ProcessHealth)
	found.check(health.None == "" || !hasPorts, "spec.health.none",
		"an app with ports needs a health check, so that no request reaches a pod that is not ready; set spec.health.path")
	found.check(!(health.Path != "" || health.TCP) || hasPorts, "spec.health",
		"the check needs a port, and the app has none; add one to spec.ports, or set spec.health.command")
	isListed := health.Port == 0
	for _, port := range spec.Ports {
		isListed = isListed || port.Port == health.Port
	}
	found.check(isListed, "spec.health.port", "%d is not in spec.ports; add it there, or name a port that is there", health.Port)
}

func (found *problems) processHealth(path string, health *v1alpha1.ProcessHealth) {
	found.program(path+".command", health.Command)
	found.inRange(path+".startSeconds", health.StartSeconds, 1, 3600)
}

// processes checks the processes beside the one of spec.command.
func (found *problems) processes(processes []v1alpha1.Process) {
	var names []v1alpha1.PartName
	for index := range processes {
		process, path := &processes[index], indexed("spec.processes", index)
		names = append(names, process.Name)
		found.partName(path+".name", process.Name)
		found.check(process.Name != render.MainProcess, path+".name", "%q is the name of the process of spec.command; choose another name", process.Name)
		found.command(path, process.Command, nil)
		found.inRange(path+".replicas", process.Replicas, 0, 100)
		found.resources(path+".resources", process.Resources)
		found.check(count(len(process.Health.Command) > 0, process.Health.None != "") == 1, path+".health", "exactly one check is needed; set command or none")
		found.processHealth(path+".health", &process.Health)
	}
	found.check(!hasTwice(names), "spec.processes", "duplicate name; rename one of them")
}

// inRange checks an optional number.
func (found *problems) inRange(path string, value *int32, from, to int32) {
	found.check(value == nil || *value >= from && *value <= to, path, "%d is out of range; set %d to %d", deref(value), from, to)
}

// restores reports whether a policy restores the volumes of a lost node.
func restores(policy string) bool { return policy == v1alpha1.OnNodeLossRestore }

// onNodeLoss checks the rules that Apps and Dunlins share.
func (found *problems) onNodeLoss(policy string, backup *v1alpha1.Backup) {
	const path = "spec.onNodeLoss"
	isKnown := policy == "" || policy == v1alpha1.OnNodeLossWait || restores(policy)
	found.check(isKnown, path, "%q is not a policy; set Wait or RestoreFromBackup", policy)
	savesVolumes := backup != nil && backup.Repository != nil && len(backup.Command) == 0
	found.check(!restores(policy) || savesVolumes, path, "a restore needs a backup of the volumes; set spec.backup.repository and no spec.backup.command, or set Wait")
}

// preview checks what lets the operator delete an App at a time.
func (found *problems) preview(app *v1alpha1.App) {
	preview := app.Spec.Preview
	if preview == nil {
		return
	}
	found.check(strings.HasPrefix(app.Name, preview.Of+"-"), "spec.preview.of",
		"%q and - do not begin metadata.name, so this is no preview of it; use `roost deploy --as`", preview.Of)
	at, err := preview.ExpiresAt()
	found.check(err == nil && v1alpha1.ExpiryText(at) == preview.Expires, "spec.preview.expires",
		"%q is not a time; write one in UTC such as 2026-12-03T09:30:00Z", preview.Expires)
	found.check(!hasSize(app.Spec.Volumes), "spec.volumes",
		"a preview has no persistent volumes, because they are never deleted; set temporary instead of size")
	found.check(app.Spec.DeletionPolicy != v1alpha1.DeletionPolicyOrphan, "spec.deletionPolicy",
		"the objects of a preview are deleted with it; remove the policy")
}

func (found *problems) deletionPolicy(policy string) {
	isKnown := policy == "" || policy == v1alpha1.DeletionPolicyDelete || policy == v1alpha1.DeletionPolicyOrphan
	found.check(isKnown, "spec.deletionPolicy", "%q is not a policy; set Delete or Orphan", policy)
}

func indexed(path string, index int) string { return fmt.Sprintf("%s[%d]", path, index) }

func hasSize(volumes []v1alpha1.Volume) bool {
	for _, volume := range volumes {
		if volume.Size != nil {
			return true
		}
	}
	return false
}

func deref[Number int32 | int64 | v1alpha1.Seconds](value *Number) Number {
	if value == nil {
		return 0
	}
	return *value
}

func count(conditions ...bool) int {
	total := 0
	for _, holds := range conditions {
		if holds {
			total++
		}
	}
	return total
}

func hasTwice[Value ~string | ~int32](values []Value) bool {
	ordered := append([]Value(nil), values...)
	sort.Slice(ordered, func(i, j int) bool { return ordered[i] < ordered[j] })
	for index := 1; index < len(ordered); index++ {
		if ordered[index] == ordered[index-1] {
			return true
		}
	}
	return false
}
