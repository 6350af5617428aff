package validate

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
)

var (
	urlPattern    = regexp.MustCompile(`^(nats|tls)://[^/ ,]+(,(nats|tls)://[^/ ,]+)*$`)
	prefixPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// Dunlin checks the rules for a Dunlin whose structure is correct.
func Dunlin(dunlin *v1alpha1.Dunlin) []Problem {
	found := &problems{}
	spec := &dunlin.Spec
	found.metadata(&dunlin.ObjectMeta)
	found.image("spec.image", spec.Image)
	found.objectName("spec.pullSecret", "a Secret", spec.PullSecret)
	found.inRange("spec.nodes", spec.Nodes, 1, 32)
	found.check(deref(spec.Nodes) < 2 || spec.NATS != nil, "spec.nodes", "%d nodes share no channels without NATS; set spec.nats, or 1 node", deref(spec.Nodes))
	found.scaleNodes(spec)
	found.hosting(&spec.Hosting)
	found.keys(spec.Keys)
	found.inRange("spec.drainSeconds", spec.DrainSeconds, 10, 3600)
	found.inRange("spec.reconnectsPerSecond", spec.ReconnectsPerSecond, 1, 1000000)
	found.inRange("spec.returnSeconds", spec.ReturnSeconds, 0, 3600)
	for index, addresses := range spec.TrustedProxies {
		found.addressRange(fmt.Sprintf("spec.trustedProxies[%d]", index), string(addresses))
	}
	found.resources("spec.resources", spec.Resources)
	found.check(spec.Storage == nil || spec.NATS == nil, "spec.storage", "storage on disk is for a single node without NATS; remove spec.storage or spec.nats")
	if storage := spec.Storage; storage != nil {
		found.size("spec.storage.size", &storage.Size)
		found.objectName("spec.storage.storageClass", "a StorageClass", storage.StorageClass)
	}
	found.nats(spec.NATS)
	found.config(spec)
	found.storageBackup(spec)
	found.storageOnNodeLoss(spec)
	found.deletionPolicy(spec.DeletionPolicy)
	found.network(spec.Network)
	return *found
}

func (found *problems) scaleNodes(spec *v1alpha1.DunlinSpec) {
	scaling := spec.Autoscaling
	if scaling == nil {
		return
	}
	found.check(spec.Nodes == nil, "spec.nodes", "nodes and autoscaling are mutually exclusive; remove one of them")
	found.check(spec.NATS != nil, "spec.autoscaling", "nodes share no channels without NATS; set spec.nats, or remove the autoscaling")
	found.check(scaling.Min >= 1 && scaling.Max <= 32 && scaling.Min <= scaling.Max, "spec.autoscaling",
		"the range from %d to %d is not valid; set min and max, with 1 <= min <= max <= 32", scaling.Min, scaling.Max)
	found.check(scaling.SessionsPerNode != nil || scaling.BusyPercent != nil, "spec.autoscaling",
		"no target for the load is set; set sessionsPerNode, such as 20000, or busyPercent")
	found.inRange("spec.autoscaling.sessionsPerNode", scaling.SessionsPerNode, 1, 10000000)
	found.inRange("spec.autoscaling.busyPercent", scaling.BusyPercent, 1, 100)
	found.inRange("spec.autoscaling.stabilizationSeconds", scaling.StabilizationSeconds, 0, 86400)
}

func (found *problems) keys(keys v1alpha1.Keys) {
	found.check((keys.Secret != "") != (keys.File != ""), "spec.keys", "the keys are either in a Secret or in an encrypted file; set one of secret and file")
	found.objectName("spec.keys.secret", "a Secret", keys.Secret)
	if keys.File != "" {
		found.envFile("spec.keys.file", keys.File)
	}
}

func (found *problems) nats(nats *v1alpha1.NATS) {
	if nats == nil {
		return
	}
	found.check((nats.URL != "") != (nats.Servers != nil), "spec.nats", "NATS servers are either run here or elsewhere; set one of servers and url")
	if nats.Servers != nil {
		servers := *nats.Servers
		found.check(servers == 1 || servers == 3 || servers == 5, "spec.nats.servers", "%d is not a supported number of servers; set 1, 3 or 5", servers)
		found.check(nats.Image != "", "spec.nats.image", "the servers need an image; set one such as nats:2.15.2")
	}
	if nats.Image != "" {
		found.image("spec.nats.image", nats.Image)
	}
	found.check(nats.URL == "" || urlPattern.MatchString(nats.URL), "spec.nats.url", "an address does not begin with nats:// or tls://; write addresses such as nats://10.0.0.1:4222, with commas between them")
	found.check(nats.Prefix == "" || prefixPattern.MatchString(nats.Prefix), "spec.nats.prefix", "%q is not a prefix; use A-Z, a-z, 0-9, - and _", nats.Prefix)
	found.size("spec.nats.size", nats.Size)
	found.objectName("spec.nats.storageClass", "a StorageClass", nats.StorageClass)
	found.resources("spec.nats.resources", nats.Resources)
}

// storageBackup checks the rules for a backup of an App whose volume is the storage.
func (found *problems) storageBackup(spec *v1alpha1.DunlinSpec) {
	backup := spec.Backup
	if backup == nil {
		return
	}
	hasStreams := spec.NATS != nil && spec.NATS.Servers != nil
	found.check(spec.Storage != nil || hasStreams, "spec.backup", "there is neither a storage on disk nor a NATS server of its own to back up; set spec.storage or spec.nats.servers, or remove the backup")
	found.check(backup.Repository != nil && len(backup.Command) == 0, "spec.backup", "a Dunlin needs no command for its backup, and it is saved to a repository; set repository and no command")
	config, err := render.ConfigOf(spec)
	found.check(err != nil || !render.HasConfigKey(config, "storage.backup"), "spec.config.storage.backup", "Roost sets this key itself for spec.backup; remove one of them")
	if (spec.Storage != nil || hasStreams) && backup.Repository != nil {
		// The rules for a backup of an App require a volume of any size.
		volumes := []v1alpha1.Volume{{Name: "storage", Size: &resource.Quantity{}}}
		found.backup(&v1alpha1.AppSpec{Volumes: volumes, Backup: backup, EnvFiles: v1alpha1.EnvFiles{spec.Keys.File}}, "spec.keys.file")
	}
}

// storageOnNodeLoss checks the policy for the only node of a Dunlin with a volume.
func (found *problems) storageOnNodeLoss(spec *v1alpha1.DunlinSpec) {
	if restores(spec.OnNodeLoss) && spec.Storage == nil {
		found.add("spec.onNodeLoss", "only the volume of spec.storage is restored, and there is none; set Wait (roost replace-nats is for a NATS server that is lost)")
		return
	}
	found.onNodeLoss(spec.OnNodeLoss, spec.Backup)
}

// config rejects keys that Roost sets itself, and secrets, which must not be in a manifest.
func (found *problems) config(spec *v1alpha1.DunlinSpec) {
	config, err := render.ConfigOf(spec)
	if err != nil {
		found.add("spec.config", "the value is not a mapping; write keys of config.json")
		return
	}
	for _, key := range render.DerivedKeys {
		found.check(!render.HasConfigKey(config, key), "spec.config."+key, "Roost sets this key itself; remove it")
	}
	for _, key := range render.SecretKeys {
		found.check(!render.HasConfigKey(config, key), "spec.config."+key, "a manifest must not contain a secret; put it into the Secret that spec.keys names")
	}
}
