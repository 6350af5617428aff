extends RefCounted
## Reads a Protobuf message. After a failure [member failed] is true, and nothing more is read.

const VARINT := 0
const FIXED64 := 1
const BYTES := 2
const FIXED32 := 5
const UINT32_MAX := 0xffffffff

var failed := false
## The current field. [member value] is its number; of bytes, [member start] and [member length] say where they are.
var field := 0
var wire := 0
var value := 0
var start := 0
var length := 0

var _bytes: PackedByteArray
var _at: int
var _end: int


func _init(bytes: PackedByteArray, from := 0, to := -1) -> void:
	_bytes = bytes
	_at = from
	_end = bytes.size() if to < 0 else to


func is_at_end() -> bool:
	return _at == _end


func position() -> int:
	return _at


## Goes to the next field. False at the end, or after a failure.
func next() -> bool:
	if failed or _at == _end:
		return false
	var tag := varint()
	if failed or tag < 0 or tag > UINT32_MAX or tag >> 3 == 0:
		return _fail()
	field = tag >> 3
	wire = tag & 7
	match wire:
		VARINT:
			value = varint()
			return not failed
		BYTES:
			length = varint()
			if failed or length < 0:
				return _fail()
		FIXED32:
			length = 4
		FIXED64:
			length = 8
		_:
			return _fail()
	if length > _end - _at:
		return _fail()
	start = _at
	_at += length
	if wire == FIXED32:
		value = _bytes.decode_u32(start)
	elif wire == FIXED64:
		value = _bytes.decode_s64(start)
	return true


func varint() -> int:
	var number := 0
	for shift in range(0, 64, 7):
		if _at == _end:
			_fail()
			return 0
		var byte := _bytes[_at]
		_at += 1
		if shift == 63 and byte > 1:
			break
		number |= (byte & 0x7f) << shift
		if byte < 0x80:
			return number
	_fail()
	return 0


## The value of a known field. Fails if it has another type.
func u32() -> int:
	if wire != VARINT or value < 0 or value > UINT32_MAX:
		_fail()
		return 0
	return value


func u64() -> int:
	_require(VARINT)
	return 0 if failed else value


func flag() -> bool:
	_require(VARINT)
	return value != 0 and not failed


func fixed32() -> int:
	_require(FIXED32)
	return 0 if failed else value


func fixed64() -> int:
	_require(FIXED64)
	return 0 if failed else value


func blob() -> PackedByteArray:
	_require(BYTES)
	return PackedByteArray() if failed else _bytes.slice(start, start + length)


## Text that is not UTF-8 is a failure. Godot's strings end before the first character 0.
func text() -> String:
	var bytes := blob()
	if not is_utf8(bytes):
		_fail()
		return ""
	return bytes.get_string_from_utf8()


## A reader of the message in the current field.
func message() -> RefCounted:
	_require(BYTES)
	if failed:
		return get_script().new(PackedByteArray())
	return get_script().new(_bytes, start, start + length)


## Reads numbers that are packed, or one by one, to the end of [param numbers], which has at most one more than [param most] afterwards.
func append_u32(numbers: PackedInt64Array, most: int) -> void:
	if wire != BYTES:
		numbers.append(u32())
		return
	var packed: RefCounted = message()
	while numbers.size() <= most and not packed.is_at_end() and not packed.failed:
		var number: int = packed.varint()
		if number < 0 or number > UINT32_MAX:
			_fail()
			return
		numbers.append(number)
	failed = failed or packed.failed


## A message inside this one has failed.
func fail_with(inner: RefCounted) -> void:
	failed = failed or inner.failed


static func is_utf8(bytes: PackedByteArray) -> bool:
	var at := 0
	var count := bytes.size()
	while at < count:
		var first := bytes[at]
		at += 1
		if first < 0x80:
			continue
		var more := 1 if first >= 0xc2 and first < 0xe0 else 2 if first >= 0xe0 and first < 0xf0 else 3 if first >= 0xf0 and first < 0xf5 else 0
		if more == 0 or more > count - at:
			return false
		var second := bytes[at]
		if first == 0xe0 and second < 0xa0 or first == 0xed and second >= 0xa0 or first == 0xf0 and second < 0x90 or first == 0xf4 and second >= 0x90:
			return false
		for place in more:
			if bytes[at + place] & 0xc0 != 0x80:
				return false
		at += more
	return true


func _require(wanted: int) -> void:
	if wire != wanted:
		_fail()


func _fail() -> bool:
	failed = true
	return false
