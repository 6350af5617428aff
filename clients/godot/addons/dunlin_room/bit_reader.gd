extends RefCounted
## Numbers of some bits each. The lowest bit comes first.

const COUNT_BITS: Array[int] = [0, 4, 8, 16, 32]

var failed := false

var _bytes: PackedByteArray
var _at := 0


func _init(bytes: PackedByteArray) -> void:
	_bytes = bytes


func take(count: int) -> int:
	if _at + count > 8 * _bytes.size():
		failed = true
		return 0
	var number := 0
	var taken := 0
	while taken < count:
		var offset := _at & 7
		var part := mini(8 - offset, count - taken)
		number |= (_bytes[_at >> 3] >> offset & ((1 << part) - 1)) << taken
		_at += part
		taken += part
	return number


## In two's complement.
func take_signed(count: int) -> int:
	var half := 1 << (count - 1)
	return (take(count) ^ half) - half


func take_count() -> int:
	var first := 0
	for place in COUNT_BITS.size():
		if place + 1 < COUNT_BITS.size() and take(1) == 1:
			first += 1 << COUNT_BITS[place]
			continue
		var number := first + take(COUNT_BITS[place])
		failed = failed or number > 0xffffffff
		return number
	return 0


## Zeros fill the last byte, and nothing follows.
func is_at_end() -> bool:
	var left := 8 * _bytes.size() - _at
	return left < 8 and take(left) == 0


## The bits that a number from 0 to [param most] needs.
static func width_of(most: int) -> int:
	var width := 0
	while most > 0:
		width += 1
		most >>= 1
	return width
