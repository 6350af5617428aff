// The program that Roost runs in pods to save volumes to a restic repository, to restore them, and to verify that they can be restored.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dunlin-project/dunlin/platform/backup"
	"github.com/dunlin-project/dunlin/platform/coredump"
)

const reportBytesMax = 4096

// withoutFolders lists the commands that need no --folder.
var withoutFolders = []string{"verify", "stage-dump", "load-dump", "save-streams", "verify-streams", "restore-streams"}

func main() {
	if err := coredump.Forbid(); err != nil {
		fmt.Fprintf(os.Stderr, "roost-backup: %s\n", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := root(os.Stdout, os.Stderr).ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "roost-backup: %s\n", err)
		var unchanged *backup.UnchangedError
		if errors.As(err, &unchanged) {
			os.Exit(unchanged.ExitCode())
		}
		os.Exit(1)
	}
}

// program has the flags that all commands share.
type program struct {
	repository   backup.Repository
	root, report string
	folders      []string
	streams      backup.Streams
	out          io.Writer
}

func root(out, log io.Writer) *cobra.Command {
	program := &program{out: out}
	program.repository.Log = log
	root := &cobra.Command{
		Use: "roost-backup", Short: "Saves volumes to a restic repository, and verifies that they can be restored",
		Long: `Saves volumes to a restic repository, restores them, and verifies that they can be restored.

Exit code 3 means that a restore failed, and that each folder is in one consistent state: that before the restore, or that of a snapshot. Exit
code 4 means the same for a restore that fails on each retry: --replace is needed, the repository is damaged or missing, its key is wrong, or it
has no such snapshot. Exit code 1 means any other failure.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&program.repository.URL, "repository", "", "URL or folder of the repository (default the file RESTIC_REPOSITORY of --secrets)")
	flags.StringVar(&program.repository.Path, "path", "", "path below the URL, such as web/shop")
	flags.StringVar(&program.repository.Secrets, "secrets", "/etc/roost/repository", "folder with RESTIC_PASSWORD and the credentials of the store, each in a file")
	flags.StringVar(&program.repository.Host, "host", "", "owner of the snapshots, such as web/shop")
	flags.StringVar(&program.repository.Owner, "owner", "", "ID of the owner, such as the UID of the App; snapshots of other owners under the same --host are never removed or verified")
	flags.StringSliceVar(&program.repository.Options, "option", nil, "option of restic, such as sftp.command=…")
	flags.DurationVar(&program.repository.LockWait, "lock-wait", 5*time.Minute, "how long to wait for a lock of another process")
	flags.StringVar(&program.root, "root", "/backup", "parent folder of all folders")
	flags.StringSliceVar(&program.folders, "folder", nil, "folder below --root, such as volumes/data; can be repeated")
	flags.StringVar(&program.report, "report", "", "file to write the report to (default none)")
	root.AddCommand(program.saveCommand(), program.verifyCommand(), program.restoreCommand(),
		program.stageStorageCommand(), program.finishStorageCommand(), program.stageDumpCommand(), program.loadDumpCommand(),
		program.saveStreamsCommand(), program.verifyStreamsCommand(), program.restoreStreamsCommand())
	return root
}

func (program *program) saveCommand() *cobra.Command {
	keep, isStorage, isDump := backup.Keep{}, false, false
	command := program.command("save", "Save the folders, and remove old snapshots", func(ctx context.Context) (backup.Report, error) {
		save := backup.Save
		switch {
		case isStorage:
			save = backup.SaveStorage
		case isDump:
			save = backup.SaveDump
		}
		return save(ctx, &program.repository, program.root, program.folders, keep)
	})
	command.Flags().BoolVar(&isStorage, "storage-backups", false, "the folders hold backups that a Dunlin makes of its storage; report the time of the newest one")
	command.Flags().BoolVar(&isDump, "dump", false, "the folder holds a dump for load-dump; fail unless it is one file that is not empty")
	addKeepFlags(command, &keep)
	return command
}

func addKeepFlags(command *cobra.Command, keep *backup.Keep) {
	command.Flags().IntVar(&keep.Daily, "keep-daily", 7, "number of days for which the newest snapshot is kept")
	command.Flags().IntVar(&keep.Weekly, "keep-weekly", 4, "number of weeks for which the newest snapshot is kept")
	command.Flags().IntVar(&keep.Monthly, "keep-monthly", 6, "number of months for which the newest snapshot is kept")
	command.Flags().StringVar(&keep.Snapshot, "keep-snapshot", "", "ID of another snapshot to keep, such as that of the last verified restore")
}

func (program *program) verifyCommand() *cobra.Command {
	into, percent, isStorage, isDump := "", 0, false, false
	command := program.command("verify", "Restore the newest snapshot into an empty folder, and compare", func(ctx context.Context) (backup.Report, error) {
		switch {
		case isStorage:
			return backup.VerifyStorage(ctx, &program.repository, into, program.folders, percent)
		case isDump:
			return backup.VerifyDump(ctx, &program.repository, program.root, percent)
		}
		return backup.Verify(ctx, &program.repository, into, percent)
	})
	command.Flags().BoolVar(&isStorage, "storage-backups", false, "the folders hold backups that a Dunlin has made of its storage; report the time of the newest one")
	command.Flags().BoolVar(&isDump, "dump", false, "restore into the empty folder "+backup.DumpFolder+" below --root, and leave the dump for load-dump")
	command.Flags().StringVar(&into, "into", "/scratch", "empty folder")
	command.Flags().IntVar(&percent, "read-percent", 5, "share of all data of the repository that is read and checked: 1 to 100")
	return command
}

func (program *program) restoreCommand() *cobra.Command {
	options := backup.RestoreOptions{}
	command := program.command("restore", "Restore the folders", func(ctx context.Context) (backup.Report, error) {
		return backup.Restore(ctx, &program.repository, program.root, program.folders, options)
	})
	addSnapshotFlags(command, &options)
	command.Flags().BoolVar(&options.OnlyIfEmpty, "only-if-empty", false, "do nothing if a folder is not empty")
	return command
}

func addSnapshotFlags(command *cobra.Command, options *backup.RestoreOptions) {
	command.Flags().StringVar(&options.Snapshot, "snapshot", "latest", "latest, or the prefix of a snapshot ID")
	command.Flags().BoolVar(&options.Replace, "replace", false, "replace the content of the folders")
}

func (program *program) stageStorageCommand() *cobra.Command {
	options := backup.RestoreOptions{}
	command := program.command("stage-storage", "Restore the backups into the volume of a Dunlin, beside its content", func(ctx context.Context) (backup.Report, error) {
		return backup.StageStorage(ctx, &program.repository, program.root, program.folders[0], options)
	})
	addSnapshotFlags(command, &options)
	return command
}

func (program *program) finishStorageCommand() *cobra.Command {
	server := ""
	command := program.command("finish-storage", "Create a storage from the backups that stage-storage has restored, and replace the content of the volume", func(ctx context.Context) (backup.Report, error) {
		return backup.FinishStorage(ctx, program.root, program.folders[0], server)
	})
	command.Flags().StringVar(&server, "server", "/usr/bin/dunlin", "program of the Dunlin")
	return command
}

func (program *program) stageDumpCommand() *cobra.Command {
	options := backup.RestoreOptions{}
	command := program.command("stage-dump", "Restore a dump into the empty folder "+backup.DumpFolder+" below --root", func(ctx context.Context) (backup.Report, error) {
		return backup.StageDump(ctx, &program.repository, program.root, options)
	})
	command.Flags().StringVar(&options.Snapshot, "snapshot", "latest", "latest, or the prefix of a snapshot ID")
	return command
}

func (program *program) loadDumpCommand() *cobra.Command {
	var words []string
	command := program.command("load-dump", "Load the dump of stage-dump, or of verify --dump, with a command that reads it from its standard input", func(ctx context.Context) (backup.Report, error) {
		return backup.LoadDump(ctx, program.root, words, program.repository.Log)
	})
	command.Use += " -- COMMAND [ARGUMENT...]"
	command.Args = cobra.MinimumNArgs(1)
	run := command.RunE
	command.RunE = func(command *cobra.Command, arguments []string) error {
		words = arguments
		return run(command, arguments)
	}
	return command
}

// addStreamsFlags adds no flag for the password, which is in an environment variable.
func (program *program) addStreamsFlags(command *cobra.Command) {
	program.streams.Password = os.Getenv(backup.KeyNATSPassword)
	command.Flags().StringVar(&program.streams.URLs, "nats", "", "addresses of the NATS servers, separated by commas; the variable "+backup.KeyNATSPassword+" has the password")
	command.Flags().StringVar(&program.streams.Prefix, "prefix", "dunlin", "prefix of the names of the streams")
	command.Flags().IntVar(&program.streams.Replicas, "replicas", 1, "number of servers that keep a restored stream")
}

func (program *program) saveStreamsCommand() *cobra.Command {
	keep := backup.Keep{}
	command := program.command("save-streams", "Save the streams of a Dunlin in NATS, through the empty folder "+backup.DumpFolder+" below --root", func(ctx context.Context) (backup.Report, error) {
		return backup.SaveStreams(ctx, &program.repository, program.streams, program.root, keep)
	})
	program.addStreamsFlags(command)
	addKeepFlags(command, &keep)
	return command
}

func (program *program) verifyStreamsCommand() *cobra.Command {
	percent := 0
	command := program.command("verify-streams", "Restore the newest streams into a NATS server that has no streams", func(ctx context.Context) (backup.Report, error) {
		return backup.VerifyStreams(ctx, &program.repository, program.streams, program.root, percent)
	})
	program.addStreamsFlags(command)
	command.Flags().IntVar(&percent, "read-percent", 5, "share of all data of the repository that is read and checked: 1 to 100")
	return command
}

func (program *program) restoreStreamsCommand() *cobra.Command {
	options := backup.RestoreOptions{}
	command := program.command("restore-streams", "Restore streams into NATS; no node of the Dunlin may run meanwhile", func(ctx context.Context) (backup.Report, error) {
		return backup.RestoreStreams(ctx, &program.repository, program.streams, program.root, options)
	})
	program.addStreamsFlags(command)
	addSnapshotFlags(command, &options)
	return command
}

// command runs a command and writes its report. If it fails, the error message becomes the termination message of the pod.
func (program *program) command(name, short string, run func(context.Context) (backup.Report, error)) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if program.repository.Host == "" {
				return errors.New("--host is missing")
			}
			if !slices.Contains(withoutFolders, name) && len(program.folders) == 0 {
				return errors.New("--folder is missing")
			}
			report, err := run(command.Context())
			text, encoding := json.Marshal(report)
			if err != nil {
				text = []byte(strings.ToValidUTF8(err.Error(), "?"))
			}
			if program.report != "" {
				encoding = errors.Join(encoding, os.WriteFile(program.report, text[:min(len(text), reportBytesMax)], 0o600))
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(program.out, "%s\n", text)
			return encoding
		},
	}
}
