extends RefCounted
## The kinds of a game's objects and their fields, as the room declares them, and the states that are made of them.

const BitReader := preload("bit_reader.gd")
const ProtobufReader := preload("protobuf_reader.gd")

const DOCUMENT_BYTES_MAX := 65_536
const KINDS_MAX := 256
const FIELDS_MAX := 62
const LENGTH_MAX := 1_024
const CHOICES_MAX := 256
const SHORT_LENGTH_MAX := 255
const UINT32_MAX := 0xffffffff
## As Godot 4.6 for 64 bits keeps them; arrays grow by doubling.
const BYTES_OF_VARIANT := 2 * 24
const BYTES_OF_ARRAY := 160
const BYTES_OF_LONG := 80


class Field:
	extends RefCounted

	var name: String
	## integer, flag, choice, object, text or list
	var type: String
	## step, linear or angle
	var motion := "step"
	var names := PackedStringArray()
	var per_unit := 1
	var size := 1
	var least := 0
	var most := 0
	var delta_bits := 0
	var count_min := 0
	var count_max := 0
	var is_long := false
	var is_optional := false
	var length_bytes := 0

	var is_signed: bool:
		get:
			return least < 0

	## The value as a game uses it: divided, by name, true or false.
	func shown(value: Variant) -> Variant:
		match type:
			"flag":
				return value == 1
			"choice":
				return names[value]
			"text":
				return (value as PackedByteArray).get_string_from_utf8()
			"integer":
				return value if per_unit == 1 else float(value) / per_unit
			_:
				return value


class Kind:
	extends RefCounted

	var number: int
	var name: String
	var fields: Array[Field] = []

	var _places := {}
	var _long_fields := 0

	func add(field: Field) -> void:
		_places[field.name] = fields.size()
		fields.append(field)
		_long_fields += int(field.is_long)

	## The place of a field, or -1.
	func index(field_name: String) -> int:
		return _places.get(field_name, -1)

	## At most what Godot keeps for the values of a state. A byte may be a number of a list, which grows by doubling.
	func bytes_of_values(state: PackedByteArray) -> int:
		return BYTES_OF_ARRAY + fields.size() * BYTES_OF_VARIANT + _long_fields * BYTES_OF_LONG + (2 * 8 * state.size() if _long_fields > 0 else 0)


var kinds := {}


## Null if the document is not possible.
static func read(document: PackedByteArray) -> RefCounted:
	if document.size() > DOCUMENT_BYTES_MAX or not ProtobufReader.is_utf8(document):
		return null
	var json := JSON.new()
	if json.parse(document.get_string_from_utf8()) != OK or not json.data is Dictionary:
		return null
	var items: Variant = json.data.get("kinds")
	if not items is Array or items.size() > KINDS_MAX:
		return null
	var schema: RefCounted = new()
	for item: Variant in items:
		var kind := _kind(item)
		if kind == null or schema.kinds.has(kind.number):
			return null
		schema.kinds[kind.number] = kind
	return schema


func kind_of(number: int) -> Kind:
	return kinds.get(number)


## The values of a state: numbers, lists of numbers, and the bytes of texts. Null if it does not have the form of its kind.
func split(number: int, state: PackedByteArray) -> Variant:
	var kind := kind_of(number)
	if kind == null:
		return null
	var values := []
	var at := 0
	var has_optional := false
	var has_value := false
	for field in kind.fields:
		if field.is_optional and not has_optional:
			if at == state.size():
				for rest in kind.fields.slice(values.size()):
					values.append(_nothing(rest))
				return values
			has_optional = true
		var count := 1
		if field.is_long:
			count = _count_in(field, state, at)
			if count < field.count_min or count > field.count_max:
				return null
			at += field.length_bytes
		if at + count * field.size > state.size():
			return null
		var value: Variant
		if field.type == "text":
			value = state.slice(at, at + count)
			if not ProtobufReader.is_utf8(value):
				return null
		elif field.is_long:
			value = PackedInt64Array()
			for place in count:
				value.append(_integer(field, state, at + place * field.size))
				if value[place] < field.least or value[place] > field.most:
					return null
		else:
			value = _integer(field, state, at)
			if value < field.least or value > field.most:
				return null
		at += count * field.size
		values.append(value)
		has_value = has_value or has_optional and not _is_nothing(value)
	return values if at == state.size() and (not has_optional or has_value) else null


## The state with these values, which are in their ranges.
static func join(kind: Kind, values: Array) -> PackedByteArray:
	var state := PackedByteArray()
	var optional_start := -1
	var has_value := false
	for place in values.size():
		var field := kind.fields[place]
		var value: Variant = values[place]
		if field.is_optional and optional_start < 0:
			optional_start = state.size()
		has_value = has_value or optional_start >= 0 and not _is_nothing(value)
		if not field.is_long:
			_append(state, value, field.size)
			continue
		if field.length_bytes > 0:
			_append(state, value.size(), field.length_bytes)
		if field.type == "text":
			state.append_array(value)
			continue
		for number: int in value:
			_append(state, number, field.size)
	if optional_start >= 0 and not has_value:
		state.resize(optional_start)
	return state


