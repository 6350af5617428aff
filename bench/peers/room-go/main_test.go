package main

import (
	"bytes"
	"testing"
)

func TestTheNewestFrameTakesThePlaceOfTheOneThatWaits(t *testing.T) {
	s := newSession(&room{}, nil)
	first, second := newFrame([]byte("first")), newFrame([]byte("second"))
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
	message := w.marshal(nil, 60, 1)
	if !bytes.Contains(message, stamp[:]) {
		t.Error("the stamp is not there")
	}
	if len(message) < 2_300 || len(message) > 2_500 {
		t.Errorf("%d bytes", len(message))
	}
}
