extends RefCounted
## A client against a scripted server, on a scripted clock.

const Protocol := preload("res://addons/dunlin_room/protocol.gd")
const Reader := preload("res://addons/dunlin_room/protobuf_reader.gd")
const Writer := preload("res://addons/dunlin_room/protobuf_writer.gd")
const Grid := preload("res://addons/dunlin_room/grid.gd")
const Schema := preload("res://addons/dunlin_room/schema.gd")

const CONNECTED := 5
const SUBSCRIBED := 6
const ERROR := 2
const COMMANDS := {4: "connect", 5: "subscribe", 6: "unsubscribe", 7: "publish", 12: "send", 13: "rpc", 14: "refresh", 15: "sub_refresh"}

var check: Callable


class ScriptedSocket:
	extends RefCounted

	var sent: Array[PackedByteArray] = []
	var received: Array[PackedByteArray] = []
	var is_opened := false
	var is_ended := false
	var code := 1006
	var pings_left := 0
	var asked := 0
	var is_full := false
	var is_closing := false

	func open(_url: String, subprotocol: String) -> bool:
		return subprotocol == "centrifuge-protobuf"

	func poll() -> void:
		pass

	func is_open() -> bool:
		return is_opened and not is_closing and not is_ended

	func is_closed() -> bool:
		return is_ended

	func has_message() -> bool:
		asked += 1
		return not received.is_empty() or pings_left > 0

	func next_message() -> PackedByteArray:
		if not received.is_empty():
			return received.pop_front()
		pings_left -= 1
		return PackedByteArray([0])

	func send(message: PackedByteArray) -> bool:
		if not is_full and not is_closing:
			sent.append(message)
		return not is_full and not is_closing

	func close() -> void:
		is_ended = true
		received.clear()

	func close_code() -> int:
		return code

	func close_reason() -> String:
		return ""


## A client with a room, and what both have reported.
class Script_:
	extends RefCounted

	var client: DunlinClient
	var room: DunlinRoom
	var sockets: Array[ScriptedSocket] = []
	var seen := PackedStringArray()
	var now_ms := 1000.0
	var tokens := 0

	func _init(given := DunlinClient.new()) -> void:
		client = given
		client.get_now_ms = func() -> float: return now_ms
		client.new_socket = func() -> ScriptedSocket:
			sockets.append(ScriptedSocket.new())
			return sockets[-1]
		client.opened.connect(func() -> void: seen.append("opened"))
		client.closed.connect(func(code: int, _reason: String, again: bool) -> void: seen.append("closed %d %s" % [code, again]))
		client.failed.connect(func(_message: String) -> void: seen.append("client failed"))
		room = client.room("hunt:1")
		room.joined.connect(func(is_whole: bool) -> void: seen.append("joined %s" % is_whole))
		room.left.connect(func(code: int, _reason: String, again: bool) -> void: seen.append("left %d %s" % [code, again]))
		room.updated.connect(func(changes: DunlinChanges) -> void: seen.append("updated %d" % changes.tick))
		room.event_received.connect(func(tick: int, document: Variant) -> void: seen.append("event %d %s" % [tick, document]))
		room.failed.connect(func(_message: String) -> void: seen.append("failed"))

	func socket() -> ScriptedSocket:
		return sockets[-1]

	func begin(data := "{}") -> void:
		room.join()
		client.open()
		accept()
		open_room(2, data)

	## The socket opens, and the server accepts the client.
	func accept(ttl_s := -1, ping_s := 25) -> void:
		var result := Writer.new()
		result.text(1, "c")
		result.number(3, int(ttl_s >= 0))
		result.number(4, maxi(ttl_s, 0))
		result.number(7, ping_s)
		result.number(8, 1)
		socket().is_opened = true
		client.poll()
		reply(1, CONNECTED, result)

	func open_room(id: int, data := "{}", recovered := false, ttl_s := -1) -> void:
		var result := Writer.new()
		result.number(1, int(ttl_s >= 0))
		result.number(2, maxi(ttl_s, 0))
		result.number(3, 1)
		result.text(6, "xkJa")
		if recovered:
			result.message(7, publication("{\"tick\":8,\"event\":\"missed\"}".to_utf8_buffer(), 13))
			result.number(8, 1)
		result.number(9, 12)
		result.text(11, data)
		reply(id, SUBSCRIBED, result)

	func publication(data: PackedByteArray, offset := 0) -> PackedByteArray:
		var made := Writer.new()
		made.blob(4, data)
		made.number(6, offset)
		return made.bytes

	func say(message: Writer) -> void:
		var frame := Writer.new()
		frame.varint(message.bytes.size())
		frame.bytes.append_array(message.bytes)
		socket().received.append(frame.bytes)
		client.poll()

	func reply(id: int, field: int, result: Writer) -> void:
		var message := Writer.new()
		message.number(1, id)
		message.message(field, result.bytes)
		say(message)

	func refuse(id: int, code: int, is_temporary: bool) -> void:
		var error := Writer.new()
		error.number(1, code)
		error.text(2, "refused")
		error.number(3, int(is_temporary))
		reply(id, ERROR, error)

	func push(field: int, part: PackedByteArray, channel := "hunt:1") -> void:
		var inner := Writer.new()
		inner.text(2, channel)
		inner.message(field, part)
		var message := Writer.new()
		message.message(4, inner.bytes)
		say(message)

	func publish(data: PackedByteArray, offset := 0, channel := "hunt:1") -> void:
		push(4, publication(data, offset), channel)

	func push_end(code: int) -> void:
		var end := Writer.new()
		end.number(2, code)
		end.text(3, "the end")
		push(7, end.bytes)

	## A full snapshot of an empty map, or one that builds on `base`.
	func snapshot(tick: int, base := 0, ack := 0, has_moved := false) -> void:
		var made := Writer.new()
		made.varint(1 << 3 | 5)
		made.bytes.append_array(PackedByteArray([ack, 0, 0, 0]))
		made.number(4, tick)
		made.number(5, base)
		if base == 0:
			made.blob(7, PackedByteArray([8, 4, 16, 3, 24, 100, 32, 1, 48, 1, 56, 60]))
		if has_moved:
			made.number(13, 1)
		publish(made.bytes)

	func lose(code := 1006) -> void:
		socket().code = code
		socket().is_ended = true
		client.poll()

	func pass_ms(ms: float) -> void:
		now_ms += ms
		client.poll()

	## How long it takes until this holds.
	func wait_until(is_done: Callable) -> float:
		var start := now_ms
		while not is_done.call() and now_ms - start < 30_000:
			pass_ms(50)
		return now_ms - start

	## The commands since the last call: for each its name and its texts.
	func sent() -> String:
		var found := PackedStringArray()
		for frame in socket().sent:
			if frame.size() == 1:
				found.append("pong")
				continue
			var outer := Reader.new(frame)
			outer.varint()
			var message := Reader.new(frame, outer.position())
			while message.next():
				if message.field > 1:
					found.append(COMMANDS[message.field] + texts(message))
		socket().sent.clear()
		return "; ".join(found)

	func texts(message: Reader) -> String:
		var inner := message.message()
		var found := ""
		while inner.next():
			found += " " + (inner.blob().get_string_from_utf8() if inner.wire == Reader.BYTES and Reader.is_utf8(inner.blob()) else str(inner.value))
		return found

	func reported() -> String:
		var found := ", ".join(seen)
		seen.clear()
		return found

	## Signals keep this object, and this object the room.
	func end() -> void:
		client.free()
		room = null


