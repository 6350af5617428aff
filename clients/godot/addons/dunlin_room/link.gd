extends RefCounted
## A client's subscription to a channel: its tokens, its position, and when to try again. [DunlinRoom] and [DunlinSubscription] are built on it.

const Protocol := preload("protocol.gd")
const ProtobufWriter := preload("protobuf_writer.gd")

enum State {
	OUT,
	## On the way, also after a lost connection.
	ENTERING,
	IN,
}

## The server asks to subscribe again from this code of an end.
const RESUBSCRIBE_FROM := 2500

var channel := ""
var state := State.OUT
## Gives a subscription token, where the namespace requires one: a function with the channel as its argument, which may await something. [code]""[/code]
## as the token: ask again later.
var get_token := Callable()

## Null after the client has forgotten the link, or was freed.
var _client: Node
var _is_removed := false
var _turn := 0
var _attempts := 0
var _refresh_attempts := 0
var _retry_at_ms := INF
var _refresh_at_ms := INF
var _was_in := false
var _epoch := ""
var _is_recoverable := false
var _offset := 0


func _init(client: Node, given_channel: String) -> void:
	_client = client
	channel = given_channel


func _enter() -> void:
	if state != State.OUT or _is_removed:
		return
	state = State.ENTERING
	_attempts = 0
	if _client.is_open():
		_begin()


## Unsubscribes. The position is forgotten.
func _exit(reason: String) -> void:
	if state == State.OUT:
		return
	if _client.is_open():
		var request := ProtobufWriter.new()
		request.text(1, channel)
		_client._send_command(Protocol.UNSUBSCRIBE, request, _ignore)
	_forget_position()
	_end(0, reason, false)


## For good: the client forgets the link.
func _detach(reason: String) -> void:
	_is_removed = true
	_exit(reason)
	_client = null


## The client is freed. What waits for a token finds another turn.
func _abandon() -> void:
	_is_removed = true
	_turn += 1
	state = State.OUT
	_client = null


func _poll(now_ms: float) -> void:
	if not _client.is_open():
		return
	if now_ms >= _retry_at_ms:
		_begin()
	if now_ms >= _refresh_at_ms:
		_begin_refresh()


func _take_connected() -> void:
	if state == State.ENTERING:
		_begin()


func _take_lost(code: int, reason: String, reconnects: bool) -> void:
	if state != State.OUT:
		_end(code, reason, reconnects)


func _take_push(push: Protocol.Message) -> void:
	# Before the reply to a subscription, a push is about an earlier one of the channel: the server sends nothing about a subscription before its reply.
	if state != State.IN:
		return
	if push.unsubscribe != null:
		var returns := push.unsubscribe.code >= RESUBSCRIBE_FROM
		if not returns:
			_forget_position()
		var ended := _end(push.unsubscribe.code, push.unsubscribe.reason, returns)
		if returns and ended == _turn:
			_retry()
	elif push.publication != null:
		_take(push.publication)


## The subscription works: delays begin again. Before that, the next one might end in the same way, so they grow.
func _begin_delays_again() -> void:
	_attempts = 0
	_client._begin_delays_again()


func _begin() -> void:
	_retry_at_ms = INF
	if not get_token.is_valid():
		_subscribe("")
		return
	_turn += 1
	var turn := _turn
	var token: Variant = await get_token.call(channel)
	if turn != _turn or state != State.ENTERING or not _client.is_open():
		return
	if _client._is_token(token):
		_subscribe(token)
		return
	_fail("no token for " + channel)
	if turn == _turn:
		_retry()


func _subscribe(token: String) -> void:
	_turn += 1
	var request := ProtobufWriter.new()
	request.text(1, channel)
	request.text(2, token)
	if _is_recoverable:
		request.number(3, 1)
		request.text(6, _epoch)
		request.number(7, _offset)
	request.blob(8, _join_data())
	# The server would end the connection, each time.
	if request.bytes.size() > _client.DATA_BYTES_MAX:
		_forget_position()
		_end(0, "too much data to subscribe with", false)
		return
	_client._send_command(Protocol.SUBSCRIBE, request, _take_subscribed.bind(_turn), true)


func _take_subscribed(reply: Protocol.Message, turn: int) -> void:
	if reply == null or turn != _turn or state != State.ENTERING:
		return
	var error := reply.error_for(Protocol.SUBSCRIBE)
	if error != null:
		if error.may_retry(get_token.is_valid()):
			_retry()
		else:
			_forget_position()
			_end(error.code, error.reason, false)
		return
	var answer := reply.answer
	var is_whole := not _was_in or answer.has_recovered
	state = State.IN
	_was_in = true
	_refresh_attempts = 0
	_plan_refresh(answer.ttl_s)
	_is_recoverable = answer.is_recoverable
	_epoch = answer.epoch
	# After a recovery this is the position that was asked for, and each publication moves it.
	_offset = answer.offset
	_opened(answer, is_whole)
	var missed := Protocol.next_publication(answer)
	while missed != null and turn == _turn and state == State.IN:
		_take(missed)
		missed = Protocol.next_publication(answer)


func _take(publication: Protocol.Publication) -> void:
	if publication.offset > 0:
		_offset = publication.offset
	_published(publication)


func _plan_refresh(ttl_s: int) -> void:
	_refresh_at_ms = INF if ttl_s < 0 or not get_token.is_valid() else _client.now() + ttl_s * 1000.0


func _begin_refresh() -> void:
	_refresh_at_ms = INF
	var turn := _turn
	var token: Variant = await get_token.call(channel)
	if turn != _turn or state != State.IN:
		return
	if not _client._is_token(token):
		_fail("no token for " + channel)
		_retry_refresh(turn)
		return
	var request := ProtobufWriter.new()
	request.text(1, channel)
	request.text(2, token)
	_client._send_command(Protocol.SUB_REFRESH, request, _take_refreshed.bind(turn))


func _take_refreshed(reply: Protocol.Message, turn: int) -> void:
	if reply == null or turn != _turn or state != State.IN:
		return
	var error := reply.error_for(Protocol.SUB_REFRESH)
	if error == null:
		_refresh_attempts = 0
		_plan_refresh(reply.answer.ttl_s)
		return
	_fail("a new token for %s: %s (%d)" % [channel, error.reason, error.code])
	# The server ends the subscription when its time is over, and says whether to subscribe again.
	if error.may_retry(true):
		_retry_refresh(turn)


func _retry() -> void:
	_retry_at_ms = _client.now() + _client._delay_ms(_attempts)
	_attempts += 1


func _retry_refresh(turn: int) -> void:
	if turn != _turn:
		return
	_refresh_at_ms = _client.now() + _client._delay_ms(_refresh_attempts)
	_refresh_attempts += 1


## Returns the number of this turn, which is another one if a listener has opened the link again.
func _end(code: int, reason: String, returns: bool) -> int:
	state = State.ENTERING if returns else State.OUT
	_turn += 1
	var ended := _turn
	_retry_at_ms = INF
	_refresh_at_ms = INF
	_closed(code, reason, returns)
	return ended


func _forget_position() -> void:
	_was_in = false
	_is_recoverable = false
	_epoch = ""
	_offset = 0


func _ignore(_reply: Protocol.Message) -> void:
	pass


# What a room and a plain subscription do in their own ways.


func _join_data() -> PackedByteArray:
	return PackedByteArray()


func _opened(_answer: Protocol.Answer, _is_whole: bool) -> void:
	pass


func _published(_publication: Protocol.Publication) -> void:
	pass


func _closed(_code: int, _reason: String, _returns: bool) -> void:
	pass


func _fail(_message: String) -> void:
	pass
