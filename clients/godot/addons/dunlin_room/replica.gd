class_name DunlinReplica
extends RefCounted
## The objects that a player sees. A snapshot is applied completely, or leaves everything as it was.

enum Status { OK, MALFORMED, WRONG_BASE, WRONG_CELL, TOO_LARGE }

const BitReader := preload("bit_reader.gd")
const Grid := preload("grid.gd")
const Schema := preload("schema.gd")
const Snapshot := preload("snapshot.gd")

const OBJECTS_MAX := 1_000_000
const STATE_BYTES_MAX := 256 << 20
## The bits of a step to another place, by its class.
const STEP_BITS: Array[int] = [3, 5, 7]

var objects_max := OBJECTS_MAX
var state_bytes_max := STATE_BYTES_MAX

var tick := 0
var base := 0
var time_us := 0
## The rate of the room's clock at that tick, in thousandths: 1000 is real time. An overloaded room runs slower.
var rate_permille := 1000
## The waits of the zones of the view as one number, see [method wait_ticks]; 0 if no cells have waited for a bandwidth limit.
var waited := 0
## Whether the last snapshot is the first one after the room has moved to another node of its cluster.
var has_moved := false
## The number of the last input that the room has applied.
var ack := 0
## The id of the player's own object; 0: none.
var avatar := 0
var view := 0
## Null before the first snapshot.
var grid: Grid
## Null if the game declares no fields, or the room was not asked for them.
var schema: Schema
## By id. Do not change it.
var objects := {}
var changes: DunlinChanges
## By zone, whether the last snapshot has updated it.
var updated_zones: Array[bool] = [false, false, false, false]

var _state_bytes := 0
var _outcome: Dictionary
var _outcome_bytes := 0
var _touched: Dictionary
var _status := Status.OK


func clear() -> void:
	tick = 0
	base = 0
	time_us = 0
	rate_permille = 1000
	waited = 0
	has_moved = false
	ack = 0
	avatar = 0
	view = 0
	grid = null
	schema = null
	objects = {}
	changes = null
	updated_zones.fill(false)
	_state_bytes = 0


## The object, or null.
func find(id: int) -> DunlinObject:
	return objects.get(id)


## The values of an object's fields by name; empty if it has none. A text ends before the first character 0.
func fields(object: DunlinObject) -> Dictionary:
	var shown := {}
	var values: Variant = object.values_in(schema)
	if values == null:
		return shown
	var kind := schema.kind_of(object.kind)
	for at in kind.fields.size():
		shown[kind.fields[at].name] = kind.fields[at].shown(values[at])
	return shown


## The value of one field, or null.
func field(object: DunlinObject, field_name: String) -> Variant:
	var values: Variant = object.values_in(schema)
	if values == null:
		return null
	var kind := schema.kind_of(object.kind)
	var at := kind.index(field_name)
	return null if at < 0 else kind.fields[at].shown(values[at])


## The number of ticks in a second of real time at the current rate; 0 before the first snapshot.
func ticks_per_second() -> float:
	return 0.0 if grid == null else grid.ticks_per_second * (rate_permille / 1000.0)


## By how many ticks before the base of the last snapshot the cells of a zone were sent last.
func wait_ticks(zone: int) -> int:
	return waited >> 4 * zone & 15


## The tick that a player sees at a server time; 0 before the first snapshot.
func tick_at(server_ms: float) -> int:
	if tick == 0:
		return 0
	return int(clampf(roundf(tick + (server_ms - time_us / 1000.0) * ticks_per_second() / 1000.0), 1, 0xffffffff))


## Applies the data of a publication without an offset.
func apply(bytes: PackedByteArray) -> Status:
	var snapshot := Snapshot.new(bytes, objects_max, grid)
	if snapshot.is_malformed or snapshot.base == 0 and (snapshot.grid == null or not snapshot.grid.is_possible()):
		return Status.MALFORMED
	if snapshot.base != 0 and snapshot.base != tick:
		return Status.WRONG_BASE
	if snapshot.is_too_large:
		return Status.TOO_LARGE
	var map: Grid = snapshot.grid if snapshot.base == 0 else grid
	_status = _check(snapshot, map)
	if _status == Status.OK:
		_find_outcome(snapshot, map)
	if _status == Status.OK:
		_take(snapshot, map)
	_outcome = {}
	_touched = {}
	return _status


func _check(snapshot: Snapshot, map: Grid) -> Status:
	if not map.has_cell(snapshot.view):
		return Status.WRONG_CELL
	var is_malformed := not _are_possible(snapshot.own, map.columns * map.cell_units, map.rows * map.cell_units)
	for at in snapshot.cells.size():
		var cell := snapshot.cells[at]
		if not map.has_cell(cell.cell) or not map.is_visible(snapshot.view, cell.cell):
			return Status.WRONG_CELL
		is_malformed = is_malformed or not _are_possible(cell.upserts, map.cell_units, map.cell_units) or cell.departed.has(0)
		if at > 0:
			var previous := snapshot.cells[at - 1]
			# A cell may stand twice, in full first.
			is_malformed = is_malformed or previous.cell >= cell.cell + int(previous.is_full and not cell.is_full)
	return Status.MALFORMED if is_malformed else Status.OK


func _are_possible(given: Array[DunlinObject], width: int, height: int) -> bool:
	for one in given:
		if one.id == 0 or one.kind > 0xffff or one.x >= width or one.y >= height:
			return false
	return true


