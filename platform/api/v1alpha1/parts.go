package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Word of a command.
//
// +kubebuilder:validation:MaxLength=4096
// +kubebuilder:validation:XValidation:rule="!self.contains('\\u0000')",message="has the character U+0000, which no argument can have; remove it"
type Word string

// Command is a program with its arguments. No shell reads it.
//
// +kubebuilder:validation:MaxItems=64
type Command []Word

// EnvValue is a value that is no secret.
//
// +kubebuilder:validation:MaxLength=4096
// +kubebuilder:validation:XValidation:rule="!self.contains('\\u0000')",message="has the character U+0000, which no environment variable can have; remove it"
type EnvValue string

// FileName of an .env file, relative to the manifest.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.endsWith('.env') && self.matches('^[.]?[-_a-zA-Z0-9]+([.][-_a-zA-Z0-9]+)*(/[.]?[-_a-zA-Z0-9]+([.][-_a-zA-Z0-9]+)*)*$')",messageExpression="'\"' + self + '\" is not an .env file below the manifest; write a relative path such as shop.env'"
type FileName string

// EnvFiles are .env files. A key may stand in only one of them.
//
// +kubebuilder:validation:MaxItems=16
// +kubebuilder:validation:XValidation:rule="self.all(name, self.exists_one(other, other == name))",message="duplicate file; remove one of them"
type EnvFiles []FileName

// Files that are mounted.
//
// +kubebuilder:validation:MaxItems=32
// +kubebuilder:validation:XValidation:rule="self.all(file, self.exists_one(other, other.path == file.path))",message="duplicate path; change one of them"
// +kubebuilder:validation:XValidation:rule="!self.exists(file, self.exists(other, other.path.startsWith(file.path + '/')))",message="a path is below the path of another file; change one of them"
type Files []MountedFile

// MountedFile is a file beside the manifest that pods mount read-only. With an encrypted file it is in a Secret, otherwise in a ConfigMap.
type MountedFile struct {
	// File relative to the manifest, such as files/shop.yml: as it is, or encrypted with `roost secrets encrypt`.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[.]?[-_a-zA-Z0-9]+([.][-_a-zA-Z0-9]+)*(/[.]?[-_a-zA-Z0-9]+([.][-_a-zA-Z0-9]+)*)*$')",messageExpression="'\"' + self + '\" is not a file below the manifest; write a relative path such as files/shop.yml'"
	// +kubebuilder:validation:XValidation:rule="!self.endsWith('.env')",messageExpression="'\"' + self + '\" is an .env file, whose values become environment variables; name it in spec.envFiles'"
	File string `json:"file"`
	// Path of the file in the containers of the app.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[-._@+a-zA-Z0-9]+)+$') && !self.matches('/[.][.]?(/|$)|^/[.][.]')",messageExpression="'\"' + self + '\" is not a path for a file; write an absolute path such as /etc/shop/shop.yml, with A-Z, a-z, 0-9, -, ., _, @ and +'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/(proc|sys|dev|tmp|backup)(/|$)|^/etc/(hosts|hostname|resolv[.]conf)(/|$)')",messageExpression="'\"' + self + '\" belongs to the container runtime, to /tmp or to /backup; write another path such as /etc/shop/shop.yml'"
	Path string `json:"path"`
	// Mode of the file, whose owner is root and whose group is that of the app's processes: 0440, 0444, 0550 or 0555. 0440 without it.
	// +optional
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self in ['0440', '0444', '0550', '0555']",messageExpression="'\"' + self + '\" is not a mode of a file that nobody can write; set \"0440\", \"0444\", \"0550\" or \"0555\"'"
	Mode string `json:"mode,omitempty"`
}

// PartName of something inside a spec, from which the name of an object is made.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]{0,14}[a-z0-9])?$')",messageExpression="'\"' + self + '\" is not a name; use at most 16 of a-z, 0-9 and -, and begin with a letter'"
type PartName string

// Seconds that a task may take.
//
// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 86400",message="is out of range; set 1 to 86400"
type Seconds int64

