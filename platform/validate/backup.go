package validate

import (
	"regexp"
	"slices"
	"strings"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/backup"
)

var (
	repositoryPattern  = regexp.MustCompile(`^(rest:https?://|s3:)[^ ]+$`)
	urlPasswordPattern = regexp.MustCompile(`://[^/@]*:[^/@]*@`)
)

// backup checks the backup of an App, or of the App that represents the storage of a Dunlin. keysPath is the setting that names the files of
// spec.EnvFiles.
func (found *problems) backup(spec *v1alpha1.AppSpec, keysPath string) {
	backup := spec.Backup
	if backup == nil {
		return
	}
	found.check(hasSize(spec.Volumes), "spec.backup", "no volume has a size, so there is nothing to back up; add a volume, or remove the backup")
	found.schedule("spec.backup.schedule", backup.Schedule)
	isWhole := backup.Repository != nil || len(backup.Command) > 0
	found.check(isWhole, "spec.backup.command", "there is neither a repository nor a command; set repository")
	isPlain := backup.DrillSchedule == "" && backup.VerifiedSeconds == nil && backup.Keep == nil
	found.check(backup.Repository != nil || isPlain, "spec.backup.repository",
		"keep, drillSchedule and verifiedSeconds belong to a repository; set repository, or remove them")
	found.program("spec.backup.command", backup.Command)
	found.restoreCommand(backup)
	found.check(backup.TimeoutSeconds == nil || *backup.TimeoutSeconds >= 1 && *backup.TimeoutSeconds <= 86400, "spec.backup.timeoutSeconds",
		"%d is out of range; set 1 to 86400", deref(backup.TimeoutSeconds))
	found.check(backup.FreshSeconds == nil || *backup.FreshSeconds >= 60, "spec.backup.freshSeconds", "%d is out of range; set at least 60", deref(backup.FreshSeconds))
	found.check(backup.VerifiedSeconds == nil || *backup.VerifiedSeconds >= 60, "spec.backup.verifiedSeconds", "%d is out of range; set at least 60", deref(backup.VerifiedSeconds))
	if backup.DrillSchedule != "" {
		found.schedule("spec.backup.drillSchedule", backup.DrillSchedule)
	}
	if keep := backup.Keep; keep != nil {
		for _, number := range []*int32{keep.Daily, keep.Weekly, keep.Monthly} {
			found.check(deref(number) >= 0 && deref(number) <= 1000, "spec.backup.keep", "a number is out of range; set 0 to 1000")
		}
	}
	if backup.Repository != nil {
		found.repository(backup.Repository, spec.EnvFiles, keysPath)
	}
}

// restoreCommand must use the address that Roost sets, because a drill loads the dump into a copy of the app.
func (found *problems) restoreCommand(spec *v1alpha1.Backup) {
	if len(spec.RestoreCommand) == 0 {
		return
	}
	const path = "spec.backup.restoreCommand"
	found.check(spec.Repository != nil && len(spec.Command) > 0, path,
		"restoreCommand loads the dump that command has written to a repository; set repository and command, or remove it")
	found.program(path, spec.RestoreCommand)
	usesHost := slices.ContainsFunc(spec.RestoreCommand, func(word v1alpha1.Word) bool { return strings.Contains(string(word), backup.HostVariable) })
	found.check(usesHost, path,
		"does not use %[1]s, so a drill would load the dump into the app; add a word such as --host=$(%[1]s)", backup.HostVariable)
}

func (found *problems) repository(repository *v1alpha1.Repository, envFiles v1alpha1.EnvFiles, keysPath string) {
	const path = "spec.backup.repository"
	url := repository.URL
	found.check(url == "" || repository.Claim == "", path, "the repository is either at a URL or on a volume; set one of url and claim")
	found.check(url == "" || repositoryPattern.MatchString(url), path+".url",
		"%q is not the URL of a repository; write one that begins with rest:https:// or s3:", url)
	found.check(!urlPasswordPattern.MatchString(url), path+".url", "has a password in it; write the URL to the encrypted file, as RESTIC_REPOSITORY")
	found.objectName(path+".claim", "a PersistentVolumeClaim", repository.Claim)
	found.envFile(path+".file", repository.File)
	for _, name := range envFiles {
		found.check(strings.Trim(string(name), "/") != string(repository.File), path+".file",
			"is in %s as well, so the app would get the keys of its backups; write another file", keysPath)
	}
}
