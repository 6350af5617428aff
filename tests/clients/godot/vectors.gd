extends RefCounted
## The lines of tests/clients/c/lines.py: the vectors of schema/vectors/room that have a Protobuf form, and movement.json. And recorded snapshots.

const Protocol := preload("res://addons/dunlin_room/protocol.gd")
const STATUSES := ["ok", "Malformed", "WrongBase", "WrongCell", "TooLarge"]
## GDScript takes some milliseconds for a snapshot of many objects and its checksum.
const RECORDED_MAX := 3000

var check: Callable
var name := ""
var replica: DunlinReplica
var clock: DunlinClock
var interpolation: DunlinInterpolation
var shown := PackedStringArray()
var at := 0
## Changed objects that have their values already.
var kept := 0


func run(path: String) -> int:
	var count := 0
	for line in FileAccess.get_file_as_string(path).split("\n", false):
		var words := line.split(" ")
		match words[0]:
			"new":
				name = line.substr(4)
				replica = DunlinReplica.new()
				clock = DunlinClock.new()
				interpolation = DunlinInterpolation.new()
			"is":
				check.call(at < shown.size() and shown[at] == line, "%s: %s, expected %s" % [name, shown[at] if at < shown.size() else "nothing", line])
				at += 1
			"end":
				check.call(at == shown.size(), name + ": more is shown")
			_:
				count += 1
				at = 0
				play(words)
	check.call(kept > 0, "changes keep values")
	return count


func play(words: PackedStringArray) -> void:
	match words[0]:
		"apply":
			var before := replica.objects.duplicate()
			var status := replica.apply(bytes_of(words[1]))
			check.call(STATUSES[status] == words[2], "%s: %s" % [name, STATUSES[status]])
			if status == DunlinReplica.Status.OK:
				check_changes(before)
			shown = lines(true)
		"input":
			var room := bytes_of(words[3]).get_string_from_utf8()
			check.call(Protocol.input(int(words[1]), bytes_of(words[2]), room) == bytes_of(words[4]), name)
		"observe":
			check.call(is_near(clock.observe(int(words[1]), float(words[2])), float(words[3])), name)
			check.call(is_near(clock.offset_ms(), float(words[4])), name)
		"arrive":
			check.call(replica.apply(bytes_of(words[1])) == DunlinReplica.Status.OK, name)
			interpolation.observe(replica, float(words[2]))
			check.call(is_near(interpolation.delay_ms, float(words[3])), "%s: a delay of %f, expected %s" % [name, interpolation.delay_ms, words[3]])
			check.call(interpolation.count() == int(words[4]), name)
		"tick_at":
			check.call(replica.tick_at(float(words[1])) == int(words[2]), name)
		"advance":
			check.call(is_near(interpolation.advance(float(words[1])), float(words[2])), name)
		"place":
			check.call(interpolation.is_followed(int(words[1])) == (words.size() > 3), name)
			if words.size() > 3:
				var place := interpolation.place(int(words[1]), float(words[2]))
				# Vectors of Godot have 32 bits.
				check.call(absf(place.x - float(words[3])) < 0.001 and absf(place.y - float(words[4])) < 0.001, "%s: %s" % [name, place])
		_:
			check.call(false, "an unknown line: " + words[0])


func check_changes(before: Dictionary) -> void:
	var now := before.duplicate()
	for one in replica.changes.removed:
		check.call(now.get(one.id) == one, name)
		now.erase(one.id)
	for one in replica.changes.added:
		check.call(not before.has(one.id), name)
		now[one.id] = one
	for place in replica.changes.changed.size():
		var one := replica.changes.changed[place]
		check.call(before.get(one.id) == replica.changes.before[place], name)
		check_values(one)
		now[one.id] = one
	check.call(now.size() == replica.objects.size(), name + ": the changes lead from the one to the other")
	for id: int in now:
		check.call(replica.objects.has(id) and now[id].is_same_as(replica.objects[id]), name)