## Gives a token when the test says so.
class Given:
	extends RefCounted

	signal token(text: String)

	func take(_channel: String) -> String:
		return await token


func run() -> int:
	var tests: Array[Callable] = [
		session, endings, earlier_end, growing_delays, moved_room, bad_snapshots, tokens, calls, channel, silence, limits, listeners, late_tokens, random_bytes,
		sample_limit, dropped_rooms, many_messages, many_parts, sample_memory,
		long_joins, freed_calls, closing_socket, many_missed,
	]
	for test in tests:
		await test.call()
	return tests.size()


func equal(actual: Variant, expected: Variant, what: String) -> void:
	check.call(actual == expected, "%s: %s, expected %s" % [what, actual, expected])


func session() -> void:
	var it := Script_.new()
	it.room.data = {"name": "Ada", "seat_token": "old"}
	it.room.is_typed = true
	it.room.join()
	it.client.open()
	it.accept()
	equal(it.sent(), "connect godot; subscribe hunt:1 {\"name\":\"Ada\",\"seat_token\":\"old\",\"snapshots\":\"typed\"}", "the join")
	equal(it.room.send(PackedByteArray([1])), 0, "an input before the join")
	it.open_room(2, "{\"seat_token\":\"abc\",\"seat_resumed\":false}")
	equal([it.room.send("move".to_utf8_buffer()), it.room.send("fire".to_utf8_buffer())], [1, 2], "inputs")
	equal(it.room.seat_token, "abc", "a seat")
	it.pass_ms(40)
	it.snapshot(5, 0, 1)
	equal([it.room.pending_inputs().size(), it.room.pending_inputs()[0]["number"], it.room.round_trip_ms], [1, 2, 40.0], "an acknowledgement")
	it.publish("{\"tick\":6,\"event\":\"clue\"}".to_utf8_buffer(), 12)
	it.publish("{\"event\":1}".to_utf8_buffer(), 12)
	equal(it.reported(), "opened, joined true, updated 5, event 6 clue, failed", "the stay")
	it.sent()
	it.say(Writer.new())
	equal(it.sent(), "pong", "a ping")
	it.lose()
	equal(it.reported(), "left 1006 true, closed 1006 true", "a loss")
	equal([it.room.replica.tick, it.room.pending_inputs().size()], [0, 0], "everything begins again")
	check.call(it.wait_until(func() -> bool: return it.sockets.size() == 2) <= 1050, "another connection")
	it.accept()
	equal(it.sent(), "connect godot; subscribe hunt:1 1 xkJa 12 {\"name\":\"Ada\",\"seat_token\":\"abc\",\"snapshots\":\"typed\"}", "the return")
	it.open_room(2, "{\"seat_token\":\"def\",\"seat_resumed\":true}", true)
	equal(it.reported(), "opened, joined true, event 8 missed", "what was missed")
	check.call(it.room.is_seat_resumed and it.room.seat_token == "def", "the same player")
	it.room.leave()
	equal([it.sent(), it.reported()], ["unsubscribe hunt:1", "left 0 false"], "the end")
	it.room.data = [1]
	it.room.join()
	equal(it.sent(), "subscribe hunt:1 [1]", "data that has no place for a token")
	it.end()