// Hosting is where clients reach an App or a Dunlin.
//
// +kubebuilder:validation:XValidation:rule="!has(self.hosts) || self.hosts.size() == 0 || has(self.host)",message="spec.hosts adds names to spec.host; set spec.host",fieldPath=".hosts"
// +kubebuilder:validation:XValidation:rule="!has(self.hosts) || !has(self.host) || !(self.host in self.hosts)",message="duplicate of spec.host; remove it",fieldPath=".hosts"
// +kubebuilder:validation:XValidation:rule="!has(self.path) || has(self.host)",message="a path belongs to a host; set spec.host",fieldPath=".path"
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || has(self.host)",message="TLS belongs to a host; set spec.host",fieldPath=".tls"
type Hosting struct {
	// Host is the public name at which clients connect.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.])+[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",messageExpression="'\"' + self + '\" is not the name of a host; write one such as shop.example.com, in lower case, without https:// and without a port'"
	// +kubebuilder:validation:XValidation:rule="!isIP(self)",messageExpression="'\"' + self + '\" is an address; write the name of a host such as shop.example.com'"
	Host string `json:"host,omitempty"`
	// Hosts are more public names, which serve the same as Host. The certificate of TLS covers all names.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(host, self.exists_one(other, other == host))",message="duplicate host; remove one of them"
	Hosts []HostName `json:"hosts,omitempty"`
	// Path of Host that is served, with everything below it. `/` without it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",messageExpression="'\"' + self + '\" does not begin with /; write /' + self"
	// +kubebuilder:validation:XValidation:rule="!self.matches('//|/[.][.]?(/|$)|%2[fF]|[[:cntrl:] ?#]')",messageExpression="'\"' + self + '\" is not a path that an Ingress can serve; write one such as /shop, without //, /./, /../, %2F, spaces, ? and #'"
	Path string `json:"path,omitempty"`
	// TLS of Host.
	// +optional
	TLS *TLS `json:"tls,omitempty"`
}

// AllHosts returns Host and Hosts.
func (hosting *Hosting) AllHosts() []string {
	if hosting.Host == "" {
		return nil
	}
	all := []string{hosting.Host}
	for _, host := range hosting.Hosts {
		all = append(all, string(host))
	}
	return all
}

// TLS of a host.
type TLS struct {
	// Secret of type kubernetes.io/tls in the same namespace. Without Secret and Issuer, the ingress controller's own certificate counts.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="'\"' + self + '\" is not the name of a Secret; use a-z, 0-9, - and .'"
	Secret string `json:"secret,omitempty"`
	// Issuer is a ClusterIssuer of cert-manager, which gets a certificate for the host, writes it to Secret, and renews it. Secret is
	// NAME-tls without a name of its own.
	// +optional
	Issuer IssuerName `json:"issuer,omitempty"`
	// Redirect sends clients of HTTP to HTTPS, if the operator has --https-entry-point. Without it, that is so. With false, the host
	// serves HTTP as well.
	// +optional
	Redirect *bool `json:"redirect,omitempty"`
}

// Redirects reports whether the host does not serve HTTP.
func (tls *TLS) Redirects() bool { return tls != nil && (tls.Redirect == nil || *tls.Redirect) }

// IssuerName of a ClusterIssuer.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="'\"' + self + '\" is not the name of a ClusterIssuer; write one such as letsencrypt'"
type IssuerName string

// Migration of an app's data.
//
// +kubebuilder:validation:XValidation:rule="self.command.size() > 0 && self.command[0].size() > 0",message="the command is empty; write the program and its arguments",fieldPath=".command"
type Migration struct {
	// Command of the app's image. No shell reads it.
	Command Command `json:"command"`
	// TimeoutSeconds after which the migration counts as failed. 600 without it.
	// +optional
	TimeoutSeconds *Seconds `json:"timeoutSeconds,omitempty"`
}

