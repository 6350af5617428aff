package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dunlin-project/dunlin/platform/image"
	"github.com/dunlin-project/dunlin/platform/signature"
)

// The variable with the private key in PEM, for callers that do not want to write the key to a file.
const keyVariable = "ROOST_SIGNING_KEY"

func newSign() *cobra.Command {
	var reference, keyFile, bill, billDigest, output string
	command := &cobra.Command{
		Use:   "sign --image NAME@DIGEST [--key FILE] [--sbom FILE | --sbom-digest DIGEST] --output FILE",
		Short: "Sign an image's digest, in the form of cosign",
		Long: `Sign an image's digest with ECDSA on P-256, in the form of cosign, and print the tag under which a registry keeps the signature:

  skopeo copy --preserve-digests oci-archive:FILE docker://NAME:TAG

The key is in PEM, in a file or in $` + keyVariable + `:

  (umask 077 && openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out image.key)
  openssl pkey -in image.key -pubout -out image.pub

With --sbom, or --sbom-digest where the file is elsewhere, the checksum of the bill of materials is signed too.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			subject, err := image.ParsePinned(reference)
			if err != nil {
				return fmt.Errorf("--image: %w", err)
			}
			text := []byte(os.Getenv(keyVariable))
			if keyFile != "" {
				if text, err = os.ReadFile(keyFile); err != nil {
					return err
				}
			}
			if len(text) == 0 {
				return errors.New("there is no key; give --key FILE, or the key's text in $" + keyVariable)
			}
			key, err := signature.ParsePrivateKey(text)
			if err != nil {
				return err
			}
			optional, err := billOptional(bill)
			if err != nil {
				return err
			}
			if billDigest != "" {
				optional = map[string]string{"sbom": billDigest}
			}
			if err := writeFile(output, func(file io.Writer) error { return signature.Sign(file, key, subject, optional) }); err != nil {
				return err
			}
			fmt.Fprintln(command.OutOrStdout(), subject.TagFor("sig"))
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&reference, "image", "", "image, as REGISTRY/NAME@sha256:DIGEST")
	flags.StringVar(&keyFile, "key", "", "file with the private key; otherwise it is read from $"+keyVariable)
	flags.StringVar(&bill, "sbom", "", "bill of materials to sign with it")
	flags.StringVar(&billDigest, "sbom-digest", "", "checksum of the bill of materials, as sha256:DIGEST; empty: no bill of materials is signed")
	flags.StringVar(&output, "output", "", "file to write")
	require(command, "image", "output")
	command.MarkFlagsMutuallyExclusive("sbom", "sbom-digest")
	return command
}

// billOptional returns the optional value of a signature for a bill of materials.
func billOptional(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return map[string]string{"sbom": "sha256:" + hex.EncodeToString(sum[:])}, nil
}

func newVerify() *cobra.Command {
	var reference, keyFile, bill, file string
	command := &cobra.Command{
		Use:   "verify --image NAME@DIGEST --key FILE --signature FILE [--sbom FILE]",
		Short: "Verify a signature of an image's digest",
		Long: `Verify that a signature of an image's digest was made with a key. The signature is an OCI archive:

  skopeo copy docker://NAME:sha256-DIGEST.sig oci-archive:FILE

With --sbom, the bill of materials must be the one that was signed with the image.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			subject, err := image.ParsePinned(reference)
			if err != nil {
				return fmt.Errorf("--image: %w", err)
			}
			text, err := os.ReadFile(keyFile)
			if err != nil {
				return err
			}
			key, err := signature.ParsePublicKey(text)
			if err != nil {
				return fmt.Errorf("%s: %w", keyFile, err)
			}
			layout, err := image.ReadLayout(file)
			if err != nil {
				return err
			}
			optional, err := signature.Verify(layout, key, subject)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			wanted, err := billOptional(bill)
			if err != nil {
				return err
			}
			if wanted != nil && wanted["sbom"] != optional["sbom"] {
				return fmt.Errorf("%s has the checksum %s, and the signature says %q; get the bill of materials that was signed", bill, wanted["sbom"], optional["sbom"])
			}
			fmt.Fprintf(command.OutOrStdout(), "%s is signed with %s\n", reference, keyFile)
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&reference, "image", "", "image, as REGISTRY/NAME@sha256:DIGEST")
	flags.StringVar(&keyFile, "key", "", "file with the public key")
	flags.StringVar(&file, "signature", "", "OCI archive with the signature")
	flags.StringVar(&bill, "sbom", "", "bill of materials that must be the signed one")
	require(command, "image", "key", "signature")
	return command
}