func endings() -> void:
	for code: int in [1006, 3000, 3499, 3500, 3999, 4000, 4500, 4999, 5000]:
		var it := Script_.new()
		var returns := not (code >= 3500 and code < 4000 or code >= 4500 and code < 5000)
		it.begin()
		it.reported()
		it.lose(code)
		equal(it.reported(), "left %d %s, closed %d %s" % [code, returns, code, returns], "a close code")
		it.pass_ms(30_000)
		equal(it.sockets.size(), 2 if returns else 1, "another connection after %d" % code)
		it.end()
	for code: int in [100, 409]:
		var it := Script_.new()
		it.room.join()
		it.client.open()
		it.accept()
		it.refuse(2, code, code == 100)
		equal(it.room.state, DunlinRoom.State.ENTERING if code == 100 else DunlinRoom.State.OUT, "a refused join")
		it.end()
	for code: int in [2010, 2510]:
		var it := Script_.new()
		it.begin()
		it.reported()
		it.sent()
		it.push_end(code)
		equal(it.reported(), "left %d %s" % [code, code >= 2500], "the end of a room")
		it.pass_ms(1100)
		equal(it.sent(), "subscribe hunt:1 1 xkJa 12" if code >= 2500 else "", "another join")
		it.end()


## The push was sent before the server took the unsubscription.
func earlier_end() -> void:
	for code: int in [2010, 2502]:
		var it := Script_.new()
		it.begin()
		it.room.leave()
		it.room.join()
		it.reported()
		it.push_end(code)
		it.pass_ms(2000)
		it.open_room(4)
		equal(it.reported(), "joined true", "the new stay begins")
		it.push_end(code)
		equal(it.reported(), "left %d %s" % [code, code >= 2500], "after the reply, the end is that of the new one")
		it.end()


## Until a snapshot has arrived, the next connection or join might end as the last one did.
func growing_delays() -> void:
	var it := Script_.new()
	var longest_ms := 0.0
	it.begin()
	for attempt in 11:
		if attempt == 10:
			it.snapshot(5)
		var sockets := it.sockets.size()
		it.lose(1009)
		var waited_ms := it.wait_until(func() -> bool: return it.sockets.size() > sockets)
		if attempt < 10:
			longest_ms = maxf(longest_ms, waited_ms)
			it.accept()
			it.open_room(2)
		else:
			check.call(waited_ms <= 1050, "after a snapshot, delays begin again: %f" % waited_ms)
	check.call(longest_ms > 1100 and longest_ms <= 20_050, "delays grow: %f" % longest_ms)
	it.accept(-1, 0)
	longest_ms = 0
	for attempt in 10:
		it.open_room(2 + attempt)
		it.sent()
		it.push_end(2502)
		longest_ms = maxf(longest_ms, it.wait_until(func() -> bool: return not it.socket().sent.is_empty()))
	check.call(longest_ms > 1100, "delays between joins grow: %f" % longest_ms)
	it.end()


## To unsubscribe would give up the seat, so the client connects again, up to the last time.
func moved_room() -> void:
	var it := Script_.new()
	it.begin()
	it.room.moved.connect(func() -> void: it.seen.append("moved"))
	it.snapshot(5)
	var offset_ms := it.room.clock.offset_ms()
	it.reported()
	it.pass_ms(500)
	it.snapshot(8, 0, 0, true)
	equal([it.reported(), it.room.replica.has_moved], ["moved, updated 8", true], "a room that has moved")
	equal(it.room.clock.offset_ms(), offset_ms - 500, "its clock")
	it.snapshot(9, 8)
	equal([it.reported(), it.room.replica.has_moved], ["updated 9", false], "it has moved once")
	# By tick, time, base, and place of an object. The clock of the last two is behind.
	for step: Array in [[10, 1300, 0, 10], [11, 1400, 10, 20], [12, 1500, 11, 30], [3, 500, 0, 40], [4, 600, 3, 50]]:
		it.pass_ms(100)
		var one := Writer.new()
		one.number(1, 1)
		one.number(3, step[3])
		var own := Writer.new()
		own.message(1, one.bytes)
		var made := Writer.new()
		made.number(4, step[0])
		made.number(5, step[2])
		made.varint(6 << 3 | 1)
		var time := PackedByteArray()
		time.resize(8)
		time.encode_u64(0, step[1] * 1000)
		made.bytes.append_array(time)
		if step[2] == 0:
			made.blob(7, PackedByteArray([8, 4, 16, 3, 24, 100, 32, 1, 48, 1, 56, 60]))
		if step[0] == 3:
			made.number(13, 1)
		made.message(3, own.bytes)
		it.publish(made.bytes)
	equal(it.room.interpolation.place(1, 550).x, 45.0, "half of the way, on the new clock")
	it.reported()
	it.room.moved.connect(func() -> void: it.room.leave(), CONNECT_ONE_SHOT)
	it.snapshot(10, 0, 0, true)
	equal(it.reported(), "moved, left 0 false", "a listener that leaves")
	it.end()


