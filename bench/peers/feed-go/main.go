// Command feed-go is a peer to measure Dunlin's channels against: a broadcaster on gorilla/websocket as Go teams write it, before
// and after the optimizations that such teams report. Flags choose how a publication finds its subscribers, how it is
// marshalled, and how much a client's queue holds.
//
// It speaks as much of the client protocol (JSON) as a load generator needs: connect, subscribe, publish, and the publish method
// of the HTTP API. It reads the configuration that `dunlin bench` writes, as far as it needs it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/gorilla/websocket"
)

type config struct {
	HTTPServer struct {
		Address string `json:"address"`
		Port    int    `json:"port"`
	} `json:"http_server"`
	HTTPAPI struct {
		Key string `json:"key"`
	} `json:"http_api"`
}

func main() {
	path := flag.String("c", "config.json", "configuration file")
	walk := flag.String("walk", "index", "clients that a publication visits. index: subscribers of its channel; "+
		"map: all, in a map with a lock; list: all, in a list that is copied on each change")
	marshal := flag.String("marshal", "once", "once: a publication is marshalled once, and a client's number put in front; "+
		"each: marshalled for each client")
	slots := flag.Int("slots", 512, "messages that a client's queue holds")
	flag.Parse()
	server, err := newServer(*walk, *marshal, *slots)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*path, server); err != nil {
		log.Fatal(err)
	}
}

func newServer(walk, marshal string, slots int) (*server, error) {
	s := &server{marshalsForEach: marshal == "each", slots: slots}
	switch walk {
	case "index":
		s.clients = newIndex()
	case "map":
		s.clients = newMapOfAll()
	case "list":
		s.clients = newListOfAll()
	default:
		return nil, fmt.Errorf("-walk %s: give index, map or list", walk)
	}
	if marshal != "once" && marshal != "each" {
		return nil, fmt.Errorf("-marshal %s: give once or each", marshal)
	}
	if slots < 1 {
		return nil, errors.New("-slots: give at least 1")
	}
	return s, nil
}

func run(path string, s *server) error {
	var cfg config
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &cfg); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(cfg.HTTPServer.Address, strconv.Itoa(cfg.HTTPServer.Port)))
	if err != nil {
		return err
	}
	go func() { log.Println(http.Serve(listener, s.handler(cfg.HTTPAPI.Key))) }()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	return s.writeFigures(os.Getenv("PEER_STATS"))
}

// writeFigures writes the figures of the run into a file of the folder, if there is one.
func (s *server) writeFigures(folder string) error {
	if folder == "" {
		return nil
	}
	text, err := json.Marshal(s.figures.windows())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, fmt.Sprintf("feed-%d.json", os.Getpid())), text, 0o644)
}

// handler serves WebSocket connections, the API and the health check.
func (s *server) handler(apiKey string) http.Handler {
	upgrader := websocket.Upgrader{
		ReadBufferSize:  1024,
		WriteBufferSize: 1024,
		CheckOrigin:     func(*http.Request) bool { return true },
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/connection/websocket", func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		c := newClient(s, conn)
		s.figures.connections.Add(1)
		s.figures.clientsChanged()
		go c.write()
		c.read()
	})
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.figures.windows())
	})
	mux.HandleFunc("/api/publish", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-API-Key") != apiKey {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		var request struct {
			Channel string          `json:"channel"`
			Data    json.RawMessage `json:"data"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.publish(request.Channel, request.Data)
		_, _ = w.Write([]byte(`{"result":{}}`))
	})
	return mux
}
