extends RefCounted
## A WebSocket for [DunlinClient]. Another object with these functions can stand in for it.

## Whole messages that wait for the client.
const RECEIVED_BYTES_MAX := 16 << 20
const UNSENT_BYTES_MAX := 1 << 20
## The code of a connection that was lost without a close frame.
const LOST := 1006

var _peer := WebSocketPeer.new()


## False if the socket cannot be opened.
func open(url: String, subprotocol: String) -> bool:
	_peer.inbound_buffer_size = RECEIVED_BYTES_MAX
	_peer.outbound_buffer_size = UNSENT_BYTES_MAX
	_peer.supported_protocols = PackedStringArray([subprotocol])
	return _peer.connect_to_url(url) == OK


func poll() -> void:
	_peer.poll()


func is_open() -> bool:
	return _peer.get_ready_state() == WebSocketPeer.STATE_OPEN


func is_closed() -> bool:
	return _peer.get_ready_state() == WebSocketPeer.STATE_CLOSED


func has_message() -> bool:
	return _peer.get_available_packet_count() > 0


func next_message() -> PackedByteArray:
	return _peer.get_packet()


## False if too much waits to be sent.
func send(message: PackedByteArray) -> bool:
	return _peer.send(message, WebSocketPeer.WRITE_MODE_BINARY) == OK


func close() -> void:
	_peer.close()


func close_code() -> int:
	return LOST if _peer.get_close_code() < 0 else _peer.get_close_code()


func close_reason() -> String:
	return _peer.get_close_reason()