// CronTask runs a command of the app's image by the clock. A run that is still going is not started again.
//
// +kubebuilder:validation:XValidation:rule="self.command.size() > 0 && self.command[0].size() > 0",message="the command is empty; write the program and its arguments",fieldPath=".command"
type CronTask struct {
	// Name of the task, which its Jobs have as a part of theirs.
	Name PartName `json:"name"`
	// Schedule with the five fields of cron: minute, hour, day, month and weekday.
	Schedule Schedule `json:"schedule"`
	// TimeZone such as Europe/Berlin. UTC without it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$') && self.lowerAscii() != 'local'",messageExpression="'\"' + self + '\" is not a time zone; write one such as Europe/Berlin or UTC'"
	TimeZone string `json:"timeZone,omitempty"`
	// Command of the app's image. No shell reads it.
	Command Command `json:"command"`
	// TimeoutSeconds after which the run is ended. 3600 without it.
	// +optional
	TimeoutSeconds *Seconds `json:"timeoutSeconds,omitempty"`
}

// Schedule has the five fields of cron.
//
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule="self.matches('^[-0-9A-Za-z*/,?]+( [-0-9A-Za-z*/,?]+){4}$')",messageExpression="'\"' + self + '\" does not have the five fields minute, hour, day, month and weekday; write one such as \"30 4 * * *\"'"
// +kubebuilder:validation:XValidation:rule="!self.matches('^[-0-9A-Za-z*/,?]+( [-0-9A-Za-z*/,?]+){4}$') || self.matches('^([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]{0,2})?(,([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]{0,2})?)* ([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]{0,2})?(,([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]{0,2})?)* ([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]{0,2})?(,([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]{0,2})?)* ([*?]|(0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))(-(0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)))?)(/[1-9][0-9]{0,2})?(,([*?]|(0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))(-(0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)))?)(/[1-9][0-9]{0,2})?)* ([*?]|(0?[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat))(-(0?[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat)))?)(/[1-9][0-9]{0,2})?(,([*?]|(0?[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat))(-(0?[0-6]|(?i:sun|mon|tue|wed|thu|fri|sat)))?)(/[1-9][0-9]{0,2})?)*$')",messageExpression="'\"' + self + '\" is not a schedule of Kubernetes; write minute 0-59, hour 0-23, day 1-31, month 1-12 or JAN-DEC, and weekday 0-6 or SUN-SAT (Sunday is 0)'"
type Schedule string

// Run is a command of the app's image that runs once.
//
// +kubebuilder:validation:XValidation:rule="self.command.size() > 0 && self.command[0].size() > 0",message="the command is empty; write the program and its arguments",fieldPath=".command"
type Run struct {
	// Name of the run. A run with another name runs again.
	Name PartName `json:"name"`
	// Command of the app's image. No shell reads it.
	Command Command `json:"command"`
	// TimeoutSeconds after which the run is ended. 3600 without it.
	// +optional
	TimeoutSeconds *Seconds `json:"timeoutSeconds,omitempty"`
}

// Volume is a folder of the app: persistent with a size, otherwise as old as its pod.
//
// +kubebuilder:validation:XValidation:rule="[has(self.size), has(self.temporary)].filter(given, given).size() == 1",message="a volume is either persistent or temporary; set one of size and temporary"
// +kubebuilder:validation:XValidation:rule="!has(self.storageClass) || has(self.size)",message="only a volume with a size has a storage class; remove it, or set size",fieldPath=".storageClass"
type Volume struct {
	// Name of the volume.
	// +kubebuilder:validation:XValidation:rule="self != 'tmp'",message="is the name of the volume at /tmp, which each pod has; choose another name"
	Name PartName `json:"name"`
	// Path of the folder in the containers of the app.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[^/:]+)+$') && self != '/tmp' && !self.matches('/[.][.]?(/|$)')",messageExpression="'\"' + self + '\" is not a folder for a volume; write an absolute path such as /data, other than / and /tmp'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^/(proc|sys|dev/termination-log|etc/hosts|etc/hostname|etc/resolv[.]conf)(/|$)|^/dev$')",messageExpression="'\"' + self + '\" belongs to the container runtime; write another path such as /data'"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:cntrl:]]|[^/]{256}')",messageExpression="'\"' + self + '\" has a control character, or a part of more than 255 characters; write a path such as /data'"
	Path string `json:"path"`
	// Size of a persistent volume. Each pod has one of its own, and it stays when the app is deleted.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// StorageClass of a persistent volume. The cluster's default without it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="'\"' + self + '\" is not the name of a StorageClass; use a-z, 0-9, - and .'"
	StorageClass string `json:"storageClass,omitempty"`
	// Temporary is the size of a volume that ends with its pod.
	// +optional
	Temporary *resource.Quantity `json:"temporary,omitempty"`
}

