// Shop is the app that the lab deploys. Its settings select how it fails, and the folder for its files.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// finishSeconds is how long open requests may take after SIGTERM.
const finishSeconds = 5

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 2 && arguments[0] == "exit" {
		code, err := strconv.Atoi(arguments[1])
		if err != nil {
			return err
		}
		os.Exit(code)
	}
	if len(arguments) > 0 && arguments[0] == "migrate" {
		if reason := os.Getenv("MIGRATION_FAILS"); reason != "" {
			return fmt.Errorf("migration: %s", reason)
		}
		fmt.Println("migrated")
		return nil
	}
	if reason := os.Getenv("FAILS"); reason != "" {
		return fmt.Errorf("shop: %s", reason)
	}
	return serve()
}

// keepFiles serves requests that write and read files of a volume.
func keepFiles(mux *http.ServeMux, folder string) {
	mux.HandleFunc("PUT /files/{name}", func(writer http.ResponseWriter, request *http.Request) {
		text, err := io.ReadAll(request.Body)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, filepath.Base(request.PathValue("name"))), text, 0o600)
		}
		if err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.Handle("GET /files/", http.StripPrefix("/files", http.FileServer(http.Dir(folder))))
}

// serve stops on SIGTERM after its open requests.
func serve() error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(writer http.ResponseWriter, _ *http.Request) {
		if os.Getenv("NEVER_READY") != "" {
			http.Error(writer, "not ready", http.StatusServiceUnavailable)
		}
	})
	name, _ := os.Hostname()
	mux.HandleFunc("/", func(writer http.ResponseWriter, request *http.Request) {
		_ = json.NewEncoder(writer).Encode(map[string]string{
			"pod": name, "version": os.Getenv("VERSION"), "token": os.Getenv("TOKEN"), "level": os.Getenv("LEVEL"),
			"client": request.Header.Get("X-Forwarded-For"),
		})
	})
	if folder := os.Getenv("FILES"); folder != "" {
		keepFiles(mux, folder)
	}
	server := &http.Server{Addr: ":8080", Handler: mux}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	fmt.Println("shop", os.Getenv("VERSION"), "listens on port 8080")
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	finish, cancel := context.WithTimeout(context.Background(), finishSeconds*time.Second)
	defer cancel()
	return server.Shutdown(finish)
}
