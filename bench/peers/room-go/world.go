package main

import (
	"encoding/binary"
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"
)

// side is the map's width and height in units: one cell, seen by everybody.
const side = 4_096

type object struct {
	x, y, dx, dy int32
	// The data of the last input; it changes after every tick.
	state [10]byte
}

// world is what everybody sees: objects that move all the time.
type world struct {
	tick    uint32
	objects []object
}

// snapshot is what a message says about the world. Its memory can be used again.
type snapshot struct {
	tick    uint32
	objects []object
	scratch []byte
}

func newWorld(objects int, seed uint64) *world {
	random := rand.New(rand.NewPCG(seed, 0))
	speed := func() int32 { return 1 + random.Int32N(8) }
	w := &world{objects: make([]object, objects)}
	for i := range w.objects {
		w.objects[i] = object{x: random.Int32N(side), y: random.Int32N(side), dx: speed(), dy: -speed()}
	}
	return w
}

// apply writes a player's stamp into the object that is its own: it begins with the player's number.
func (w *world) apply(in input) {
	player := binary.BigEndian.Uint32(in.stamp[:])
	copy(w.objects[int(player)%len(w.objects)].state[:], in.stamp[:])
}

// advance is one step of time.
func (w *world) advance() {
	w.tick++
	for i := range w.objects {
		o := &w.objects[i]
		o.x, o.dx = bounce(o.x, o.dx)
		o.y, o.dy = bounce(o.y, o.dy)
		binary.BigEndian.PutUint16(o.state[8:], uint16(w.tick)^uint16(i))
	}
}

func bounce(at, speed int32) (int32, int32) {
	next := at + speed
	if next < 0 || next >= side {
		return at, -speed
	}
	return next, speed
}

// build makes a snapshot of the whole world.
func (w *world) build(into *snapshot) {
	into.tick = w.tick
	into.objects = append(into.objects[:0], w.objects...)
}

// marshal appends a Snapshot of schema/room.proto, by hand as generated code would.
func (s *snapshot) marshal(out []byte, ticksPerSecond uint32, timeMicroseconds uint64) []byte {
	varint := func(out []byte, number protowire.Number, value uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(out, number, protowire.VarintType), value)
	}
	message := func(out []byte, number protowire.Number, bytes []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(out, number, protowire.BytesType), bytes)
	}
	// Fields for one player alone are zero: a message per player could not be shared.
	out = protowire.AppendFixed32(protowire.AppendTag(out, 1, protowire.Fixed32Type), 0)
	out = protowire.AppendFixed32(protowire.AppendTag(out, 2, protowire.Fixed32Type), 0)
	out = varint(out, 4, uint64(s.tick))
	out = protowire.AppendFixed64(protowire.AppendTag(out, 6, protowire.Fixed64Type), timeMicroseconds)
	var grid [40]byte
	g := varint(grid[:0], 1, 1)
	g = varint(g, 2, 1)
	g = varint(g, 3, side)
	g = varint(g, 6, 1)
	out = message(out, 7, varint(g, 7, uint64(ticksPerSecond)))
	out = varint(out, 8, 0)
	cell := varint(s.scratch[:0], 2, 1)
	for i := range s.objects {
		o := &s.objects[i]
		size := 4 + protowire.SizeVarint(uint64(i)+1) + 1 + protowire.SizeVarint(uint64(o.x)) +
			protowire.SizeVarint(uint64(o.y)) + 2 + len(o.state)
		cell = protowire.AppendVarint(protowire.AppendTag(cell, 4, protowire.BytesType), uint64(size))
		cell = varint(cell, 1, uint64(i)+1)
		cell = varint(cell, 2, 1)
		cell = varint(cell, 3, uint64(o.x))
		cell = varint(cell, 4, uint64(o.y))
		cell = message(cell, 5, o.state[:])
	}
	s.scratch = cell
	return message(out, 9, cell)
}

// input is what a player sent.
type input struct {
	stamp [8]byte
}

// parseInput reads an Input of schema/room.proto whose data is a stamp.
func parseInput(message []byte) (in input, found bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return in, false
		}
		message = message[n:]
		if number == 2 && kind == protowire.BytesType {
			data, n := protowire.ConsumeBytes(message)
			if n < 0 || len(data) < len(in.stamp) {
				return in, false
			}
			copy(in.stamp[:], data)
			found = true
		}
		n = protowire.ConsumeFieldValue(number, kind, message)
		if n < 0 {
			return in, false
		}
		message = message[n:]
	}
	return in, found
}
