package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dunlin-project/dunlin/platform/image"
	"github.com/dunlin-project/dunlin/platform/sbom"
)

func newSBOM() *cobra.Command {
	var archive, output string
	var workspace sbom.Workspace
	command := &cobra.Command{
		Use:   "sbom --archive FILE --output FILE [--workspace FOLDER]",
		Short: "Write the bill of materials of an image, as CycloneDX JSON",
		Long: `Write the bill of materials of an image, as CycloneDX 1.6 JSON.

Modules of Go programs are read from the programs. Crates of Rust programs are listed by Cargo from the workspace that they
were compiled from, as dependencies of the packages of their names. Files that were copied from this machine's Debian packages stand for these packages. All other files are
listed with their checksums. Run it on the machine that has written the image.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			layout, err := image.ReadLayout(archive)
			if err != nil {
				return err
			}
			document, err := sbom.OfImage(layout, workspace)
			if err != nil {
				return err
			}
			text, err := document.JSON()
			if err != nil {
				return err
			}
			return os.WriteFile(output, text, 0o644)
		},
	}
	flags := command.Flags()
	flags.StringVar(&archive, "archive", "", "image that roost-image has written")
	flags.StringVar(&output, "output", "", "file to write")
	flags.StringVar(&workspace.Folder, "workspace", "", "folder with the Cargo.lock of the image's Rust programs")
	require(command, "archive", "output")
	return command
}

func newProgramSBOM() *cobra.Command {
	var name, version, output string
	var workspace sbom.Workspace
	command := &cobra.Command{
		Use:   "program-sbom --name NAME --version VERSION [--workspace FOLDER] --output FILE PROGRAM...",
		Short: "Write the bill of materials of programs, as CycloneDX JSON",
		Long: `Write the bill of materials of programs that are released outside of an image, as CycloneDX 1.6 JSON.

A Go program lists its modules itself. For Rust programs, Cargo lists the crates from the workspace that they were compiled from, as dependencies of the
packages of their names.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, programs []string) error {
			document, err := sbom.OfPrograms(name, version, programs, workspace)
			if err != nil {
				return err
			}
			text, err := document.JSON()
			if err != nil {
				return err
			}
			return os.WriteFile(output, text, 0o644)
		},
	}
	flags := command.Flags()
	flags.StringVar(&name, "name", "", "what the programs are released as")
	flags.StringVar(&version, "version", "", "version of the release")
	flags.StringVar(&output, "output", "", "file to write")
	flags.StringVar(&workspace.Folder, "workspace", "", "folder with the Cargo.lock of Rust programs")
	require(command, "name", "version", "output")
	return command
}

func newAttach() *cobra.Command {
	var reference, bill, output string
	command := &cobra.Command{
		Use:   "attach --image NAME@DIGEST --sbom FILE --output FILE",
		Short: "Write a bill of materials as an OCI archive, which a registry keeps beside the image",
		Long: `Write a bill of materials as an OCI archive, and print the tag under which a registry keeps it:

  skopeo copy --preserve-digests oci-archive:FILE docker://NAME:TAG
  cosign download sbom NAME@DIGEST`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			pinned, err := image.ParsePinned(reference)
			if err != nil {
				return fmt.Errorf("--image: %w", err)
			}
			text, err := os.ReadFile(bill)
			if err != nil {
				return err
			}
			blobs, entry, err := image.Attachment("application/vnd.cyclonedx+json", text, nil, pinned.TagFor("sbom"))
			if err != nil {
				return err
			}
			if err := writeFile(output, func(file io.Writer) error { return image.WriteLayout(file, blobs, entry, nil) }); err != nil {
				return err
			}
			fmt.Fprintln(command.OutOrStdout(), pinned.TagFor("sbom"))
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&reference, "image", "", "image, as REGISTRY/NAME@sha256:DIGEST")
	flags.StringVar(&bill, "sbom", "", "bill of materials in CycloneDX JSON")
	flags.StringVar(&output, "output", "", "file to write")
	require(command, "image", "sbom", "output")
	return command
}