## Reads the value of a field that has changed. Null if it is not possible.
static func read_change(bits: BitReader, field: Field, was: Variant) -> Variant:
	if field.type == "object":
		return bits.take_count()
	var width := BitReader.width_of(field.most - field.least)
	if field.is_long:
		var count := field.count_min + bits.take(BitReader.width_of(field.count_max - field.count_min))
		if count > field.count_max:
			return null
		var value: Variant = PackedByteArray() if field.type == "text" else PackedInt64Array()
		for place in count:
			var number := field.least + bits.take(width)
			if number > field.most or bits.failed:
				return null
			value.append(number)
		return null if field.type == "text" and not ProtobufReader.is_utf8(value) else value
	var number := 0
	if field.delta_bits > 0 and bits.take(1) == 1:
		var turn := field.most - field.least + 1
		number = was + bits.take_signed(field.delta_bits)
		if field.motion == "angle":
			number = field.least + posmod(number - field.least, turn)
	else:
		number = field.least + bits.take(width)
	return null if bits.failed or number < field.least or number > field.most else number


static func _nothing(field: Field) -> Variant:
	if not field.is_long:
		return 0
	return PackedByteArray() if field.type == "text" else PackedInt64Array()


static func _is_nothing(value: Variant) -> bool:
	return value == 0 if value is int else value.is_empty()


static func _count_in(field: Field, state: PackedByteArray, at: int) -> int:
	if field.count_min == field.count_max:
		return field.count_min
	if field.length_bytes == 0:
		return (state.size() - at) / field.size
	if at + field.length_bytes > state.size():
		return -1
	return state[at] if field.length_bytes == 1 else state.decode_u16(at)


static func _integer(field: Field, state: PackedByteArray, at: int) -> int:
	match field.size:
		1:
			return state.decode_s8(at) if field.is_signed else state[at]
		2:
			return state.decode_s16(at) if field.is_signed else state.decode_u16(at)
		_:
			return state.decode_s32(at) if field.is_signed else state.decode_u32(at)


static func _append(state: PackedByteArray, number: int, size: int) -> void:
	for place in size:
		state.append(number >> 8 * place & 0xff)


static func _kind(item: Variant) -> Kind:
	if not item is Dictionary or not item.get("fields") is Array or not item.get("name") is String:
		return null
	var forms: Array = item["fields"]
	var kind := Kind.new()
	if not _is_whole(item.get("kind"), 0, 0xffff) or forms.is_empty() or forms.size() > FIELDS_MAX:
		return null
	kind.number = int(item["kind"])
	kind.name = item["name"]
	var has_optional := false
	for at in forms.size():
		var field := _field(forms[at])
		if field == null or kind.index(field.name) >= 0:
			return null
		has_optional = has_optional or field.is_optional
		if has_optional and (field.count_min > 0 if field.is_long else field.least > 0 or field.most < 0):
			return null
		if field.is_long and field.count_min < field.count_max and at + 1 < forms.size():
			field.length_bytes = 1 if field.count_max <= SHORT_LENGTH_MAX else 2
		kind.add(field)
	return kind


static func _field(form: Variant) -> Field:
	if not form is Dictionary or not form.get("name") is String or not form.get("type") is String:
		return null
	var field := Field.new()
	field.name = form["name"]
	field.type = form["type"]
	if not _has_range(field, form) or not form.get("motion", "step") in ["step", "linear", "angle"] or not form.get("optional", false) is bool:
		return null
	field.motion = form.get("motion", "step")
	field.is_optional = form.get("optional", false)
	var width := BitReader.width_of(field.most - field.least) if field.type == "integer" else 1
	if not _is_whole(form.get("delta_bits", 0), 0, maxi(width, 1) - 1) or not _is_whole(form.get("per_unit", 1), 1, UINT32_MAX):
		return null
	field.delta_bits = int(form.get("delta_bits", 0))
	field.per_unit = int(form.get("per_unit", 1))
	return field


static func _has_range(field: Field, form: Dictionary) -> bool:
	match field.type:
		"flag":
			field.most = 1
		"choice":
			if not form.get("names") is Array or form["names"].is_empty() or form["names"].size() > CHOICES_MAX:
				return false
			for name: Variant in form["names"]:
				if not name is String:
					return false
				field.names.append(name)
			field.most = field.names.size() - 1
		"object":
			field.size = 4
			field.most = UINT32_MAX
		"text":
			field.most = 255
		"integer", "list":
			if not form.get("bytes") in [1.0, 2.0, 4.0] or not _is_whole(form.get("min"), -0x80000000, UINT32_MAX):
				return false
			field.size = int(form["bytes"])
			field.least = int(form["min"])
			var bits := 8 * field.size
			if field.least < -(1 << (bits - 1)) or not _is_whole(form.get("max"), field.least, (1 << (bits - int(field.is_signed))) - 1):
				return false
			field.most = int(form["max"])
		_:
			return false
	field.is_long = field.type in ["text", "list"]
	if not field.is_long:
		return true
	if not _is_whole(form.get("count_max"), 1, LENGTH_MAX):
		return false
	field.count_max = int(form["count_max"])
	if field.type == "list":
		if not _is_whole(form.get("count_min"), 0, field.count_max):
			return false
		field.count_min = int(form["count_min"])
	return true


## JSON in Godot has floats alone.
static func _is_whole(value: Variant, least: int, most: int) -> bool:
	return (value is float or value is int) and value == floorf(value) and value >= least and value <= most
