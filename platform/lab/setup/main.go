// Setup writes the files for the lab's machine:
//
//	setup machine FOLDER                                     certificates and connections of a cluster
//	setup image NAME ROOT OUTPUT USER PROGRAM [VARIABLE...]  a container image from a folder, whose entry point is the program
package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dunlin-project/dunlin/platform/image"
)

// The machine has one address in addition to loopback. Services get addresses from another range.
const (
	nodeAddress       = "10.77.0.1"
	apiServiceAddress = "10.96.0.1"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "setup: %s\n", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "machine":
		if err := writeCertificates(arguments[1]); err != nil {
			return err
		}
		return writeUsers(arguments[1])
	case len(arguments) >= 6 && arguments[0] == "image":
		return writeImage(arguments[1:6], arguments[6:])
	}
	return errors.New("the arguments are `machine FOLDER` or `image NAME ROOT OUTPUT USER PROGRAM [VARIABLE...]`")
}

func writeImage(arguments, variables []string) error {
	file, err := os.Create(arguments[2])
	if err != nil {
		return err
	}
	_, err = image.WriteArchive(file, image.Source{
		Name: arguments[0], Root: arguments[1], Created: time.Unix(0, 0),
		Config: image.Config{User: arguments[3], Entrypoint: []string{arguments[4]}, Env: variables},
	})
	return errors.Join(err, file.Close())
}