func bad_snapshots() -> void:
	var it := Script_.new()
	it.begin()
	it.snapshot(5)
	for round in [1, 1, 2, 3]:
		# The first snapshot after a join does not show that the room is well. After some time, one does.
		it.pass_ms(5000 if round == 1 else 4999)
		it.snapshot(6)
		it.reported()
		it.sent()
		it.publish(PackedByteArray([0x20]))
		if round == 3:
			break
		equal(it.reported(), "failed, left 0 true, closed 0 true", "bad snapshot %d" % round)
		it.pass_ms(1500)
		it.accept()
		it.open_room(2)
	equal([it.reported(), it.sent()], ["failed, left 0 false", "unsubscribe hunt:1"], "the last bad snapshot")
	check.call(it.client.is_open(), "the connection stays")
	it.end()


func tokens() -> void:
	var it := Script_.new()
	var asked := [0]
	# The first time, and when it expires, there is none.
	it.client.get_token = func() -> String:
		asked[0] += 1
		return "" if asked[0] in [1, 3] else "t%d" % asked[0]
	it.room.get_token = func(channel_: String) -> String: return channel_ + "!"
	it.room.join()
	it.client.open()
	equal([it.sockets.size(), it.reported()], [0, "client failed, left 0 true, closed 0 true"], "no connection without a token")
	it.pass_ms(1000)
	it.accept(2)
	equal(it.sent(), "connect t2 godot; subscribe hunt:1 hunt:1!", "both tokens")
	it.open_room(2, "{}", false, 4)
	it.reported()
	it.pass_ms(1999)
	equal(it.sent(), "", "before the token expires")
	it.pass_ms(1)
	equal(it.reported(), "client failed", "no token can be had")
	it.pass_ms(1000)
	equal(it.sent(), "refresh t4", "later")
	it.refuse(3, 100, true)
	it.pass_ms(1500)
	equal(it.sent(), "refresh t5; sub_refresh hunt:1 hunt:1!", "after a temporary error, and the token of the room")
	it.lose(3005)
	it.pass_ms(2000)
	it.socket().is_opened = true
	it.client.poll()
	it.refuse(1, 109, false)
	check.call(it.reported().ends_with("closed 109 true"), "an expired token is replaced")
	it.end()


func calls() -> void:
	var it := Script_.new()
	equal((await it.client.ask("m"))["ok"], false, "a call without a connection")
	it.begin()
	it.sent()
	var results := {}
	var keep := func(name: String, document: Variant) -> void: results[name] = await it.client.ask(name, document)
	for name: String in ["full", "empty", "refused", "late", "lost"]:
		if name == "lost":
			it.pass_ms(10_001)
		keep.call(name, {"a": 1} if name == "full" else null)
		if name == "refused":
			var data := Writer.new()
			data.text(1, "{\"ticket\":\"t\"}")
			it.reply(3, 13, data)
			it.reply(4, 13, Writer.new())
			it.refuse(5, 409, false)
	equal(it.sent(), "rpc {\"a\":1} full; rpc empty; rpc refused; rpc late; rpc lost", "the calls")
	it.lose()
	equal(results["full"], {"ok": true, "data": {"ticket": "t"}, "code": 0, "reason": ""}, "a reply")
	equal(results["empty"], {"ok": true, "data": null, "code": 0, "reason": ""}, "a reply without data")
	equal([results["refused"]["ok"], results["refused"]["code"]], [false, 409], "an error")
	equal([results["late"]["ok"], results["late"]["code"]], [false, 1], "no reply in time")
	equal([results["lost"]["ok"], results["lost"]["code"]], [false, 0], "a lost connection")
	it.end()


func channel() -> void:
	var it := Script_.new()
	it.begin()
	it.sent()
	it.reported()
	var lobby := it.client.subscription("lobby")
	check.call(lobby == it.client.subscription("lobby") and it.client.room("lobby") == null and it.client.subscription("hunt:1") == null, "one link a channel")
	lobby.subscribed.connect(func(is_whole: bool) -> void: it.seen.append("subscribed %s" % is_whole))
	lobby.received.connect(func(document: Variant, offset: int) -> void: it.seen.append("received %s %d" % [document, offset]))
	lobby.unsubscribed.connect(func(code: int, _reason: String, again: bool) -> void: it.seen.append("unsubscribed %d %s" % [code, again]))
	lobby.failed.connect(func(_message: String) -> void: it.seen.append("lobby failed"))
	lobby.subscribe()
	it.reply(3, SUBSCRIBED, Writer.new())
	it.publish("\"a\"".to_utf8_buffer(), 0, "lobby")
	it.publish("{".to_utf8_buffer(), 0, "lobby")
	it.publish("\"b\"".to_utf8_buffer(), 0, "other")
	equal([it.sent(), it.reported()], ["subscribe lobby", "subscribed true, received a 0, lobby failed"], "a lobby")
	it.client.remove(lobby)
	equal([it.sent(), it.reported()], ["unsubscribe lobby", "unsubscribed 0 false"], "the end")
	lobby.subscribe()
	equal(it.sent(), "", "a subscription that was removed")
	check.call(it.client.subscription("lobby") != lobby, "another subscription to the channel")
	it.end()


