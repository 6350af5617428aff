package main

import (
	"bytes"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestTheNewestFrameTakesThePlaceOfTheOneThatWaits(t *testing.T) {
	s := newSession(&room{}, nil)
	text := func(text string) func([]byte) []byte {
		return func(out []byte) []byte { return append(out, text...) }
	}
	first, second := newFrame(text("first")), newFrame(text("second"))
	if s.offer(first) || !s.offer(second) {
		t.Fatal("the second frame must replace the first, and only that")
	}
	if got := first.references.Load(); got != 1 {
		t.Fatalf("%d references of the frame that gave way, want the maker's alone", got)
	}
	if got := s.take(); got != second {
		t.Fatal("the writer gets something else than the newest frame")
	}
	if s.take() != nil {
		t.Fatal("a frame is taken once")
	}
}

func TestAnInputIsItsStampAndNothingElseIsOne(t *testing.T) {
	in, ok := parseInput([]byte{0x08, 1, 0x12, 8, 1, 2, 3, 4, 5, 6, 7, 8})
	if !ok || in.stamp != [8]byte{1, 2, 3, 4, 5, 6, 7, 8} {
		t.Fatalf("%v %v", in, ok)
	}
	for _, message := range [][]byte{{}, {0x08, 1}, {0x12, 9, 1}, {0x12, 2, 1, 2}, {0xff}} {
		if _, ok := parseInput(message); ok {
			t.Errorf("% x is an input", message)
		}
	}
}

func TestTheStampOfAnInputIsInTheNextSnapshotOfAboutTheAskedSize(t *testing.T) {
	w := newWorld(100, 1)
	stamp := [8]byte{0, 0, 0, 205, 5, 4, 3, 2}
	w.apply(input{stamp: stamp})
	w.advance()
	if !bytes.HasPrefix(w.objects[5].state[:], stamp[:]) {
		t.Error("the stamp is not in the state of the player's object")
	}
	var s snapshot
	w.build(&s)
	message := s.marshal(nil, 60, 1)
	if !bytes.Contains(message, stamp[:]) {
		t.Error("the stamp is not there")
	}
	if len(message) < 2_300 || len(message) > 2_500 {
		t.Errorf("%d bytes", len(message))
	}
}

func TestEachPlayerGetsEachTickAndOnlyTheNaiveModeMarshalsForEach(t *testing.T) {
	const players, ticks = 5, 3
	for naive, snapshotsPerTick := range map[bool]uint64{false: 1, true: players} {
		r := &room{world: newWorld(10, 1), ticksPerSecond: 60, naive: naive}
		connections := join(t, r, players)
		for tick := uint64(1); tick <= ticks; tick++ {
			r.tick()
			for player, connection := range connections {
				_, message, err := connection.ReadMessage()
				if err != nil {
					t.Fatal(err)
				}
				if got := tickOf(message); got != tick {
					t.Fatalf("naive %v: player %d has tick %d, want %d", naive, player, got, tick)
				}
			}
		}
		figures := r.stats()
		if figures.Builds != ticks*snapshotsPerTick || figures.Encodes != ticks*snapshotsPerTick {
			t.Errorf("naive %v: %d builds and %d marshals in %d ticks", naive, figures.Builds, figures.Encodes, ticks)
		}
	}
}

// join connects players, and waits until the room has all of them.
func join(t *testing.T, r *room, players int) []*websocket.Conn {
	t.Helper()
	server := httptest.NewServer(r.connect())
	t.Cleanup(server.Close)
	var connections []*websocket.Conn
	for range players {
		connection, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
		connections = append(connections, connection)
	}
	for deadline := time.Now().Add(10 * time.Second); r.stats().Sessions < players; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the players have not joined")
		}
	}
	return connections
}

// tickOf reads the tick of a snapshot; 0 if there is none.
func tickOf(message []byte) uint64 {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return 0
		}
		message = message[n:]
		if number == 4 && kind == protowire.VarintType {
			tick, _ := protowire.ConsumeVarint(message)
			return tick
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return 0
		}
		message = message[n:]
	}
	return 0
}
