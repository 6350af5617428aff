// Setup writes what the lab's machine needs to become a cluster: `setup MACHINE ROOTS IMAGES`. MACHINE is the machine's root folder,
// ROOTS has a folder for each image, and IMAGES describes the images.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The machine has one address beside loopback; services get theirs from another range.
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
	if len(arguments) != 3 {
		return errors.New("the arguments are MACHINE ROOTS IMAGES")
	}
	folder := filepath.Join(arguments[0], "opt/lab")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := writeCertificates(folder); err != nil {
		return err
	}
	if err := writeUsers(folder); err != nil {
		return err
	}
	return writeImages(filepath.Join(folder, "images.tar"), arguments[1], arguments[2])
}