func silence() -> void:
	var it := Script_.new()
	it.room.join()
	it.client.open()
	it.pass_ms(15_000)
	equal(it.reported(), "", "the server may take some time")
	it.pass_ms(1)
	equal(it.reported(), "left 0 true, closed 0 true", "and no more")
	it.pass_ms(1000)
	it.accept(-1, 5)
	it.open_room(2)
	it.reported()
	it.pass_ms(15_000)
	equal(it.reported(), "", "silence up to the limit")
	it.pass_ms(1)
	equal(it.reported(), "left 0 true, closed 0 true", "silence beyond the limit")
	it.pass_ms(1500)
	it.accept()
	it.pass_ms(10_000)
	it.reported()
	it.pass_ms(1)
	equal(it.reported(), "left 0 true, closed 0 true", "a join without a reply")
	it.end()


func limits() -> void:
	var it := Script_.new()
	it.begin()
	var input := PackedByteArray()
	input.resize(DunlinRoom.INPUT_BYTES_MAX + 1)
	equal(it.room.send(input), 0, "an input that is too long")
	input.resize(DunlinRoom.INPUT_BYTES_MAX)
	equal(it.room.send(input), 1, "the longest input")
	for count in 20:
		it.room.send(input)
	@warning_ignore("integer_division")
	equal(it.room.pending_inputs().size(), DunlinRoom.PENDING_BYTES_MAX / DunlinRoom.INPUT_BYTES_MAX, "the bytes of pending inputs")
	for count in DunlinRoom.PENDING_MAX + 1:
		it.room.send(PackedByteArray([1]))
	equal(it.room.pending_inputs().size(), DunlinRoom.PENDING_MAX, "the number of pending inputs")
	for count in range(2, DunlinClient.CHANNELS_MAX + 2):
		check.call((it.client.room("hunt:%d" % count) != null) == (count <= DunlinClient.CHANNELS_MAX), "rooms")
	it.room.publishes = true
	for count in DunlinClient.REQUESTS_MAX:
		check.call(it.room.send(PackedByteArray([1])) > 0, "requests")
	equal([it.room.send(PackedByteArray([1])), (await it.client.ask("m"))["ok"]], [0, false], "one request more")
	it.socket().asked = 0
	it.client.poll()
	check.call(it.socket().asked < 5, "a frame without messages asks for %d" % it.socket().asked)
	it.socket().pings_left = 100_000
	it.client.poll()
	check.call(it.socket().pings_left > 90_000, "a frame ends")
	it.reported()
	it.room.publishes = false
	it.socket().is_full = true
	it.room.send(PackedByteArray([1]))
	equal(it.reported(), "", "whoever sends is not told of a loss at once")
	it.client.poll()
	equal(it.reported(), "left 0 true, closed 0 true", "more than the network takes")
	it.end()
	var grid := Grid.new()
	grid.columns = 8
	grid.near_cells = 1
	grid.far_cells = 2
	equal([0, 1, 2, 3].map(func(cell: int) -> int: return grid.zone(0, cell)), [0, 0, 3, 3], "zones of cells")
	equal([9, 18, 27, 28].map(func(cell: int) -> bool: return grid.is_visible(0, cell)), [true, true, true, false], "visible cells")
	for size: int in [Schema.DOCUMENT_BYTES_MAX, Schema.DOCUMENT_BYTES_MAX + 1]:
		check.call((Schema.read("{\"kinds\":[]}".rpad(size).to_utf8_buffer()) != null) == (size == Schema.DOCUMENT_BYTES_MAX), "a long schema")
	for limit: Array in [[1, 2, "TOO_LARGE"], [2, 1, "TOO_LARGE"], [2, 2, "OK"]]:
		var replica := DunlinReplica.new()
		replica.objects_max = limit[0]
		replica.state_bytes_max = limit[1]
		replica.apply(PackedByteArray([0x20, 1, 0x3a, 12, 8, 4, 16, 3, 24, 100, 32, 1, 48, 1, 56, 60, 0x4a, 9, 8, 0, 0x22, 5, 8, 1, 0x2a, 1, 5]))
		var status := replica.apply(PackedByteArray([0x20, 2, 0x28, 1, 0x4a, 9, 8, 0, 0x22, 5, 8, 2, 0x2a, 1, 6]))
		equal([DunlinReplica.Status.keys()[status], replica.objects.size()], [limit[2], 2 if limit[2] == "OK" else 1], "the limits of a replica")


