extends RefCounted
## A snapshot as a room sends it: schema/room.proto. What depends on the snapshots before, the replica checks.

const Grid := preload("grid.gd")
const ProtobufReader := preload("protobuf_reader.gd")
const Schema := preload("schema.gd")

## In all cells. An object may depart from several cells, so the number of objects is no bound.
const DEPARTED_MAX := 1_000_000


class Cell:
	extends RefCounted

	var cell := 0
	var is_full := false
	var departed := PackedInt64Array()
	## At places in the cell.
	var upserts: Array[DunlinObject] = []
	var changes := PackedByteArray()


var is_malformed := false
## It has more objects than the replica may have, more cells than its map, or too many ids of departed objects. The rest is not read: a byte or two
## may become a whole object.
var is_too_large := false
var ack := 0
var avatar := 0
var tick := 0
var base := 0
var time_us := 0
var rate_permille := 1000
var waited := 0
var has_moved := false
var view := 0
var grid: Grid
var schema: Schema
var has_own := false
var own: Array[DunlinObject] = []
var cells: Array[Cell] = []


var _objects_max: int
var _objects := 0
var _cells_max: int
var _departed := 0


## [param known] is the map of the snapshots before, or null.
func _init(bytes: PackedByteArray, objects_max: int, known: Grid) -> void:
	_objects_max = objects_max
	_cells_max = 2 * Grid.CELLS_MAX if known == null else _cells_of(known)
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
				if base == 0:
					_cells_max = _cells_of(grid) if grid.is_possible() else 0
			8:
				view = reader.u32()
			9:
				is_too_large = cells.size() >= _cells_max
				_read_cell(reader)
			10:
				schema = Schema.read(reader.blob())
				is_malformed = is_malformed or schema == null
			11:
				rate_permille = reader.u32()
				is_malformed = is_malformed or rate_permille < 1 or rate_permille > 1000
			12:
				waited = reader.u32()
			13:
				has_moved = reader.flag()
	is_malformed = is_malformed or reader.failed or not is_too_large and (tick == 0 or tick < base)


## A cell may stand twice.
static func _cells_of(map: Grid) -> int:
	return 2 * map.columns * map.rows


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
				message.append_u32(cell.departed, DEPARTED_MAX - _departed)
				is_too_large = _departed + cell.departed.size() > DEPARTED_MAX
			4:
				cell.upserts.append(_object(message))
			5:
				cell.changes = message.blob()
	reader.fail_with(message)
	_departed += cell.departed.size()
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
