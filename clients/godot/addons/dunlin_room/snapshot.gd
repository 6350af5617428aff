extends RefCounted
## A snapshot as a room sends it: schema/room.proto. What depends on the snapshots before, the replica checks.

const Grid := preload("grid.gd")
const ProtobufReader := preload("protobuf_reader.gd")
const Schema := preload("schema.gd")


class Cell:
	extends RefCounted

	var cell := 0
	var is_full := false
	var departed := PackedInt64Array()
	## At places in the cell.
	var upserts: Array[DunlinObject] = []
	var changes := PackedByteArray()


var is_malformed := false
## It has more objects than the replica may have, or more cells than its map. The rest is not read: a byte or two may become a whole object.
var is_too_large := false
var ack := 0
var avatar := 0
var tick := 0
var base := 0
var time_us := 0
var view := 0
var grid: Grid
var schema: Schema
var has_own := false
var own: Array[DunlinObject] = []
var cells: Array[Cell] = []


var _objects_max: int
var _objects := 0


## [param known] is the map of the snapshots before, or null.
func _init(bytes: PackedByteArray, objects_max: int, known: Grid) -> void:
	_objects_max = objects_max
	var reader := ProtobufReader.new(bytes)
	while not is_too_large and reader.next():
		match reader.field:
			1:
				ack = reader.fixed32()
			2:
				avatar = reader.fixed32()
			3:
				_read_own(reader)
			4:
				tick = reader.u32()
			5:
				base = reader.u32()
			6:
				time_us = reader.fixed64()
			7:
				var message := reader.message()
				grid = Grid.new()
				grid.read(message)
				reader.fail_with(message)
			8:
				view = reader.u32()
			9:
				var map := known if grid == null else grid
				# A cell may stand twice.
				is_too_large = cells.size() >= 2 * (Grid.CELLS_MAX if map == null else map.columns * map.rows)
				_read_cell(reader)
			10:
				schema = Schema.read(reader.blob())
				is_malformed = is_malformed or schema == null
	is_malformed = is_malformed or reader.failed or not is_too_large and (tick == 0 or tick < base)


func _read_own(reader: ProtobufReader) -> void:
	var message := reader.message()
	has_own = true
	own = []
	while not is_too_large and message.next():
		if message.field == 1:
			own.append(_object(message))
	reader.fail_with(message)


func _read_cell(reader: ProtobufReader) -> void:
	var cell := Cell.new()
	var message := reader.message()
	while not is_too_large and message.next():
		match message.field:
			1:
				cell.cell = message.u32()
			2:
				cell.is_full = message.flag()
			3:
				message.append_u32(cell.departed)
			4:
				cell.upserts.append(_object(message))
			5:
				cell.changes = message.blob()
	reader.fail_with(message)
	cells.append(cell)


func _object(reader: ProtobufReader) -> DunlinObject:
	_objects += 1
	is_too_large = _objects > _objects_max
	var one := DunlinObject.new()
	var message := reader.message()
	while message.next():
		match message.field:
			1:
				one.id = message.u32()
			2:
				one.kind = message.u32()
			3:
				one.x = message.u32()
			4:
				one.y = message.u32()
			5:
				one.state = message.blob()
	reader.fail_with(message)
	return one
