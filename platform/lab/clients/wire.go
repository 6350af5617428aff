package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/centrifugal/protocol"
)

// wire parses the bytes of a connection in both directions, independently of the SDK. So it distinguishes a publication that the server has not sent
// from one that the SDK has not delivered.
type wire struct {
	net.Conn
	journal  *journal
	format   protocol.Type
	numbers  *numbers
	sent     frames
	received frames
	// asked is the ID of the pending subscribe command.
	asked uint32
	from  position
	// next is the expected number of the next publication, and offset is the offset of the last one.
	next   int
	offset uint64
	guard  sync.Mutex
}

// numbers maps the offsets of the publications of a channel to their numbers. Offsets have gaps, because channels share a stream.
type numbers struct {
	first, step int
	byOffset    sync.Map
}

// after returns the number of the first publication after an offset.
func (numbers *numbers) after(offset uint64) int {
	if number, isKnown := numbers.byOffset.Load(offset); isKnown {
		return number.(int) + numbers.step
	}
	return numbers.first
}

type position struct {
	isRecovering bool
	offset       uint64
	epoch        string
}

func newWire(connection net.Conn, journal *journal, format protocol.Type, numbers *numbers) *wire {
	journal.add("connected from %s", connection.LocalAddr())
	return &wire{Conn: connection, journal: journal, format: format, numbers: numbers}
}

func (wire *wire) Write(content []byte) (int, error) {
	// The response may arrive before Write returns.
	wire.guard.Lock()
	wire.sent.feed(content, wire.onCommands)
	wire.guard.Unlock()
	return wire.Conn.Write(content)
}

func (wire *wire) Read(content []byte) (int, error) {
	count, err := wire.Conn.Read(content)
	wire.guard.Lock()
	defer wire.guard.Unlock()
	wire.received.feed(content[:count], wire.onReplies)
	if err != nil {
		wire.journal.add("reading: %v", err)
	}
	return count, err
}

func (wire *wire) Close() error {
	wire.journal.add("the SDK closes the connection")
	return wire.Conn.Close()
}

func (wire *wire) onCommands(payload []byte) {
	decoder := protocol.GetCommandDecoder(wire.format, payload)
	for {
		command, err := decoder.Decode()
		if command != nil && command.Subscribe != nil {
			asked := command.Subscribe
			wire.asked, wire.from = command.Id, position{asked.Recover, asked.Offset, asked.Epoch}
			wire.journal.add("asks for a subscription: %+v", wire.from)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				wire.journal.isWrong("a command does not decode: %v", err)
			}
			return
		}
	}
}

func (wire *wire) onReplies(payload []byte) {
	if wire.format == protocol.TypeProtobuf {
		wire.readReplies(protocol.NewProtobufReplyDecoder(payload))
	} else {
		wire.readReplies(protocol.NewJSONReplyDecoder(payload))
	}
}

func (wire *wire) readReplies(decoder protocol.ReplyDecoder) {
	for {
		reply, err := decoder.Decode()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				wire.journal.isWrong("a reply does not decode: %v", err)
			}
			return
		}
		switch {
		case reply.Error != nil:
			wire.journal.add("the server's error: %d %s", reply.Error.Code, reply.Error.Message)
		case reply.Subscribe != nil && reply.Id == wire.asked:
			wire.onSubscribed(reply.Subscribe)
		case reply.Push != nil && reply.Push.Pub != nil:
			wire.onPublication("push", reply.Push.Pub)
		case reply.Push != nil:
			wire.journal.add("push: %v", reply.Push)
		}
	}
}

// onSubscribed checks that the publications begin at the position that the client has requested.
func (wire *wire) onSubscribed(result *protocol.SubscribeResult) {
	wire.journal.add("is subscribed: recovered %v, offset %d, epoch %s, %d publications", result.Recovered, result.Offset, result.Epoch, len(result.Publications))
	if !wire.from.isRecovering {
		wire.next, wire.offset = wire.numbers.after(result.Offset), result.Offset
		return
	}
	if !result.Recovered || result.Epoch != wire.from.epoch {
		wire.journal.isWrong("not recovered from %+v", wire.from)
	}
	wire.next, wire.offset = wire.numbers.after(wire.from.offset), wire.from.offset
	for _, publication := range result.Publications {
		wire.onPublication("recovered", publication)
	}
	// The offset is the one that was asked for, or that of the last publication, or a later one of other channels.
	wire.offset = max(wire.offset, result.Offset)
}

