class_name DunlinClient
extends Node
## A connection to a Dunlin server. Add it to the scene: it works once a frame, in which it emits all signals.

## The connection is open.
signal opened
## The connection ended: code, reason, and whether the client connects again by itself.
signal closed(code: int, reason: String, reconnects: bool)
## Something failed that the client copes with.
signal failed(message: String)

enum State {
	CLOSED,
	## On the way, also after a lost connection.
	OPENING,
	OPEN,
}

const Protocol := preload("protocol.gd")
const ProtobufWriter := preload("protobuf_writer.gd")
const Socket := preload("socket.gd")
const Link := preload("link.gd")

const OPEN_TIMEOUT_MS := 15_000.0
const PING_MARGIN_MS := 10_000.0
## A server that sends faster than frames are read does not stop the game.
const MESSAGES_PER_FRAME_MAX := 1024
## Commands that may wait for a reply.
const REQUESTS_MAX := 1024
## Rooms and subscriptions of a client. By default, a server allows as many.
const CHANNELS_MAX := 128
## The data of a call or a token. By default, a server accepts messages of 64 KiB.
const DATA_BYTES_MAX := 60_000

## For example [code]wss://example.org/connection/websocket[/code]
@export var url := ""
## In the server's metrics and logs.
@export var client_name := "godot"
## Bounds of the random, growing delay before another connection.
@export var reconnect_min_ms := 500.0
@export var reconnect_max_ms := 20_000.0
## How long the server may take for a reply. Later, a call fails, and a subscription without a reply leads to another connection.
@export var reply_timeout_ms := 10_000.0

var state := State.CLOSED
## Gives a JSON Web Token before each connection, where the server requires one, and again when it expires. It may await something.
## [code]""[/code] as the token: ask again later.
var get_token := Callable()
## Another clock in milliseconds, which must not go back, and another socket, for tests.
var get_now_ms := Callable()
var new_socket := Callable()


## What waits for a reply.
class Request:
	extends RefCounted

	var answer: Callable
	var command := 0
	var deadline_ms := 0.0
	var is_vital := false


## What [method ask] waits for.
class Call:
	extends RefCounted

	signal done

	var result := {}
	var is_done := false

	func finish(ok: bool, data: Variant, code: int, reason: String) -> void:
		result = {"ok": ok, "data": data, "code": code, "reason": reason}
		is_done = true
		done.emit()


var _links := {}
## The same. A change makes another array, so that listeners may change it while the client goes through it.
var _link_list: Array[Link] = []
var _requests := {}
var _last_id := 0
var _socket: RefCounted
## Messages that have arrived together, and where the next one begins.
var _received := PackedByteArray()
var _received_at := 0
var _is_greeting := false
var _is_overfull := false
var _turn := 0
var _attempts := 0
var _refresh_attempts := 0
var _losses := 0
var _reconnect_at_ms := INF
var _refresh_at_ms := INF
var _deadline_ms := INF
var _silence_ms := INF
var _opened_at_ms := 0.0
var _pongs := false
var _token := ""


## The server ends connections that do not answer pings, also those of a game that is paused.
func _init() -> void:
	process_mode = PROCESS_MODE_ALWAYS


func _process(_delta: float) -> void:
	poll()


func _notification(what: int) -> void:
	if what == NOTIFICATION_PREDELETE:
		for link in _link_list:
			link._abandon()
		for request: Request in _requests.values():
			_answer(request, null)


## The local clock in milliseconds.
func now() -> float:
	return get_now_ms.call() if get_now_ms.is_valid() else Time.get_ticks_usec() / 1000.0


func is_open() -> bool:
	return state == State.OPEN


## The room of this channel; null if the channel is a subscription, or there are too many. [method DunlinRoom.join] enters it.
func room(channel: String) -> DunlinRoom:
	if not _links.has(channel) and _links.size() < CHANNELS_MAX:
		_add_link(DunlinRoom.new(self, channel))
	return _links.get(channel) as DunlinRoom


## The subscription to this channel, which is no room; null if it is one, or there are too many.
func subscription(channel: String) -> DunlinSubscription:
	if not _links.has(channel) and _links.size() < CHANNELS_MAX:
		_add_link(DunlinSubscription.new(self, channel))
	return _links.get(channel) as DunlinSubscription


## Leaves a room or ends a subscription, and forgets it.
func remove(link: Link) -> void:
	if _links.get(link.channel) == link:
		_links.erase(link.channel)
		_link_list = Array(_links.values(), TYPE_OBJECT, &"RefCounted", Link)
		link._detach("removed")


func _add_link(link: Link) -> void:
	_links[link.channel] = link
	_link_list = Array(_links.values(), TYPE_OBJECT, &"RefCounted", Link)


## Connects, and connects again after a loss, until [method close].
func open() -> void:
	if state != State.CLOSED:
		return
	_attempts = 0
	_begin()


## Closes the connection. Players keep their seats for a while, as after a lost connection.
func close() -> void:
	if state != State.CLOSED:
		_lose(0, "closed", false)