## Listeners change the client while it works.
func listeners() -> void:
	var it := Script_.new()
	it.begin()
	it.room.left.connect(func(_code: int, _reason: String, _again: bool) -> void: it.client.close(), CONNECT_ONE_SHOT)
	it.reported()
	it.lose()
	check.call(it.reported().ends_with("closed 0 false"), "what is reported last is true")
	it.pass_ms(30_000)
	equal(it.sockets.size(), 1, "no connection after the end")
	it.client.open()
	it.accept()
	it.room.join()
	it.open_room(2)
	it.room.updated.connect(func(_changes: DunlinChanges) -> void: it.room.leave(), CONNECT_ONE_SHOT)
	it.snapshot(5)
	it.snapshot(6, 5)
	check.call(it.reported().ends_with("updated 5, left 0 false"), "a listener that leaves")
	it.room.join()
	it.room.joined.connect(func(_is_whole: bool) -> void: it.client.remove(it.room), CONNECT_ONE_SHOT)
	it.open_room(4, "{}", true)
	check.call(it.reported().ends_with("joined true, left 0 false"), "a listener that removes the room")
	equal([it.room.send(PackedByteArray([1])), it.room.advance() < 1, it.room.tick_now()], [0, true, 0.0], "a room without a client")
	it.room = it.client.room("hunt:1")
	it.room.left.connect(func(_code: int, _reason: String, _again: bool) -> void: it.room.join(), CONNECT_ONE_SHOT)
	it.room.join()
	it.open_room(6)
	it.sent()
	it.client.remove(it.room)
	equal([it.room.state, it.sent()], [DunlinRoom.State.OUT, "unsubscribe hunt:1"], "a room that was removed is not joined by a listener")
	it.end()
	var freed := Script_.new()
	var room := freed.room
	freed.begin()
	freed.end()
	room.join()
	room.leave()
	equal([room.state, room.send(PackedByteArray([1]))], [DunlinRoom.State.OUT, 0], "a room of a client that was freed")


## A token that comes after the client was freed, or the connection was lost.
func late_tokens() -> void:
	for is_freed: bool in [true, false]:
		var it := Script_.new()
		var given := Given.new()
		it.room.get_token = given.take
		it.room.join()
		it.client.open()
		it.accept()
		if is_freed:
			it.end()
		else:
			it.lose()
		given.token.emit("t")
		if not is_freed:
			check.call(not it.sent().contains("subscribe"), "a late token")
			it.end()


## Random bytes are refused, and leave everything as it was.
func random_bytes() -> void:
	var random := RandomNumberGenerator.new()
	random.seed = 1
	var taken := 0
	var good := PackedByteArray([0x0d, 0, 0, 0, 0, 0x20, 7, 0x3a, 12, 8, 4, 0x10, 3, 0x18, 0x64, 0x20, 1, 0x30, 1, 0x38, 0x3c, 0x4a, 6, 8, 0, 0x22, 2, 8, 1])
	for count in 5000:
		var bytes := good.duplicate()
		for changes in random.randi_range(0, 3):
			bytes[random.randi_range(0, bytes.size() - 1)] = random.randi_range(0, 255)
		if random.randi_range(0, 9) == 0:
			bytes.resize(random.randi_range(0, bytes.size()))
		var replica := DunlinReplica.new()
		if replica.apply(bytes) == DunlinReplica.Status.OK:
			taken += 1
		else:
			equal(replica.tick, 0, "a refused snapshot")
		var at := 0
		while at < bytes.size():
			var message := Protocol.message_at(bytes, at)
			check.call(message.end > at, "another message")
			message.error_for(Protocol.SUBSCRIBE)
			at = message.end
	check.call(taken > 100 and taken < 4900, "%d of 5,000 were taken" % taken)


## Objects are followed as long as there is room for their samples.
func sample_limit() -> void:
	var replica := DunlinReplica.new()
	var interpolation := DunlinInterpolation.new()
	var state := PackedByteArray()
	state.resize(1 << 20)
	for tick in [1, 2, 3]:
		var own := Writer.new()
		for id in range(70 if tick == 3 else 1, 71):
			var one := Writer.new()
			one.number(1, id)
			one.number(3, tick)
			one.blob(5, state)
			own.message(1, one.bytes)
		var snapshot := Writer.new()
		snapshot.number(4, tick)
		snapshot.number(5, tick - 1)
		snapshot.blob(7, PackedByteArray([8, 4, 16, 3, 24, 100, 32, 1, 48, 1, 56, 60]))
		snapshot.message(3, own.bytes)
		equal(replica.apply(snapshot.bytes), DunlinReplica.Status.OK, "large objects")
		interpolation.observe(replica, tick)
		var followed := range(1, 71).filter(interpolation.is_followed).size()
		equal(followed, 1 if tick == 3 else 63, "objects that are followed in tick %d" % tick)


## A room that was removed, and that nothing refers to, before the reply to its last command.
func dropped_rooms() -> void:
	for end: String in ["close", "loss", "timeout", "reply"]:
		var it := Script_.new()
		it.begin()
		var lobby := it.client.subscription("lobby")
		lobby.subscribe()
		it.reply(3, SUBSCRIBED, Writer.new())
		it.client.remove(lobby)
		it.seen.clear()
		var was: WeakRef = weakref(lobby)
		lobby = null
		check.call(was.get_ref() == null, "nothing refers to the subscription")
		match end:
			"close":
				it.client.close()
			"loss":
				it.lose()
			"timeout":
				it.pass_ms(10_001)
			"reply":
				it.reply(4, 7, Writer.new())
		var expected := {"close": "left 0 false, closed 0 false", "loss": "left 1006 true, closed 1006 true"}
		equal(it.reported(), expected.get(end, ""), "what is reported after a " + end)
		it.end()


