package validate

import (
	"fmt"
	"net/netip"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

func (found *problems) tasks(spec *v1alpha1.AppSpec) {
	if migrate := spec.Migrate; migrate != nil {
		found.command("spec.migrate", migrate.Command, migrate.TimeoutSeconds)
	}
	var names []v1alpha1.PartName
	for index, task := range spec.Cron {
		path := fmt.Sprintf("spec.cron[%d]", index)
		names = append(names, task.Name)
		found.partName(path+".name", task.Name)
		found.schedule(path+".schedule", task.Schedule)
		found.timeZone(path+".timeZone", task.TimeZone)
		found.command(path, task.Command, task.TimeoutSeconds)
	}
	found.check(!hasTwice(names), "spec.cron", "duplicate name; rename one of them")
	names = nil
	for index, run := range spec.Runs {
		path := fmt.Sprintf("spec.runs[%d]", index)
		names = append(names, run.Name)
		found.partName(path+".name", run.Name)
		found.command(path, run.Command, run.TimeoutSeconds)
	}
	found.check(!hasTwice(names), "spec.runs", "duplicate name; rename one of them")
}

func (found *problems) command(path string, command v1alpha1.Command, timeout *v1alpha1.Seconds) {
	found.check(len(command) > 0 && command[0] != "", path+".command", "the command is empty; write the program and its arguments")
	found.words(path+".command", command)
	found.check(timeout == nil || *timeout >= 1 && *timeout <= 86400, path+".timeoutSeconds", "%d is out of range; set 1 to 86400", deref(timeout))
}

func (found *problems) partName(path string, name v1alpha1.PartName) {
	found.check(partPattern.MatchString(string(name)), path, "%q is not a name; use at most 16 of a-z, 0-9 and -, and begin with a letter", name)
}

func (found *problems) volumes(volumes []v1alpha1.Volume) {
	var names []v1alpha1.PartName
	var paths []string
	for index, volume := range volumes {
		path := fmt.Sprintf("spec.volumes[%d]", index)
		names, paths = append(names, volume.Name), append(paths, volume.Path)
		found.partName(path+".name", volume.Name)
		found.check(volume.Name != "tmp", path+".name", "%q is the name of the volume at /tmp, which each pod has; choose another name", volume.Name)
		found.folder(path+".path", volume.Path)
		found.size(path+".size", volume.Size)
		found.size(path+".temporary", volume.Temporary)
		found.check(count(volume.Size != nil, volume.Temporary != nil) == 1, path, "a volume is either persistent or temporary; set one of size and temporary")
		found.check(volume.StorageClass == "" || volume.Size != nil, path+".storageClass", "only a volume with a size has a storage class; remove it, or set size")
		found.objectName(path+".storageClass", "a StorageClass", volume.StorageClass)
	}
	found.check(!hasTwice(names), "spec.volumes", "duplicate name; rename one of them")
	found.check(!hasTwice(paths), "spec.volumes", "duplicate path; change one of them")
}

func (found *problems) network(network v1alpha1.Network) {
	found.peers("spec.network.from", network.From)
	found.peers("spec.network.to", network.To)
}

func (found *problems) peers(path string, peers []v1alpha1.Peer) {
	for index, peer := range peers {
		path := fmt.Sprintf("%s[%d]", path, index)
		found.check((peer.CIDR != "") != (peer.App != "" || peer.Namespace != ""), path,
			"a peer is either a range of addresses or pods; set cidr, or app or namespace")
		found.check(peer.App == "" || servicePattern.MatchString(peer.App), path+".app",
			"%q is not the name of an App or a Dunlin; use a-z, 0-9 and -, and begin with a letter", peer.App)
		found.namespace(path+".namespace", peer.Namespace)
		found.addressRange(path+".cidr", peer.CIDR)
		for position, port := range peer.Ports {
			found.check(port >= 1 && port <= 65535, fmt.Sprintf("%s.ports[%d]", path, position), "%d is out of range; set 1 to 65535", port)
		}
	}
}

func (found *problems) addressRange(path, text string) {
	if text == "" {
		return
	}
	prefix, err := netip.ParsePrefix(text)
	found.check(err == nil && prefix == prefix.Masked() && !prefix.Addr().Is4In6(), path, "%q is not a range of addresses; write one such as 10.0.0.0/8", text)
}
