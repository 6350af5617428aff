// The command roost: validates and renders manifests, and looks after encrypted .env files.
package main

import (
	"os"

	"github.com/dunlin-project/dunlin/platform/command"
)

func main() {
	os.Exit(command.Run(os.Args[1:], command.Surroundings{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Variable: os.Getenv,
	}))
}