// HostName is the public name of an app or a server.
//
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.])+[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",messageExpression="'\"' + self + '\" is not the name of a host; write one such as shop.example.com, in lower case, without https:// and without a port'"
// +kubebuilder:validation:XValidation:rule="!isIP(self)",messageExpression="'\"' + self + '\" is an address; write the name of a host such as shop.example.com'"
type HostName string

// MountedNames returns the names of the files that pods mount, each once.
func (spec *AppSpec) MountedNames() []string {
	var names []string
	for _, file := range spec.Files {
		if !slices.Contains(names, file.File) {
			names = append(names, file.File)
		}
	}
	return names
}

// Network lists what is allowed. All else is denied in both directions.
type Network struct {
	// From may reach the ports.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	From []Peer `json:"from,omitempty"`
	// To can be reached.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	To []Peer `json:"to,omitempty"`
}

// Peer is an app, a namespace or a range of addresses.
//
// +kubebuilder:validation:XValidation:rule="has(self.cidr) != (has(self.app) || has(self.__namespace__))",message="a peer is either a range of addresses or pods; set cidr, or app or namespace"
type Peer struct {
	// App or Dunlin by its name, in the same namespace or in Namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",messageExpression="'\"' + self + '\" is not the name of an App or a Dunlin; use a-z, 0-9 and -, and begin with a letter'"
	App string `json:"app,omitempty"`
	// Namespace of App, or all pods of it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",messageExpression="'\"' + self + '\" is not the name of a namespace; use a-z, 0-9 and -'"
	Namespace string `json:"namespace,omitempty"`
	// CIDR such as 10.0.0.0/8. 0.0.0.0/0 is everything outside the cluster and inside.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",messageExpression="'\"' + self + '\" is not a range of addresses; write one such as 10.0.0.0/8'"
	CIDR string `json:"cidr,omitempty"`
	// Ports that the peer may use. All without them; of an App that is reached, those that it listens on.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	Ports []PeerPort `json:"ports,omitempty"`
}

// PeerPort is a TCP port.
//
// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 65535",message="is out of range; set 1 to 65535"
type PeerPort int32

// Status of an App or a Dunlin.
type Status struct {
	// ObservedGeneration of the spec that the conditions are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Revision that is rolled out: a hash of the spec and the settings.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Files is the ConfigMap with the encrypted files that the conditions are about.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Files string `json:"files,omitempty"`
	// Conditions are Ready, Progressing, Degraded, SettingsDecrypted, BackupFresh and Expiring.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Backup is there if the spec has one.
	// +optional
	Backup *BackupStatus `json:"backup,omitempty"`
	// Processes are there if the spec has several.
	// +optional
	// +kubebuilder:validation:MaxItems=17
	// +listType=map
	// +listMapKey=name
	Processes []ProcessStatus `json:"processes,omitempty"`
	// Dunlin is there for a Dunlin.
	// +optional
	Dunlin *DunlinStatus `json:"dunlin,omitempty"`
	// Inventory of the objects that belong to the spec.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	Inventory []ObjectRef `json:"inventory,omitempty"`
}

// ProcessStatus is what Kubernetes says of the pods of a process.
type ProcessStatus struct {
	// Name of the process. `web` is the process of spec.command.
	Name string `json:"name"`
	// Desired is the number of pods that the process is to have.
	Desired int32 `json:"desired"`
	// Updated are the pods of the newest revision.
	Updated int32 `json:"updated"`
	// Ready are the pods that are ready.
	Ready int32 `json:"ready"`
}

// ObjectRef names an object in the namespace of its owner.
type ObjectRef struct {
	// APIVersion of the object.
	APIVersion string `json:"apiVersion"`
	// Kind of the object.
	Kind string `json:"kind"`
	// Name of the object.
	Name string `json:"name"`
	// UID of the object that was written, so that one made by others under the same name is never taken for it.
	// +optional
	UID string `json:"uid,omitempty"`
}
