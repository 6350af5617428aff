class_name DunlinRoom
extends "link.gd"
## A room from one player's view.

## What a snapshot has changed. The first one after a join is full.
signal updated(changes: DunlinChanges)
## The room has moved to another node of its cluster while the player stayed in it: [signal updated] follows. Events shortly before may be missing.
signal moved
## A reliable event of the room: the tick in which it happened, and the game's document.
signal event_received(tick: int, document: Variant)
## The player has joined; a snapshot follows. False after a rejoin if events may have been missed.
signal joined(is_whole: bool)
## The player has left: code, reason, and whether the client joins again by itself.
signal left(code: int, reason: String, rejoins: bool)
## Invalid data was ignored, a token could not be had, or an input was refused.
signal failed(message: String)

## After as many invalid snapshots in a row, the client leaves the room. Good ones count from some time after the join: the first one is often good.
const BAD_SNAPSHOTS_MAX := 3
const GOOD_AFTER_MS := 5000.0
const ROUND_TRIP_WEIGHT := 0.2
## Unacknowledged inputs that are kept, and their total size. The oldest are dropped first.
const PENDING_MAX := 1024
const PENDING_BYTES_MAX := 1 << 20
## By default, a server accepts messages of 64 KiB.
const INPUT_BYTES_MAX := 60_000

## For the game, sent as JSON with each join; null for nothing. A Dictionary, if there is a seat token or [member is_typed].
var data: Variant
## Brings the next join back to the same player. Each join gives a new one. It is a secret. Set it to that of an earlier run of the game.
var seat_token := ""
## Asks for the fields of states: the room then sends those that have changed, and [method DunlinReplica.fields] has their values.
var is_typed := false
## Sends inputs in a way that has a reply: a refused one is then reported as [signal failed].
var publishes := false

var replica := DunlinReplica.new()
var clock := DunlinClock.new()
var interpolation := DunlinInterpolation.new()
## Whether the last join came back to the player of the join before.
var is_seat_resumed := false
## From sending an input until a snapshot acknowledged it, smoothed. NAN before the first.
var round_trip_ms := NAN

var _bad_snapshots := 0
var _joined_at_ms := 0.0
var _last_input := 0
var _pending: Array[Dictionary] = []
var _pending_bytes := 0


## Joins, and joins again whenever the connection comes back, until [method leave].
func join() -> void:
	_bad_snapshots = 0
	_enter()


## Leaves. The player is gone at once; only a lost connection keeps its seat.
func leave() -> void:
	_exit("left")


func is_joined() -> bool:
	return state == State.IN


## Sends an input, in the game's own format, and returns its number; 0 if the room is not joined, the input is too long, or
## [member publishes] and 1,024 commands wait for their replies.
func send(input: PackedByteArray) -> int:
	if state != State.IN or input.size() > INPUT_BYTES_MAX or _last_input == 0xffffffff or publishes and not _client._may_ask():
		return 0
	_last_input += 1
	var number := _last_input
	while not _pending.is_empty() and (_pending.size() == PENDING_MAX or _pending_bytes + input.size() > PENDING_BYTES_MAX):
		_drop_pending()
	_pending.append({"number": number, "data": input, "sent_ms": _client.now()})
	_pending_bytes += input.size()
	var request := ProtobufWriter.new()
	if publishes:
		request.text(1, channel)
		request.message(2, Protocol.input(number, input, ""))
		_client._send_command(Protocol.PUBLISH, request, _take_published.bind(number))
	else:
		request.message(1, Protocol.input(number, input, channel))
		_client._send_command(Protocol.SEND, request)
	return number


## Inputs that no snapshot has acknowledged, for prediction: each with [code]number[/code], [code]data[/code] and [code]sent_ms[/code].
func pending_inputs() -> Array[Dictionary]:
	return _pending


func server_time_ms() -> float:
	return 0.0 if _client == null else clock.server_time_ms(_client.now())


## The server time to show, a short time in the past. Ask for it once a frame.
func advance() -> float:
	return interpolation.advance(server_time_ms())


## Where to show an object at a server time.
func place(object: DunlinObject, shown_ms: float) -> Vector2:
	if interpolation.is_followed(object.id):
		return interpolation.place(object.id, shown_ms)
	return Vector2(object.x, object.y)


