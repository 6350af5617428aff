class_name DunlinSubscription
extends "link.gd"
## A subscription to a channel that is no room, such as a lobby or a user's own channel. Its data is JSON.

## The argument is false after another subscription if publications may have been missed. A lobby then sends its state anew.
signal subscribed(is_whole: bool)
## A publication: its document, and its offset; 0 if the channel has none.
signal received(document: Variant, offset: int)
## The subscription ended: code, reason, and whether the client subscribes again by itself.
signal unsubscribed(code: int, reason: String, returns: bool)
## Invalid data was ignored, or a token could not be had.
signal failed(message: String)

## Sent with each subscription; null for nothing.
var data: Variant


## Subscribes, and subscribes again whenever the connection comes back, until [method unsubscribe].
func subscribe() -> void:
	_enter()


func unsubscribe() -> void:
	_exit("unsubscribed")


func _join_data() -> PackedByteArray:
	return PackedByteArray() if data == null else JSON.stringify(data).to_utf8_buffer()


func _opened(_answer: Protocol.Answer, is_whole: bool) -> void:
	_begin_delays_again()
	subscribed.emit(is_whole)


func _published(publication: Protocol.Publication) -> void:
	var json := JSON.new()
	if json.parse(publication.data.get_string_from_utf8()) == OK:
		received.emit(json.data, publication.offset)
	else:
		failed.emit("a publication is no JSON")


func _closed(code: int, reason: String, returns: bool) -> void:
	unsubscribed.emit(code, reason, returns)


func _fail(message: String) -> void:
	failed.emit(message)
