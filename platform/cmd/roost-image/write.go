package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dunlin-project/dunlin/platform/image"
)

func newWrite() *cobra.Command {
	var name, dockerfile, root, output string
	var labels []string
	command := &cobra.Command{
		Use:   "write --name NAME:TAG --dockerfile FILE --root FOLDER --output FILE",
		Short: "Write an image as a tar file, from its files and the last stage of a Dockerfile",
		Long: `Write an image as a tar file, and print the digest of its manifest.

The files of FOLDER become the image's only layer. User, entrypoint, ports and so on are read from the last stage of the
Dockerfile. The tar file is an OCI image layout and an archive for "docker load": "ctr images import", "skopeo copy
oci-archive:FILE docker://…", "podman load" and "docker load" read it.

The same files give the same bytes. The image's time is $SOURCE_DATE_EPOCH, in seconds since 1970, or 0.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := image.ReadDockerfile(dockerfile)
			if err != nil {
				return err
			}
			for _, label := range labels {
				key, value, isPair := strings.Cut(label, "=")
				if !isPair {
					return fmt.Errorf("--label: %q is not NAME=VALUE", label)
				}
				config.Labels[key] = value
			}
			created, err := imageTime()
			if err != nil {
				return err
			}
			var digest string
			err = writeFile(output, func(file io.Writer) (err error) {
				digest, err = image.WriteArchive(file, image.Source{Name: name, Root: root, Config: config, Created: created})
				return err
			})
			if err != nil {
				return err
			}
			fmt.Fprintln(command.OutOrStdout(), digest)
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&name, "name", "", "name of the image, with registry and tag")
	flags.StringVar(&dockerfile, "dockerfile", "", "Dockerfile whose last stage describes the image")
	flags.StringVar(&root, "root", "", "folder with the image's files")
	flags.StringVar(&output, "output", "", "file to write")
	flags.StringArrayVar(&labels, "label", nil, "NAME=VALUE of a further label; can be repeated")
	require(command, "name", "dockerfile", "root", "output")
	return command
}

func imageTime() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Unix(0, 0), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("$SOURCE_DATE_EPOCH is %q; set it to a whole number of seconds since 1970", text)
	}
	return time.Unix(seconds, 0), nil
}

// writeFile writes an archive, and removes it if the write fails.
func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return os.Rename(file.Name(), path)
}
