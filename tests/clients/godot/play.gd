extends RefCounted
## A treasure hunt of two players on a real server (tests/clients/server.json): one asks for fields, the other does not.

## By this tick of its room, the server has sent two pings and ended connections that did not answer the first.
const ANSWERED_TICK := 1750
const WAIT_MS := 60_000

var check: Callable
var tree: SceneTree
var has_failed := false


class Player:
	extends RefCounted

	var client := DunlinClient.new()
	var room: DunlinRoom
	var counts := {}
	var last := {}

	func _init(url: String, channel: String, name: String, is_typed: bool, token := "") -> void:
		client.url = url
		room = client.room(channel)
		room.data = {"name": name}
		room.is_typed = is_typed
		room.publishes = is_typed
		room.seat_token = token
		room.joined.connect(func(is_whole: bool) -> void: count("joined", [is_whole, room.is_seat_resumed]))
		room.left.connect(func(code: int, _reason: String, again: bool) -> void: count("left", [code, again]))
		room.failed.connect(func(message: String) -> void: count("failed", message))
		room.event_received.connect(func(_tick: int, document: Variant) -> void: count("event", document))
		client.closed.connect(func(code: int, _reason: String, again: bool) -> void: count("closed", [code, again]))
		room.join()
		client.open()

	func count(what: String, value: Variant) -> void:
		counts[what] = counts.get(what, 0) + 1
		last[what] = value

	## Signals keep this object, and this object the room.
	func end() -> void:
		client.free()
		room = null

	func avatar() -> DunlinObject:
		return room.replica.find(room.replica.avatar)


func run(url: String, given_tree: SceneTree) -> int:
	tree = given_tree
	var channel := "arena:godot-%d" % OS.get_process_id()
	var ada := Player.new(url, channel, "Ada", true)
	var bob := Player.new(url, channel, "Bob", false)
	tree.root.add_child(ada.client)
	tree.root.add_child(bob.client)
	await until(func() -> bool: return ada.avatar() != null and bob.room.replica.find(ada.room.replica.avatar) != null, "both see Ada")
	if has_failed:
		return 0
	await walk_and_see(ada, bob)
	await until(func() -> bool: return ada.room.replica.tick > ANSWERED_TICK, "pings are answered")
	check.call(not ada.counts.has("closed") and not bob.counts.has("closed"), "the connections last")
	await lose_and_return(ada)
	await walk_and_see(ada, bob)
	var reply: Dictionary = await ada.client.ask("dunlin.other", {})
	check.call(not reply["ok"] and reply["code"] == 103, "a call is refused: %s" % reply)
	check.call(not ada.counts.has("failed") and not bob.counts.has("failed"), "nothing has failed: %s" % [ada.last])
	var long_input := PackedByteArray()
	long_input.resize(2000)
	ada.room.send(long_input)
	await until(func() -> bool: return ada.counts.get("failed", 0) == 1, "an input is refused")
	await take_over(url, channel, ada, bob)
	ada.end()
	bob.end()
	return 0 if has_failed else 1


func until(is_done: Callable, what: String) -> void:
	var deadline := Time.get_ticks_msec() + WAIT_MS
	while not has_failed and not is_done.call():
		has_failed = Time.get_ticks_msec() > deadline
		check.call(not has_failed, "in vain: " + what)
		await tree.process_frame


func walk(one: Player, dx: int) -> void:
	var number := one.room.send(PackedByteArray([0, dx & 0xff, 0]))
	check.call(number > 0 and not one.room.pending_inputs().is_empty(), "an input")
	await until(func() -> bool: return one.room.replica.ack == number, "an acknowledgement")
	check.call(one.room.pending_inputs().is_empty() and one.room.round_trip_ms >= 0, "no input is pending")


func walk_and_see(ada: Player, bob: Player) -> void:
	var grid := ada.room.replica.grid
	@warning_ignore("integer_division")
	var dx := 100 if ada.avatar().x < grid.columns * grid.cell_units / 2 else -100
	var start := ada.avatar().x
	await walk(ada, dx)
	check.call(ada.room.replica.fields(ada.avatar()).get("vx") == dx and ada.room.replica.field(ada.avatar(), "no such") == null, "fields")
	check.call(bob.room.replica.schema == null and bob.room.replica.fields(bob.avatar()).is_empty(), "no fields")
	await until(func() -> bool: return absi(ada.avatar().x - start) > 200, "Ada walks")
	await walk(ada, 0)
	var id := ada.room.replica.avatar
	await until(func() -> bool: return bob.room.replica.find(id) != null and bob.room.replica.find(id).x == ada.avatar().x, "Bob sees where Ada is")
	# The tick before Ada's stop has the same place and another velocity, and Bob may be one tick behind Ada.
	await until(func() -> bool: return bob.room.replica.find(id).state == ada.avatar().state, "Bob sees the same state")
	await until(func() -> bool: return bob.room.place(bob.room.replica.find(id), bob.room.advance()).x == ada.avatar().x, "Bob's client shows Ada")
	check.call(bob.room.replica.tick_at(bob.room.advance()) <= bob.room.tick_now() + 1, "the shown tick")


func lose_and_return(ada: Player) -> void:
	var before := ada.room.replica.avatar
	# The client finds out: the socket is closed behind its back.
	ada.client._socket._peer.close(4000)
	await until(func() -> bool: return ada.counts.get("closed", 0) == 1, "a lost connection")
	check.call(ada.last["left"][1] and ada.room.replica.objects.is_empty(), "the client comes back")
	await until(func() -> bool: return ada.avatar() != null, "the return")
	check.call(ada.room.replica.avatar == before and ada.last["joined"] == [true, true], "the same player: %s" % [ada.last])


## Another client takes over Ada's seat, and leaves it.
func take_over(url: String, channel: String, ada: Player, bob: Player) -> void:
	var before := ada.room.replica.avatar
	var eve := Player.new(url, channel, "Eve", true, ada.room.seat_token)
	tree.root.add_child(eve.client)
	await until(func() -> bool: return ada.counts.get("left", 0) == 2 and eve.avatar() != null, "the seat is taken over")
	check.call(eve.room.replica.avatar == before and ada.last["left"] == [2011, false] and ada.client.is_open(), "the seat: %s" % [ada.last])
	eve.room.leave()
	await until(func() -> bool: return bob.room.replica.find(before) == null, "the player is gone")
	eve.end()
