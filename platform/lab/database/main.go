// Database is the entry point of the lab's image of PostgreSQL. If the folder $PGDATA contains no database, it creates one
// that $PGUSER owns. Then it executes the server.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	server = "/usr/bin/postgres"
	// remoteLine allows connections with the password from any address.
	remoteLine = "host all all all scram-sha-256\n"
)

func main() {
	if err := run(os.Getenv("PGDATA")); err != nil {
		fmt.Fprintf(os.Stderr, "database: %s\n", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		if err := create(folder, os.Getenv("PGUSER"), os.Getenv("PGPASSWORD")); err != nil {
			return err
		}
	}
	return syscall.Exec(server, []string{
		server, "-D", folder, "-c", "listen_addresses=*", "-c", "unix_socket_directories=", "-c", "shared_buffers=16MB",
	}, os.Environ())
}

// create creates the folder under a temporary name first, so that an interrupted initialization leaves no incomplete database.
func create(folder, user, password string) error {
	made, secret := folder+".new", filepath.Join(os.TempDir(), "password")
	if err := errors.Join(os.RemoveAll(made), os.WriteFile(secret, []byte(password), 0o600)); err != nil {
		return err
	}
	if err := call("", "/usr/bin/initdb", "--pgdata="+made, "--username="+user, "--pwfile="+secret, "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"); err != nil {
		return err
	}
	if err := call("CREATE DATABASE "+user+";\n", server, "--single", "-D", made, "postgres"); err != nil {
		return err
	}
	access, err := os.OpenFile(filepath.Join(made, "pg_hba.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = access.WriteString(remoteLine)
	return errors.Join(err, access.Close(), os.Remove(secret), os.Rename(made, folder))
}

func call(input, program string, arguments ...string) error {
	command := exec.Command(program, arguments...)
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}
