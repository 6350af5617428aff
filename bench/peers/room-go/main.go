// Command room-go is a peer to measure Dunlin's rooms against: one room that everybody sees all of, as an experienced Go team
// would write it. Each tick it builds and marshals a snapshot once, into a pooled, counted frame; each session has a slot
// for the newest frame and a goroutine that writes it. With -mode naive it is what such a team starts with: a snapshot is built
// and marshalled for every session, and queued.
//
// It speaks Snapshot and Input of schema/room.proto as bare binary messages. It reads the configuration that
// `dunlin bench` writes, as far as it needs it.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"os"

	"github.com/dunlin-project/dunlin/bench/peers/peer"
)

func main() {
	path := flag.String("c", "config.json", "configuration file")
	mode := flag.String("mode", "shared", "shared: marshal once a tick, newest frame wins; naive: marshal for each session, queue")
	objects := flag.Int("objects", 100, "objects in the world")
	rate := flag.Int("rate", 60, "ticks in a second")
	flag.Parse()
	if *objects < 1 || *rate < 1 || (*mode != "shared" && *mode != "naive") {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*path, *mode == "naive", *objects, *rate); err != nil {
		log.Fatal(err)
	}
}

func run(path string, naive bool, objects, rate int) error {
	config, err := peer.ReadConfig(path)
	if err != nil {
		return err
	}
	r := &room{world: newWorld(objects, 1), ticksPerSecond: uint32(rate), naive: naive}
	mux := peer.Mux(r.connect())
	mode := "room-shared"
	if naive {
		mode = "room-naive"
	}
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) {
		figures := r.stats()
		if err := peer.NoteFigures(mode, figures); err != nil {
			log.Println(err)
		}
		_ = json.NewEncoder(w).Encode(figures)
	})
	go r.run()
	if err := config.Serve(mux); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r.stats())
}

// connect makes each connection a session.
func (r *room) connect() http.HandlerFunc {
	upgrader := peer.Upgrader(4096)
	return func(w http.ResponseWriter, request *http.Request) {
		conn, err := upgrader.Upgrade(w, request, nil)
		if err != nil {
			return
		}
		s := newSession(r, conn)
		r.add(s)
		if r.naive {
			go s.writeQueue()
		} else {
			go s.writeLatest()
		}
		s.read()
	}
}