## A join of more than the server takes would end each connection.
func long_joins() -> void:
	for size: int in [59_988, 59_989]:
		for is_token: bool in [false, true]:
			var it := Script_.new()
			if is_token:
				it.room.get_token = func(_channel: String) -> String: return "t".repeat(size)
			else:
				it.room.data = "d".repeat(size - 2)
			it.room.join()
			it.client.open()
			it.accept()
			equal(it.reported(), "opened" if size == 59_988 else "left 0 false, opened", "a join with %d bytes" % size)
			equal(it.sent().contains("subscribe"), size == 59_988, "a join is sent")
			check.call(it.client.is_open(), "the connection stays")
			it.end()


## Whoever waits for a reply of a client that is freed has one.
func freed_calls() -> void:
	var it := Script_.new()
	it.begin()
	var results := []
	var keep := func() -> void: results.append(await it.client.ask("m"))
	keep.call()
	it.end()
	equal(results.map(func(result: Dictionary) -> Array: return [result["ok"], result["code"]]), [[false, 0]], "a call of a client that was freed")


## A socket that closes takes nothing more: its code counts, and not that.
func closing_socket() -> void:
	var it := Script_.new()
	it.begin()
	it.reported()
	it.socket().is_closing = true
	it.room.send(PackedByteArray([1]))
	it.client.poll()
	equal(it.reported(), "", "a socket that closes")
	it.lose(3500)
	equal(it.reported(), "left 3500 false, closed 3500 false", "its code")
	it.end()


## What samples are taken for is what they take, so that the limit is one of memory.
func sample_memory() -> void:
	var numbers := range(20).map(func(at: int) -> Dictionary: return {"name": "f%d" % at, "type": "integer", "bytes": 1, "min": 0, "max": 255})
	var texts := range(20).map(func(at: int) -> Dictionary: return {"name": "t%d" % at, "type": "text", "count_max": 255})
	var list := [{"name": "l", "type": "list", "bytes": 1, "min": 0, "max": 255, "count_min": 0, "count_max": 255}]
	for fields: Array in [[], numbers, texts, list]:
		var replica := DunlinReplica.new()
		var interpolation := DunlinInterpolation.new()
		var state := PackedByteArray()
		state.resize(20)
		if fields == texts:
			state.resize(39)
		for tick in range(1, 11):
			var own := Writer.new()
			for id in range(1, 301):
				var one := Writer.new()
				one.number(1, id)
				one.number(3, tick)
				one.blob(5, state)
				own.message(1, one.bytes)
			var snapshot := Writer.new()
			snapshot.number(4, tick)
			snapshot.number(5, tick - 1)
			snapshot.blob(7, PackedByteArray([8, 4, 16, 3, 24, 100, 32, 1, 48, 1, 56, 60]))
			snapshot.message(3, own.bytes)
			if tick == 1 and not fields.is_empty():
				snapshot.text(10, JSON.stringify({"kinds": [{"kind": 0, "name": "K", "fields": fields}]}))
			equal(replica.apply(snapshot.bytes), DunlinReplica.Status.OK, "a snapshot of 300 objects")
			for object: DunlinObject in replica.objects.values():
				check.call(fields.is_empty() or replica.fields(object).size() == fields.size(), "fields")
			interpolation.observe(replica, tick)
		replica.clear()
		var counted := interpolation._sample_bytes
		var before := OS.get_static_memory_usage()
		interpolation.clear()
		var taken := before - OS.get_static_memory_usage()
		check.call(taken <= counted and counted <= 2 * taken, "samples with %d fields take %d bytes, not %d" % [fields.size(), taken, counted])


## Messages that arrive together are not all taken in the same frame of the game, and not after a loss.
func many_messages() -> void:
	var it := Script_.new()
	it.begin()
	it.sent()
	it.reported()
	var pings := PackedByteArray()
	pings.resize(2 * DunlinClient.MESSAGES_PER_FRAME_MAX + 1)
	it.socket().received.append(pings)
	for count: int in [DunlinClient.MESSAGES_PER_FRAME_MAX, DunlinClient.MESSAGES_PER_FRAME_MAX, 1, 0]:
		it.client.poll()
		equal(it.socket().sent.size(), count, "pongs in a frame")
		it.socket().sent.clear()
	it.socket().received.append(pings)
	it.client.poll()
	it.lose()
	it.lose()
	equal(it.reported(), "left 1006 true, closed 1006 true", "messages before a loss are taken first")
	it.pass_ms(2000)
	it.accept()
	it.sent()
	it.client.poll()
	equal(it.sent(), "", "messages of another connection")
	it.socket().received.append(pings)
	it.socket().is_full = true
	it.client.poll()
	equal(it.reported(), "opened, left 0 true, closed 0 true", "more pongs than the network takes")
	it.end()


## Events that were missed become objects one by one, in order, and no more of them after a listener has left.
func many_missed() -> void:
	for leaves_at: int in [1000, 3]:
		var it := Script_.new()
		it.begin()
		it.lose()
		it.pass_ms(1500)
		it.accept()
		var offsets := PackedInt64Array()
		var objects := PackedInt64Array()
		it.room.event_received.connect(func(tick: int, _document: Variant) -> void:
			offsets.append(tick)
			objects.append(int(Performance.get_monitor(Performance.OBJECT_COUNT)))
			if offsets.size() == leaves_at:
				it.room.leave())
		var result := Writer.new()
		result.number(3, 1)
		for offset in range(1, 1001):
			result.message(7, it.publication(("{\"tick\":%d,\"event\":1}" % offset).to_utf8_buffer(), offset))
		result.number(8, 1)
		var before := int(Performance.get_monitor(Performance.OBJECT_COUNT))
		it.reply(2, SUBSCRIBED, result)
		equal(Array(offsets), range(1, leaves_at + 1), "missed events")
		check.call(objects[0] < before + 100, "%d objects more than before the reply" % (objects[0] - before))
		it.end()


