package render

import (
	"slices"
	"strings"
)

// The names of objects that are made of that of their App or Dunlin and an end without a hash. IsOwnName knows them, so that no App is deployed under one.

// PodsName returns the name of the Service with an address for each pod.
func PodsName(name string) string { return name + "-pods" }

// InternalName returns the name of the Service for the internal port of a Dunlin.
func InternalName(name string) string { return name + "-internal" }

// DrillName returns the name of the CronJob that verifies restores.
func DrillName(name string) string { return name + "-drill" }

// BackupName returns the name of the CronJob of an app's backup.
func BackupName(name string) string { return name + "-backup" }

// NATSName returns the name of the servers' StatefulSet and Service.
func NATSName(dunlin string) string { return dunlin + "-nats" }

// ProcessName returns the name of the Deployment of a process of an app.
func ProcessName(app, process string) string { return app + "-process-" + process }

// generationName returns the name of the StatefulSet of claims of a later generation.
func generationName(name, generation string) string { return name + "-gen" + generation }

// IsOwnName reports whether an object of an App or a Dunlin may have a name that an App could have as well: two objects of one kind would have the same name.
func IsOwnName(owner, name string) bool {
	generation, isOfClaims := strings.CutPrefix(name, generationName(owner, ""))
	isOfClaims = isOfClaims && generation != "" && strings.Trim(generation, "0123456789") == ""
	isFixed := slices.Contains([]string{PodsName(owner), InternalName(owner), BackupName(owner), DrillName(owner), NATSName(owner)}, name)
	return isFixed || isOfClaims || strings.HasPrefix(name, ProcessName(owner, ""))
}
