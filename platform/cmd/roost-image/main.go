// The command roost-image: writes container images without a container engine.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{
		Use: "roost-image", Short: "Write container images without a container engine",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newWrite())
	if err := root.Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "roost-image: %s\n", err)
		os.Exit(1)
	}
}
