// The command roost-image writes container images without a container engine, writes their bills of materials, signs images and verifies signatures.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{
		Use: "roost-image", Short: "Write, list, sign and verify container images, without a container engine",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newWrite(), newSBOM(), newProgramSBOM(), newAttach(), newSign(), newVerify())
	if err := root.Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "roost-image: %s\n", err)
		os.Exit(1)
	}
}

func require(command *cobra.Command, flags ...string) {
	for _, flag := range flags {
		if err := command.MarkFlagRequired(flag); err != nil {
			panic(err)
		}
	}
}