## Calls a method of the server, such as [code]dunlin.match[/code], or of its backend, with a document. Await it: the result has [code]ok[/code], and the
## document in [code]data[/code], or [code]code[/code] and [code]reason[/code]. The code is 0 without a connection, and 1 without a reply in time.
func ask(method: String, document: Variant = null) -> Dictionary:
	var waiting := Call.new()
	var request := ProtobufWriter.new()
	var data := PackedByteArray() if document == null else JSON.stringify(document).to_utf8_buffer()
	request.blob(1, data)
	request.text(2, method)
	if state != State.OPEN:
		waiting.finish(false, null, 0, "there is no connection")
	elif data.size() > DATA_BYTES_MAX or not _may_ask():
		waiting.finish(false, null, 0, "too much for one call, or too many calls")
	else:
		_send_command(Protocol.RPC, request, _take_called.bind(waiting))
	if not waiting.is_done:
		await waiting.done
	return waiting.result


## Takes in what has arrived, sends what is due, and emits signals. A client in the scene does it by itself.
func poll() -> void:
	if now() >= _reconnect_at_ms:
		_begin()
	if now() >= _refresh_at_ms:
		_begin_refresh()
	_poll_socket()
	if _is_overfull:
		_lose(0, "more is to be sent than the network takes", true)
	if _socket != null and now() > _deadline_ms:
		_lose(0, "no message from the server", true)
	_expire()
	for link in _link_list:
		if link._client != null:
			link._poll(now())


func _poll_socket() -> void:
	var current := _socket
	if current == null:
		return
	current.poll()
	if current.is_open() and not _is_greeting:
		_greet()
	for count in MESSAGES_PER_FRAME_MAX:
		if current != _socket or _is_overfull:
			return
		if _received_at == _received.size():
			if not current.has_message():
				break
			_received = current.next_message()
			_received_at = 0
			if state == State.OPEN:
				_deadline_ms = now() + _silence_ms
		if _received_at < _received.size():
			_take_next()
	if current == _socket and current.is_closed() and not current.has_message() and _received_at == _received.size():
		_lose(current.close_code(), current.close_reason(), true)


func _greet() -> void:
	_is_greeting = true
	var request := ProtobufWriter.new()
	request.text(1, _token)
	request.text(4, client_name)
	_send_command(Protocol.CONNECT, request, _take_connected, true)


## One by one: a frame of 16 MiB may have as many messages, and what they become takes much more.
func _take_next() -> void:
	var message := Protocol.message_at(_received, _received_at)
	_received_at = message.end
	_take(message)


func _take(message: Protocol.Message) -> void:
	if message.is_malformed:
		failed.emit("a malformed message")
		_lose(0, "a malformed message", true)
	elif message.is_ping:
		if _pongs:
			_write(Protocol.pong())
	elif message.id != 0:
		var request: Request = _requests.get(message.id)
		_requests.erase(message.id)
		if request != null:
			_answer(request, message)
	elif message.disconnect != null:
		_lose(message.disconnect.code, message.disconnect.reason, true)
	elif _links.has(message.channel):
		_links[message.channel]._take_push(message)


func _may_ask() -> bool:
	return _requests.size() < REQUESTS_MAX


## Sends a command. The answer is called with null if the connection is lost before the reply. Without [param answer], there is no reply.
## Without a reply to one [param is_vital], the connection is of no use.
func _send_command(command: int, fields: ProtobufWriter, answer := Callable(), is_vital := false) -> void:
	var id := 0
	if answer.is_valid():
		var request := Request.new()
		request.answer = answer
		request.command = command
		request.is_vital = is_vital
		request.deadline_ms = now() + reply_timeout_ms
		_last_id += 1
		id = _last_id
		_requests[id] = request
	_write(Protocol.command(id, command, fields))


## A Callable does not keep its object: the room of a command may be gone before the reply.
func _answer(request: Request, message: Protocol.Message) -> void:
	if request.answer.is_valid():
		request.answer.call(message)


func _write(frame: PackedByteArray) -> void:
	# A socket that closes takes nothing more, and has a code of its own. Whoever sends is told of the loss in the next frame, not in the middle of what it does.
	if _socket != null and not _socket.send(frame) and _socket.is_open():
		_is_overfull = true


func _expire() -> void:
	if _requests.is_empty():
		return
	for id: int in _requests.keys():
		var request: Request = _requests.get(id)
		if request == null or now() <= request.deadline_ms:
			continue
		if request.is_vital:
			_lose(0, "no reply to a connection or a subscription", true)
			return
		_requests.erase(id)
		var late := Protocol.Message.new()
		late.error = Protocol.Ending.new(1, "no reply in time", true)
		_answer(request, late)


## A random, growing delay, so that clients do not come back all at once.
func _delay_ms(attempt: int) -> float:
	var most := minf(reconnect_max_ms, reconnect_min_ms * pow(2, mini(attempt, 30)))
	return minf(reconnect_max_ms, reconnect_min_ms + randf() * most)