## What a change has left without reading the state is what the state says.
func check_values(one: DunlinObject) -> void:
	if one._split_by == null:
		return
	kept += 1
	check.call(one._values == one._split_by.split(one.kind, one.state), name + ": values")


func lines(is_vector: bool) -> PackedStringArray:
	var prefix := "is " if is_vector else ""
	var made := PackedStringArray()
	var waits := ",".join(range(4).map(func(zone: int) -> String: return str(replica.wait_ticks(zone))))
	var rate := " %d %s" % [replica.rate_permille, waits] if is_vector else ""
	made.append("%s%d %d %d %d %d%s" % [prefix, replica.tick, replica.time_us, replica.ack, replica.avatar, replica.view, rate])
	if is_vector:
		var numbers := PackedStringArray()
		for field in replica.grid.NAMES:
			numbers.append(str(replica.grid.get(field)))
		made.append(prefix + " ".join(numbers))
	var ids := replica.objects.keys()
	ids.sort()
	for id: int in ids:
		var one: DunlinObject = replica.objects[id]
		var cell := "-" if one.cell < 0 else str(one.cell)
		var place := "%s%d %d %d %d " % [prefix, one.id, one.kind, one.x, one.y]
		if is_vector:
			made.append(place + ("-" if one.state.is_empty() else one.state.hex_encode()) + " " + cell + fields(one))
		else:
			made.append(place + cell + " " + one.state.hex_encode())
	return made


func fields(one: DunlinObject) -> String:
	if replica.schema == null:
		return ""
	var values: Variant = one.values_in(replica.schema)
	if values == null:
		return " none"
	var texts := {}
	var kind := replica.schema.kind_of(one.kind)
	for place in kind.fields.size():
		var field := kind.fields[place]
		var value: Variant = values[place]
		match field.type:
			"choice":
				texts[field.name] = field.names[value]
			"text":
				texts[field.name] = value.get_string_from_utf8()
			"list":
				texts[field.name] = ",".join(Array(value).map(str))
			_:
				texts[field.name] = str(value)
	var names := texts.keys()
	names.sort()
	return "".join(names.map(func(field: String) -> String: return " %s=%s" % [field, texts[field]]))


func recording(path: String) -> int:
	var data := FileAccess.get_file_as_bytes(path)
	var magic := "dunlin-snapshots-1\n"
	check.call(data.slice(0, magic.length()).get_string_from_ascii() == magic, "a recording")
	var from := magic.length()
	var replicas := {}
	var count := 0
	while from < data.size() and count < RECORDED_MAX:
		var client := data.decode_u32(from)
		var kind := data[from + 4]
		var is_applied := data[from + 5] == 1
		var length := data.decode_u32(from + 6)
		var snapshot := data.slice(from + 10, from + 10 + length)
		var checksum := data.decode_u32(from + 10 + length)
		from += 14 + length
		if kind == 0:
			replicas[client] = DunlinReplica.new()
		# The others are JSON, which this client does not speak.
		if kind != 2:
			continue
		replica = replicas[client]
		count += 1
		name = "snapshot %d of client %d" % [count, client]
		var status := replica.apply(snapshot)
		check.call(status == (DunlinReplica.Status.OK if is_applied else DunlinReplica.Status.WRONG_BASE), name)
		check.call(crc32(("\n".join(lines(false)) + "\n").to_ascii_buffer()) == checksum, name + " shows something else")
	return count


static var _table := PackedInt64Array()


static func crc32(bytes: PackedByteArray) -> int:
	if _table.is_empty():
		for first in 256:
			var sum := first
			for bit in 8:
				sum = sum >> 1 ^ (0xedb88320 if sum & 1 else 0)
			_table.append(sum)
	var crc := 0xffffffff
	for byte in bytes:
		crc = crc >> 8 ^ _table[(crc ^ byte) & 0xff]
	return crc ^ 0xffffffff


static func bytes_of(word: String) -> PackedByteArray:
	return PackedByteArray() if word == "-" else word.hex_decode()


static func is_near(one: float, other: float) -> bool:
	return absf(one - other) < 1e-6
