class_name DunlinObject
extends RefCounted
## An object as a player sees it. A snapshot that changes it makes another one, so it stays as it is.

var id := 0
var kind := 0
## Units on the map.
var x := 0
var y := 0
## -1: only this player receives it.
var cell := -1
## The bytes of its state, as the game wrote them.
var state := PackedByteArray()

var _values: Variant
var _split_by: RefCounted


## The values of the fields, or null. They are read once.
func values_in(schema: RefCounted) -> Variant:
	if schema == null:
		return null
	if _split_by != schema:
		_split_by = schema
		_values = schema.split(kind, state)
	return _values


func is_same_as(other: DunlinObject) -> bool:
	return x == other.x and y == other.y and cell == other.cell and kind == other.kind and state == other.state
