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
	"net/http"
	"os"

	"github.com/dunlin-project/dunlin/bench/peers/peer"
)

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
	config, err := peer.ReadConfig(path)
	if err != nil {
		return err
	}
	if err := config.Serve(s.handler(config.HTTPAPI.Key)); err != nil {
		return err
	}
	return peer.NoteFigures("feed", s.figures.windows())
}

// handler serves WebSocket connections, the API and the health check.
func (s *server) handler(apiKey string) http.Handler {
	upgrader := peer.Upgrader(1024)
	mux := peer.Mux(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		c := newClient(s, conn)
		s.figures.connections.Add(1)
		s.figures.clientsChanged()
		go c.write()
		c.read()
	}))
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.figures.windows())
	})
	mux.Handle("/api/publish", peer.PublishHandler(apiKey, func(channel string, data json.RawMessage) error {
		s.publish(channel, data)
		return nil
	}))
	return mux
}
