extends RefCounted
## Writes a Protobuf message. Fields with their default value are left out.

var bytes := PackedByteArray()


func varint(number: int) -> void:
	# The sign bit of a large number must not come down with the others.
	while number < 0 or number >= 0x80:
		bytes.append(number & 0x7f | 0x80)
		number = (number >> 7) & 0x01ffffffffffffff
	bytes.append(number)


func number(field: int, value: int) -> void:
	if value != 0:
		varint(field << 3)
		varint(value)


func blob(field: int, value: PackedByteArray) -> void:
	if not value.is_empty():
		message(field, value)


func text(field: int, value: String) -> void:
	blob(field, value.to_utf8_buffer())


## A message is written also if it is empty.
func message(field: int, value: PackedByteArray) -> void:
	varint(field << 3 | 2)
	varint(value.size())
	bytes.append_array(value)
