extends RefCounted
## Commands to the server and its messages, in Protobuf: the client protocol of docs/rooms-protocol.md.

const ProtobufReader := preload("protobuf_reader.gd")
const ProtobufWriter := preload("protobuf_writer.gd")

const SUBPROTOCOL := "centrifuge-protobuf"

## The numbers of commands. Their replies have the same, and up to [constant PUBLISH] the next one.
const CONNECT := 4
const SUBSCRIBE := 5
const UNSUBSCRIBE := 6
const PUBLISH := 7
const SEND := 12
const RPC := 13
const REFRESH := 14
const SUB_REFRESH := 15

const TOKEN_EXPIRED := 109
const EXPIRED := 110


class Ending:
	extends RefCounted

	var code := 0
	var reason := ""
	var is_temporary := false

	func _init(given_code := 0, given_reason := "", temporary := false) -> void:
		code = given_code
		reason = given_reason
		is_temporary = temporary

	func may_retry(has_tokens: bool) -> bool:
		return is_temporary or has_tokens and (code == TOKEN_EXPIRED or code == EXPIRED)


class Publication:
	extends RefCounted

	var data := PackedByteArray()
	var offset := 0


## What the result of a command says.
class Answer:
	extends RefCounted

	var command := 0
	## -1: nothing expires.
	var ttl_s := -1
	var ping_s := 0
	var pongs := false
	var is_recoverable := false
	var has_recovered := false
	var epoch := ""
	var offset := 0
	var data := PackedByteArray()
	## What is left of the result of a subscription, for [method Protocol.next_publication].
	var rest: ProtobufReader


class Message:
	extends RefCounted

	## Where the next message of the frame begins.
	var end := 0
	var is_malformed := false
	var is_ping := false
	var id := 0
	var error: Ending
	var answer: Answer
	var channel := ""
	var publication: Publication
	var unsubscribe: Ending
	var disconnect: Ending

	## The error of the reply, or that it is none to this command.
	func error_for(command: int) -> Ending:
		if error != null or answer != null and answer.command == command:
			return error
		return Ending.new(0, "a reply without a result")


## A command with its length.
static func command(id: int, kind: int, request: ProtobufWriter) -> PackedByteArray:
	var inner := ProtobufWriter.new()
	inner.number(1, id)
	inner.message(kind, request.bytes)
	var frame := ProtobufWriter.new()
	frame.varint(inner.bytes.size())
	frame.bytes.append_array(inner.bytes)
	return frame.bytes


static func pong() -> PackedByteArray:
	return PackedByteArray([0])


## An input. [param room] is the channel, for [constant SEND].
static func input(number: int, data: PackedByteArray, room: String) -> PackedByteArray:
	var writer := ProtobufWriter.new()
	writer.number(1, number)
	writer.blob(2, data)
	writer.text(3, room)
	return writer.bytes


## The message at this place of a frame, after its length. It is malformed if the rest is not possible.
static func message_at(frame: PackedByteArray, at: int) -> Message:
	var message := Message.new()
	var reader := ProtobufReader.new(frame, at)
	var length := reader.varint()
	var start := reader.position()
	message.end = frame.size()
	message.is_malformed = reader.failed or length < 0 or length > frame.size() - start
	if not message.is_malformed:
		message.end = start + length
		_read_message(ProtobufReader.new(frame, start, message.end), message)
	return message


static func _read_message(reader: ProtobufReader, message: Message) -> void:
	message.is_ping = reader.is_at_end()
	while reader.next():
		match reader.field:
			1:
				message.id = reader.u32()
			2:
				message.error = _ending(reader, 1)
			4:
				_read_push(reader, message)
			5, 6, 7, 8, 13, 14, 15:
				message.answer = _answer(reader)
	message.is_malformed = reader.failed


static func _read_push(outer: ProtobufReader, message: Message) -> void:
	var reader := outer.message()
	while reader.next():
		match reader.field:
			2:
				message.channel = reader.text()
			4:
				message.publication = _publication(reader)
			7:
				message.unsubscribe = _ending(reader, 2)
			11:
				message.disconnect = _ending(reader, 1)
	outer.fail_with(reader)


## A code, a text, and in an error whether it is temporary, from field [param first].
static func _ending(outer: ProtobufReader, first: int) -> Ending:
	var ending := Ending.new()
	var reader := outer.message()
	while reader.next():
		match reader.field - first:
			0:
				ending.code = reader.u32()
			1:
				ending.reason = reader.text()
			2:
				ending.is_temporary = reader.flag()
	outer.fail_with(reader)
	return ending


## The next publication that was missed; null after the last. They are taken one by one: as objects, those of a reply of 16 MiB would take gigabytes.
static func next_publication(answer: Answer) -> Publication:
	while answer.rest.next():
		if answer.rest.field == 7:
			return _publication(answer.rest)
	return null


static func _publication(outer: ProtobufReader) -> Publication:
	var publication := Publication.new()
	var reader := outer.message()
	while reader.next():
		match reader.field:
			4:
				publication.data = reader.blob()
			6:
				publication.offset = reader.u64()
	outer.fail_with(reader)
	return publication


static func _answer(outer: ProtobufReader) -> Answer:
	var answer := Answer.new()
	answer.command = outer.field - 1 if outer.field <= PUBLISH + 1 else outer.field
	var reader := outer.message()
	answer.rest = outer.message()
	var expires := false
	var ttl_s := 0
	var first := 3 if answer.command == CONNECT or answer.command == REFRESH else 1
	while reader.next():
		if answer.command == RPC:
			if reader.field == 1:
				answer.data = reader.blob()
		elif answer.command == UNSUBSCRIBE or answer.command == PUBLISH:
			continue
		elif reader.field == first:
			expires = reader.flag()
		elif reader.field == first + 1:
			ttl_s = reader.u32()
		elif answer.command == CONNECT and reader.field == 7:
			answer.ping_s = reader.u32()
		elif answer.command == CONNECT and reader.field == 8:
			answer.pongs = reader.flag()
		elif answer.command == SUBSCRIBE:
			_read_subscribed(reader, answer)
	outer.fail_with(reader)
	answer.ttl_s = ttl_s if expires else -1
	return answer


static func _read_subscribed(reader: ProtobufReader, answer: Answer) -> void:
	match reader.field:
		3:
			answer.is_recoverable = reader.flag()
		6:
			answer.epoch = reader.text()
		7:
			# Only whether it is well-formed.
			_publication(reader)
		8:
			answer.has_recovered = reader.flag()
		9:
			answer.offset = reader.u64()
		11:
			answer.data = reader.blob()
