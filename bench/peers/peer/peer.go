// Package peer is what the Go servers of this folder have in common: the configuration that `dunlin bench` writes, the endpoints that its
// load generator needs, and what they report of themselves.
package peer

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/gorilla/websocket"
)

// requestBytesMax bounds the body of a publish request.
const requestBytesMax = 1 << 20

// Config is the part of the configuration that the servers need.
type Config struct {
	HTTPServer struct {
		Address string `json:"address"`
		Port    int    `json:"port"`
	} `json:"http_server"`
	HTTPAPI struct {
		Key string `json:"key"`
	} `json:"http_api"`
	Client struct {
		QueueMaxSize int `json:"queue_max_size"`
	} `json:"client"`
}

// ReadConfig reads the file.
func ReadConfig(path string) (Config, error) {
	var config Config
	text, err := os.ReadFile(path)
	if err != nil {
		return config, err
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return config, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

// Mux has the endpoint for connections and the health check.
func Mux(connect http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/connection/websocket", connect)
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	return mux
}

// Serve serves at the address of the configuration until a signal asks the program to end.
func (c Config) Serve(handler http.Handler) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(c.HTTPServer.Address, strconv.Itoa(c.HTTPServer.Port)))
	if err != nil {
		return err
	}
	go func() { log.Println(http.Serve(listener, handler)) }()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	return nil
}

// Upgrader accepts connections of any origin.
func Upgrader(writeBufferBytes int) *websocket.Upgrader {
	return &websocket.Upgrader{
		ReadBufferSize:  1024,
		WriteBufferSize: writeBufferBytes,
		CheckOrigin:     func(*http.Request) bool { return true },
	}
}

// PublishHandler is the one method of the HTTP API that the load generator uses.
func PublishHandler(key string, publish func(channel string, data json.RawMessage) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-API-Key") != key {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		var request struct {
			Channel string          `json:"channel"`
			Data    json.RawMessage `json:"data"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, requestBytesMax)).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := publish(request.Channel, request.Data); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(`{"result":{}}`))
	})
}