## A field that is one number, to show at a server time: between two known ones, if it moves. NAN if the object has no such number.
func number(object: DunlinObject, field: String, shown_ms: float) -> float:
	var shown := interpolation.number(object.id, field, shown_ms)
	if not is_nan(shown):
		return shown
	var value: Variant = replica.field(object, field)
	return float(value) if value is int or value is float or value is bool else NAN


## The server's current tick as a fraction: the tick of a snapshot without any latency.
func tick_now() -> float:
	if replica.grid == null:
		return 0.0
	return replica.tick + (server_time_ms() - replica.time_us / 1000.0) * replica.ticks_per_second() / 1000.0


func _join_data() -> PackedByteArray:
	var members := {}
	if not seat_token.is_empty():
		members["seat_token"] = seat_token
	if is_typed:
		members["snapshots"] = "typed"
	if members.is_empty() or not (data == null or data is Dictionary):
		return PackedByteArray() if data == null else JSON.stringify(data).to_utf8_buffer()
	if data is Dictionary:
		# The newest token counts, so one in the data gives way to it.
		members.merge(data)
	return JSON.stringify(members).to_utf8_buffer()


func _opened(answer: Protocol.Answer, is_whole: bool) -> void:
	_joined_at_ms = _client.now()
	var json := JSON.new()
	var given: Variant = json.data if json.parse(answer.data.get_string_from_utf8()) == OK else null
	is_seat_resumed = given is Dictionary and given.get("seat_resumed") is bool and given["seat_resumed"]
	if given is Dictionary and given.get("seat_token") is String:
		seat_token = given["seat_token"]
	joined.emit(is_whole)


func _published(publication: Protocol.Publication) -> void:
	if publication.offset == 0:
		_take_snapshot(publication.data)
		return
	var json := JSON.new()
	var document: Variant = json.data if json.parse(publication.data.get_string_from_utf8()) == OK else null
	if document is Dictionary and document.has("event") and document.get("tick") is float:
		event_received.emit(int(document["tick"]), document["event"])
	else:
		failed.emit("an event lacks its tick")


func _take_snapshot(bytes: PackedByteArray) -> void:
	var status := replica.apply(bytes)
	if status != DunlinReplica.Status.OK:
		_rejoin("an invalid snapshot: " + DunlinReplica.Status.keys()[status])
		return
	if _client.now() - _joined_at_ms >= GOOD_AFTER_MS:
		_bad_snapshots = 0
	_begin_delays_again()
	# The room's new node has a clock of its own. One that is behind would show objects too late for seconds.
	if replica.has_moved:
		clock.clear()
		interpolation.forget_samples()
	clock.observe(replica.time_us, _client.now())
	_acknowledge()
	interpolation.observe(replica, server_time_ms())
	if replica.has_moved:
		var turn := _turn
		moved.emit()
		# A listener may have left the room.
		if turn != _turn or state != State.IN:
			return
	updated.emit(replica.changes)


## After an invalid snapshot, later ones cannot be applied. Only another join brings a full snapshot. To unsubscribe would give up the seat, so
## the client connects again, as after a lost connection.
func _rejoin(cause: String) -> void:
	var turn := _turn
	failed.emit(cause)
	if turn != _turn or state != State.IN:
		return
	_bad_snapshots += 1
	if _bad_snapshots < BAD_SNAPSHOTS_MAX:
		_client._lose(0, cause, true)
	else:
		_exit(cause)


func _acknowledge() -> void:
	while not _pending.is_empty() and _pending[0]["number"] <= replica.ack:
		if _pending[0]["number"] == replica.ack:
			var took_ms: float = _client.now() - _pending[0]["sent_ms"]
			round_trip_ms = took_ms if is_nan(round_trip_ms) else lerpf(round_trip_ms, took_ms, ROUND_TRIP_WEIGHT)
		_drop_pending()


func _drop_pending() -> void:
	_pending_bytes -= _pending[0]["data"].size()
	_pending.remove_at(0)


func _take_published(reply: Protocol.Message, number_of_input: int) -> void:
	var error := null if reply == null else reply.error_for(Protocol.PUBLISH)
	if error != null:
		failed.emit("input %d: %s (%d)" % [number_of_input, error.reason, error.code])


func _closed(code: int, reason: String, returns: bool) -> void:
	round_trip_ms = NAN
	replica.clear()
	clock.clear()
	interpolation.clear()
	_last_input = 0
	_pending.clear()
	_pending_bytes = 0
	left.emit(code, reason, returns)


func _fail(message: String) -> void:
	failed.emit(message)
