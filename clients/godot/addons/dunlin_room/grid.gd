extends RefCounted
## The map of a room and its cells.

const ProtobufReader := preload("protobuf_reader.gd")
const NAMES: PackedStringArray = ["columns", "rows", "cell_units", "near_cells", "far_cells", "far_interval_ticks", "ticks_per_second"]
const LEAST: Array[int] = [1, 1, 1, 0, 0, 1, 1]
const MOST: Array[int] = [1024, 1024, 65_536, 65_535, 65_535, 15, 0xffffffff]
const CELLS_MAX := 1024 * 1024
## The zones of a view: those of near cells, 0 to 2, the nearest first, and that of the far cells.
const ZONES := 4
const FAR_ZONE := ZONES - 1

var columns := 0
var rows := 0
var cell_units := 0
var near_cells := 0
var far_cells := 0
var far_interval_ticks := 0
var ticks_per_second := 0


func read(message: ProtobufReader) -> void:
	while message.next():
		if message.field <= NAMES.size():
			set(NAMES[message.field - 1], message.u32())


func is_possible() -> bool:
	for at in NAMES.size():
		var number: int = get(NAMES[at])
		if number < LEAST[at] or number > MOST[at]:
			return false
	return true


func has_cell(cell: int) -> bool:
	return cell < columns * rows


func distance(view: int, cell: int) -> int:
	@warning_ignore("integer_division")
	return maxi(absi(view % columns - cell % columns), absi(view / columns - cell / columns))


func is_visible(view: int, cell: int) -> bool:
	return distance(view, cell) <= near_cells + far_cells


## The zone of a visible cell: cells that wait together if the server limits the player's bandwidth. Objects in no cell do not wait.
func zone(view: int, cell: int) -> int:
	var cells := 0 if cell < 0 else distance(view, cell)
	if cells <= mini(near_cells, 1):
		return 0
	@warning_ignore("integer_division")
	if cells <= (near_cells + 1) / 2:
		return 1
	return 2 if cells <= near_cells else FAR_ZONE


## The last tick up to this one at which far cells are due.
func far_multiple(tick: int) -> int:
	return tick - tick % far_interval_ticks