## A room has got a snapshot, or a channel its subscription. Before that, the next connection might end in the same way, so delays grow.
func _begin_delays_again() -> void:
	_attempts = 0


func _begin() -> void:
	state = State.OPENING
	_reconnect_at_ms = INF
	if not get_token.is_valid():
		_open_socket()
		return
	_turn += 1
	var turn := _turn
	var token: Variant = await get_token.call()
	if turn != _turn:
		return
	if _is_token(token):
		_token = token
		_open_socket()
	else:
		failed.emit("no token")
		if turn == _turn:
			_lose(0, "no token", true)


static func _is_token(token: Variant) -> bool:
	return token is String and not token.is_empty() and token.to_utf8_buffer().size() <= DATA_BYTES_MAX


func _open_socket() -> void:
	_deadline_ms = now() + OPEN_TIMEOUT_MS
	_is_greeting = false
	_socket = new_socket.call() if new_socket.is_valid() else Socket.new()
	if not _socket.open(url, Protocol.SUBPROTOCOL):
		failed.emit("the socket cannot be opened: is the address right?")
		if _socket != null:
			_lose(0, "no socket", true)


func _take_connected(reply: Protocol.Message) -> void:
	if reply == null:
		return
	var error := reply.error_for(Protocol.CONNECT)
	if error != null:
		_lose(error.code, error.reason, error.may_retry(get_token.is_valid()))
		return
	state = State.OPEN
	_opened_at_ms = now()
	_refresh_attempts = 0
	_pongs = reply.answer.pongs
	_silence_ms = INF if reply.answer.ping_s == 0 else reply.answer.ping_s * 1000.0 + PING_MARGIN_MS
	_deadline_ms = now() + _silence_ms
	_plan_refresh(reply.answer.ttl_s)
	# First those that wait: what a listener opens begins at once, and only once.
	var has_waiting := false
	for link in _link_list:
		has_waiting = has_waiting or link.state == Link.State.ENTERING
		link._take_connected()
	if not has_waiting:
		_begin_delays_again()
	if state == State.OPEN:
		opened.emit()


func _take_called(reply: Protocol.Message, waiting: Call) -> void:
	if reply == null:
		waiting.finish(false, null, 0, "the connection was lost before the reply")
		return
	var error := reply.error_for(Protocol.RPC)
	if error != null:
		waiting.finish(false, null, error.code, error.reason)
		return
	var json := JSON.new()
	var text := reply.answer.data.get_string_from_utf8()
	waiting.finish(true, json.data if not text.is_empty() and json.parse(text) == OK else null, 0, "")


func _plan_refresh(ttl_s: int) -> void:
	_refresh_at_ms = INF if ttl_s < 0 or not get_token.is_valid() else now() + ttl_s * 1000.0


func _begin_refresh() -> void:
	_refresh_at_ms = INF
	_turn += 1
	var turn := _turn
	var token: Variant = await get_token.call()
	if turn != _turn or state != State.OPEN:
		return
	# The server ends a connection that refreshes without a token, for good.
	if not _is_token(token):
		failed.emit("no token")
		_retry_refresh(turn)
		return
	_token = token
	var request := ProtobufWriter.new()
	request.text(1, token)
	_send_command(Protocol.REFRESH, request, _take_refreshed)


func _take_refreshed(reply: Protocol.Message) -> void:
	# The next connection begins with another token.
	if reply == null:
		return
	var error := reply.error_for(Protocol.REFRESH)
	if error == null:
		_refresh_attempts = 0
		_plan_refresh(reply.answer.ttl_s)
		return
	var turn := _turn
	failed.emit("a new token: %s (%d)" % [error.reason, error.code])
	if turn != _turn:
		return
	if error.is_temporary:
		_retry_refresh(turn)
	else:
		_lose(error.code, error.reason, error.may_retry(true))


func _retry_refresh(turn: int) -> void:
	if turn != _turn:
		return
	_refresh_at_ms = now() + _delay_ms(_refresh_attempts)
	_refresh_attempts += 1


func _lose(code: int, reason: String, reconnects: bool) -> void:
	if code >= 3500 and code < 4000 or code >= 4500 and code < 5000:
		reconnects = false
	if _socket != null:
		_socket.close()
	_socket = null
	_received = PackedByteArray()
	_received_at = 0
	_is_overfull = false
	_turn += 1
	if state == State.OPEN and now() - _opened_at_ms >= reconnect_max_ms:
		_begin_delays_again()
	state = State.OPENING if reconnects else State.CLOSED
	_refresh_at_ms = INF
	_deadline_ms = INF
	_reconnect_at_ms = now() + _delay_ms(_attempts) if reconnects else INF
	_attempts += 1
	_losses += 1
	var loss := _losses
	var waiting := _requests.values()
	_requests.clear()
	_last_id = 0
	for link in _link_list:
		link._take_lost(code, reason, reconnects)
	for request: Request in waiting:
		_answer(request, null)
	# A listener may have closed the client meanwhile: that was reported already.
	if loss == _losses:
		closed.emit(code, reason, reconnects)