func _find_outcome(snapshot: Snapshot, map: Grid) -> void:
	_touched = {}
	_outcome = {} if snapshot.base == 0 else objects.duplicate()
	_outcome_bytes = 0 if snapshot.base == 0 else _state_bytes
	if snapshot.has_own:
		_forget(func(one: DunlinObject) -> bool: return one.cell < 0)
		for one in snapshot.own:
			_put(one)
	var emptied := {}
	for cell in snapshot.cells:
		if cell.is_full:
			emptied[cell.cell] = true
	if snapshot.base != 0 and (snapshot.view != view or not emptied.is_empty()):
		_forget(func(one: DunlinObject) -> bool: return one.cell >= 0 and (emptied.has(one.cell) or not map.is_visible(snapshot.view, one.cell)))
	for cell in snapshot.cells:
		for id in cell.departed:
			var one: DunlinObject = _outcome.get(id)
			if one != null and one.cell == cell.cell:
				_erase(one)
	for cell in snapshot.cells:
		@warning_ignore("integer_division")
		var top := cell.cell / map.columns * map.cell_units
		var left := cell.cell % map.columns * map.cell_units
		for one in cell.upserts:
			one.x += left
			one.y += top
			one.cell = cell.cell
			_put(one)
		if not cell.changes.is_empty():
			_read_changes(cell, map, left, top, snapshot.base == 0)
		if _status != Status.OK:
			return


func _forget(is_gone: Callable) -> void:
	for one: DunlinObject in _outcome.values():
		if is_gone.call(one):
			_erase(one)


func _erase(one: DunlinObject) -> void:
	_outcome.erase(one.id)
	_outcome_bytes -= one.state.size()
	_touched[one.id] = true


func _put(one: DunlinObject) -> void:
	var known: DunlinObject = _outcome.get(one.id)
	_outcome_bytes += one.state.size() - (0 if known == null else known.state.size())
	_outcome[one.id] = one
	_touched[one.id] = true
	if _outcome.size() > objects_max or _outcome_bytes > state_bytes_max:
		_status = Status.TOO_LARGE


## Reads the changed objects of a cell, which build on those before the snapshot.
func _read_changes(cell: Snapshot.Cell, map: Grid, left: int, top: int, has_no_base: bool) -> void:
	if has_no_base or cell.is_full or schema == null:
		_status = Status.MALFORMED
		return
	var bits := BitReader.new(cell.changes)
	var id := 0
	var last: Schema.Kind = null
	var last_set := 0
	for count in bits.take_count():
		id += bits.take_count() + 1
		var known: DunlinObject = objects.get(id)
		var kind: Schema.Kind = null if known == null or known.cell != cell.cell else schema.kind_of(known.kind)
		if kind == null or bits.failed or known.values_in(schema) == null:
			_status = Status.MALFORMED
			return
		if bits.take(1) == 0:
			last = kind
			last_set = bits.take(kind.fields.size() + 1)
		var one := _changed(bits, known, kind, last_set, map) if last == kind and last_set != 0 else null
		if one == null or bits.failed or one.x < 0 or one.x >= map.cell_units or one.y < 0 or one.y >= map.cell_units:
			_status = Status.MALFORMED
			return
		one.x += left
		one.y += top
		_put(one)
		if _status != Status.OK:
			return
	if bits.failed or not bits.is_at_end():
		_status = Status.MALFORMED


## The object after its changes, at a place in the cell; null if they are not possible.
func _changed(bits: BitReader, known: DunlinObject, kind: Schema.Kind, parts: int, map: Grid) -> DunlinObject:
	var one := DunlinObject.new()
	one.id = known.id
	one.kind = known.kind
	one.cell = known.cell
	one.x = known.x - known.cell % map.columns * map.cell_units
	@warning_ignore("integer_division")
	one.y = known.y - known.cell / map.columns * map.cell_units
	if parts & 1:
		var step := bits.take(2)
		if step < STEP_BITS.size():
			one.x += bits.take_signed(STEP_BITS[step])
			one.y += bits.take_signed(STEP_BITS[step])
		else:
			var width := BitReader.width_of(map.cell_units - 1)
			one.x = bits.take(width)
			one.y = bits.take(width)
	var values: Array = known.values_in(schema).duplicate()
	for at in kind.fields.size():
		if parts >> (at + 1) & 1:
			values[at] = Schema.read_change(bits, kind.fields[at], values[at])
			if values[at] == null:
				return null
	one.state = Schema.join(kind, values)
	# The next change builds on them.
	one._values = values
	one._split_by = schema
	return one


func _take(snapshot: Snapshot, map: Grid) -> void:
	changes = DunlinChanges.new()
	changes.tick = snapshot.tick
	changes.is_full = snapshot.base == 0
	if changes.is_full:
		_touched.merge(objects)
	for id: int in _touched:
		var was: DunlinObject = objects.get(id)
		var now: DunlinObject = _outcome.get(id)
		if was == null and now != null:
			changes.added.append(now)
		elif was != null and now == null:
			changes.removed.append(was)
		elif was != null and not was.is_same_as(now):
			changes.changed.append(now)
			changes.before.append(was)
	updated_zones.fill(false)
	for cell in snapshot.cells:
		# A cell in full may only have come into view.
		if not cell.is_full:
			updated_zones[map.zone(snapshot.view, cell.cell)] = true
	objects = _outcome
	_state_bytes = _outcome_bytes
	grid = map
	if snapshot.schema != null:
		schema = snapshot.schema
	tick = snapshot.tick
	base = snapshot.base
	time_us = snapshot.time_us
	rate_permille = snapshot.rate_permille
	waited = snapshot.waited
	has_moved = snapshot.has_moved
	ack = snapshot.ack
	avatar = snapshot.avatar
	view = snapshot.view