func (wire *wire) onPublication(way string, publication *protocol.Publication) {
	var data struct{ Number int }
	if err := json.Unmarshal(publication.Data, &data); err != nil {
		wire.journal.isWrong("a publication does not decode: %v", err)
		return
	}
	wire.journal.add("%s %d, number %d", way, publication.Offset, data.Number)
	wire.numbers.byOffset.Store(publication.Offset, data.Number)
	if data.Number != wire.next || publication.Offset <= wire.offset {
		wire.journal.isWrong("%s %d, number %d: expected number %d after offset %d", way, publication.Offset, data.Number, wire.next, wire.offset)
	}
	wire.next, wire.offset = data.Number+wire.numbers.step, publication.Offset
}

// frames parses WebSocket frames from a stream of bytes, after the HTTP headers.
type frames struct {
	hasHeaders bool
	pending    []byte
	message    []byte
}

const headersEnd = "\r\n\r\n"

func (frames *frames) feed(content []byte, take func([]byte)) {
	frames.pending = append(frames.pending, content...)
	if !frames.hasHeaders {
		end := bytes.Index(frames.pending, []byte(headersEnd))
		if end < 0 {
			return
		}
		frames.hasHeaders, frames.pending = true, frames.pending[end+len(headersEnd):]
	}
	for {
		head, payload, size := oneFrame(frames.pending)
		if size == 0 {
			break
		}
		frames.pending = frames.pending[size:]
		if operation := head & 0x0f; operation > 2 {
			continue
		}
		frames.message = append(frames.message, payload...)
		if isLast := head&0x80 != 0; isLast {
			take(frames.message)
			frames.message = nil
		}
	}
	// Move the remaining bytes to the beginning, so that the buffer does not grow.
	frames.pending = append([]byte(nil), frames.pending...)
}

// oneFrame parses one frame. It returns the size 0 if the frame is not complete yet.
func oneFrame(content []byte) (head byte, payload []byte, size int) {
	if len(content) < 2 {
		return 0, nil, 0
	}
	isMasked, length, start := content[1]&0x80 != 0, int(content[1]&0x7f), 2
	switch length {
	case 126:
		start = 4
	case 127:
		start = 10
	}
	if len(content) < start {
		return 0, nil, 0
	}
	switch start {
	case 4:
		length = int(binary.BigEndian.Uint16(content[2:]))
	case 10:
		length = int(binary.BigEndian.Uint64(content[2:]))
	}
	var mask []byte
	if isMasked {
		if len(content) < start+4 {
			return 0, nil, 0
		}
		mask = content[start : start+4]
		start += 4
	}
	if len(content) < start+length {
		return 0, nil, 0
	}
	payload = append([]byte(nil), content[start:start+length]...)
	for place := range payload {
		if isMasked {
			payload[place] ^= mask[place%4]
		}
	}
	return content[0], payload, start + length
}

// journal keeps the last events of a session, to diagnose a wrong delivery.
type journal struct {
	guard sync.Mutex
	name  string
	lines []string
	// wrong counts deliveries of the server that do not match the requests of the client.
	wrong int
}

const linesMax = 400

// journalsFolder gets a file for each session with a wrong delivery. Without it there are no journals.
var journalsFolder = os.Getenv("CLIENTS_JOURNALS")

func (journal *journal) add(form string, values ...any) {
	if journalsFolder == "" {
		return
	}
	journal.guard.Lock()
	defer journal.guard.Unlock()
	journal.append(form, values...)
}

func (journal *journal) append(form string, values ...any) {
	if len(journal.lines) >= linesMax {
		journal.lines = append([]string(nil), journal.lines[linesMax/2:]...)
	}
	journal.lines = append(journal.lines, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(form, values...))
}

func (journal *journal) isWrong(form string, values ...any) {
	journal.guard.Lock()
	defer journal.guard.Unlock()
	journal.append("WRONG "+form, values...)
	if journal.wrong++; journal.wrong == 1 {
		time.AfterFunc(dumpPause, journal.dump)
	}
}

func (journal *journal) wrongCount() int {
	journal.guard.Lock()
	defer journal.guard.Unlock()
	return journal.wrong
}

// dump writes the events to a file.
func (journal *journal) dump() {
	if journalsFolder == "" {
		return
	}
	journal.guard.Lock()
	defer journal.guard.Unlock()
	text := strings.Join(journal.lines, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(journalsFolder, journal.name), []byte(text), 0o600); err != nil {
		log.Printf("clients: %v", err)
	}
}