## A snapshot of more objects or cells than are possible is not read to its end.
func many_parts() -> void:
	for case: Array in [[12, 12], [13, 12], [1000, 12]]:
		for is_own: bool in [true, false]:
			var parts := PackedByteArray()
			for count: int in case[0]:
				parts.append_array(PackedByteArray([0x0a if is_own else 0x22, 2, 8, 1]))
			var made := Writer.new()
			made.number(4, 1)
			made.blob(7, PackedByteArray([8, 4, 16, 3, 24, 100, 32, 1, 48, 1, 56, 60]))
			made.message(3 if is_own else 9, parts)
			var snapshot := DunlinReplica.Snapshot.new(made.bytes, case[1], null)
			equal([snapshot.is_malformed, snapshot.is_too_large], [false, case[0] > case[1]], "objects of a snapshot")
			equal((snapshot.own if is_own else snapshot.cells[0].upserts).size(), mini(case[0], case[1] + 1), "objects that are read")
			var replica := DunlinReplica.new()
			replica.objects_max = case[1]
			equal(replica.apply(made.bytes), DunlinReplica.Status.TOO_LARGE if case[0] > case[1] else DunlinReplica.Status.OK, "the status")
	# A map of 4 times 3 cells.
	for cells: int in [24, 25, 1000]:
		var made := Writer.new()
		made.number(4, 1)
		made.blob(7, PackedByteArray([8, 4, 16, 3, 24, 100, 32, 1, 48, 1, 56, 60]))
		for count in cells:
			made.message(9, PackedByteArray())
		var snapshot := DunlinReplica.Snapshot.new(made.bytes, 1, null)
		equal([snapshot.is_too_large, snapshot.cells.size()], [cells > 24, mini(cells, 25)], "cells of a snapshot")
	# A map that is not possible has none.
	var huge := Writer.new()
	huge.number(4, 1)
	huge.blob(7, PackedByteArray([8, 0xff, 0xff, 3, 16, 0xff, 0xff, 3, 24, 100, 48, 1, 56, 60]))
	for count in 10:
		huge.message(9, PackedByteArray())
	equal(DunlinReplica.Snapshot.new(huge.bytes, 1, null).cells.size(), 1, "cells on a map that is not possible")
	equal(DunlinReplica.new().apply(huge.bytes), DunlinReplica.Status.MALFORMED, "a map that is not possible")
	for is_packed: bool in [true, false]:
		var ids := Writer.new()
		for id in range(1, 4):
			if is_packed:
				ids.varint(id)
			else:
				ids.number(3, id)
		var cell := Writer.new()
		cell.blob(3, ids.bytes)
		for most: int in [2, 3]:
			var numbers := PackedInt64Array()
			var reader := Reader.new(cell.bytes if is_packed else ids.bytes)
			while numbers.size() <= most and reader.next():
				reader.append_u32(numbers, most)
			equal([numbers.size(), reader.failed], [3, false], "departed ids up to one more than %d" % most)
	var ids := PackedByteArray()
	ids.resize(DunlinReplica.Snapshot.DEPARTED_MAX)
	ids.fill(1)
	for more: int in [0, 1]:
		var made := Writer.new()
		made.number(4, 1)
		for part: int in [DunlinReplica.Snapshot.DEPARTED_MAX, more]:
			var cell := Writer.new()
			cell.blob(3, ids.slice(0, part))
			made.message(9, cell.bytes)
		equal(DunlinReplica.Snapshot.new(made.bytes, 1, null).is_too_large, more == 1, "a million departed ids, and %d" % more)


## The program in the README shows the objects of the room, and no others.
func readme(program: Node, root: Node) -> void:
	var it := Script_.new(program.client)
	root.add_child(program)
	root.get_tree().paused = true
	check.call(it.client.can_process() and not program.can_process(), "the client works while the game is paused")
	root.get_tree().paused = false
	it.accept()
	for stay in 2:
		it.open_room(2)
		it.publish(PackedByteArray([0x20, 1, 0x3a, 12, 8, 4, 16, 3, 24, 100, 32, 1, 48, 1, 56, 60, 0x4a, 9, 8, 0, 0x22, 5, 8, 1, 0x2a, 1, 5]))
		equal(it.reported(), "opened, joined %s, updated 1" % (stay == 0), "stay %d" % stay)
		equal(shown_by(program), 1, "objects that are shown in stay %d" % stay)
		program._process(0.02)
		it.lose()
		equal([it.reported(), shown_by(program)], ["left 1006 true, closed 1006 true", 0], "the loss after stay %d" % stay)
		program._process(0.02)
		it.pass_ms(2000)
		it.accept()
	it.room = null
	program.free()


func shown_by(program: Node) -> int:
	return program.get_children().filter(func(child: Node) -> bool: return child is Sprite2D and not child.is_queued_for_deletion()).size()
