package render

// The names of objects that are made of that of their App or Dunlin and a fixed end. OwnNames lists them, so that no App is deployed under one of them.

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

// OwnNames returns the names that objects of an App or a Dunlin may have beside its own one, but for those of processes.
func OwnNames(name string) []string {
	return []string{PodsName(name), InternalName(name), BackupName(name), DrillName(name), NATSName(name)}
}
