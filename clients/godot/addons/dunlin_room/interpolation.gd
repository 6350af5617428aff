class_name DunlinInterpolation
extends RefCounted
## Smooth movement of objects that others control. They are shown with a delay, just long enough that the snapshot after the shown time has
## usually arrived. Far cells do not come with each snapshot, nor do other cells under a bandwidth limit, so objects in them are shown later by a
## second delay.

const Grid := preload("grid.gd")
const DELAY_MIN_MS := 10.0
const DELAY_MAX_MS := 500.0
## The recent arrivals that determine the delay, the share of them that it covers, and what is added.
const ARRIVALS := 120
const COVERED := 0.97
const MARGIN_MS := 2.0
const SAMPLES_MAX := 64
## All samples of all objects with their states. Beyond it, objects have fewer samples, or are shown where they are.
const SAMPLE_BYTES_MAX := 64 << 20
## A track, and a sample with its object, as Godot 4.6 for 64 bits keeps them in a debug build.
const BYTES_OF_TRACK := 1500
const BYTES_OF_SAMPLE := 1500
## The shown time runs at most this much faster or slower than the clock; at a larger difference, it jumps.
const SLEW_MAX := 0.1
const JUMP_MS := 500.0
## The same for objects that enter or leave a zone.
const ZONE_UPDATES := 30
const ZONE_SLEW_MAX := 0.25
## A server that limits bandwidth sends far cells when they are this old, and is expected to do so again for some seconds.
const FAR_WAIT_TICKS := 13
const FAR_LATE_S := 2


class Track:
	extends RefCounted

	## What is known, in the order of time: places and objects at times.
	var times := PackedFloat64Array()
	var objects: Array[DunlinObject] = []
	var bytes := PackedInt32Array()
	## The zone of its cell when it changed last.
	var zone := 0
	## How much later than others it is shown.
	var lag_ms := 0.0
	## The last shown time.
	var shown_ms := NAN


var delay_ms := DELAY_MIN_MS
var far_delay_ms: float:
	get:
		return _zone_delays_ms[Grid.FAR_ZONE]

var _tracks := {}
var _sample_bytes := 0
var _needs_ms := PackedFloat64Array()
## By zone: what its last updates needed besides the delay, and the second delay. The nearest zone never waits.
var _zone_needs_ms: Array[PackedFloat64Array]
var _zone_delays_ms: PackedFloat64Array
## The view of the last snapshot.
var _last_view := 0
var _replica: DunlinReplica
var _far_tick := 0
var _far_late_tick := 0
var _last_ms := NAN
var _shown_ms := NAN
var _shown_at_ms := 0.0


func _init() -> void:
	clear()


func clear() -> void:
	delay_ms = DELAY_MIN_MS
	_tracks = {}
	_sample_bytes = 0
	_needs_ms = PackedFloat64Array()
	_zone_needs_ms = []
	for zone in Grid.ZONES:
		_zone_needs_ms.append(PackedFloat64Array())
	_zone_delays_ms = PackedFloat64Array([0, 0, 0, 0])
	_far_tick = 0
	_far_late_tick = 0
	_last_ms = NAN
	_shown_ms = NAN


## The server's clock is another one: samples of before have no time on it.
func forget_samples() -> void:
	for track: Track in _tracks.values():
		_forget(track, track.objects.size())
		track.lag_ms = _zone_delays_ms[track.zone]
		track.shown_ms = NAN
	_last_ms = NAN
	_shown_ms = NAN


## The number of objects that are followed.
func count() -> int:
	return _tracks.size()


## After each snapshot, with the server time of its arrival.
func observe(replica: DunlinReplica, arrived_ms: float) -> void:
	var changes := replica.changes
	var at_ms := replica.time_us / 1000.0
	_replica = replica
	# Until now the newest known time was that of the last snapshot: this delay would have been long enough.
	if not is_nan(_last_ms) and not changes.is_full:
		# What it needs besides the interval of a slowed room is kept, so that it follows the rate at once.
		var slowed_ms := (1000.0 / replica.rate_permille - 1.0) * (1000.0 / replica.grid.ticks_per_second)
		delay_ms = clampf(_cover(_needs_ms, ARRIVALS, arrived_ms - _last_ms - slowed_ms) + slowed_ms + MARGIN_MS, DELAY_MIN_MS, DELAY_MAX_MS)
	if not is_nan(_last_ms):
		_measure_zones(at_ms)
	for one in changes.removed:
		_remove(one.id)
	for one in changes.added:
		_remove(one.id)
		var track := _begin_track(one.id)
		if track == null:
			continue
		track.zone = replica.grid.zone(replica.view, one.cell)
		track.lag_ms = _zone_delays_ms[track.zone]
		_add(track, one, at_ms)
	for at in changes.changed.size():
		_follow(changes.before[at], changes.changed[at], at_ms)
	if changes.is_full or replica.updated_zones[Grid.FAR_ZONE]:
		_far_tick = replica.tick
	_last_ms = at_ms
	_last_view = replica.view


## The server time to show at a time of the server's clock. It never decreases.
func advance(server_ms: float) -> float:
	var wanted_ms := server_ms - delay_ms
	if is_nan(_shown_ms) or absf(wanted_ms - _shown_ms) > JUMP_MS:
		_shown_ms = wanted_ms
	else:
		var passed_ms := maxf(0, server_ms - _shown_at_ms)
		_shown_ms += passed_ms + clampf(wanted_ms - _shown_ms - passed_ms, -SLEW_MAX * passed_ms, SLEW_MAX * passed_ms)
	_shown_at_ms = server_ms
	return _shown_ms


func is_followed(id: int) -> bool:
	return _tracks.has(id) and not _tracks[id].objects.is_empty()


## Where an object was at a server time. Ask [method is_followed] before.
func place(id: int, at_ms: float) -> Vector2:
	var track: Track = _tracks[id]
	var share := _share(track, at_ms)
	var from := track.objects[0]
	if share == 0:
		return Vector2(from.x, from.y)
	var to := track.objects[1]
	return Vector2(from.x + (to.x - from.x) * share, from.y + (to.y - from.y) * share)


## The number of a field at a server time, between two known ones as its motion says, and divided by its [code]per_unit[/code]. Of a flag it is 1 or 0, of a
## choice its index, of a reference an id. NAN if the object is not followed, or has no such number.
func number(id: int, field_name: String, at_ms: float) -> float:
	var kind: RefCounted = null
	if is_followed(id) and _replica.schema != null:
		kind = _replica.schema.kind_of(_tracks[id].objects[0].kind)
	var place_of_field: int = -1 if kind == null else kind.index(field_name)
	if place_of_field < 0 or kind.fields[place_of_field].is_long:
		return NAN
	var field: RefCounted = kind.fields[place_of_field]
	var track: Track = _tracks[id]
	var share := _share(track, at_ms)
	var from: Variant = track.objects[0].values_in(_replica.schema)
	var to: Variant = track.objects[1].values_in(_replica.schema) if share > 0 and track.objects[1].kind == kind.number else null
	if from == null:
		return NAN
	var value := float(from[place_of_field])
	if to == null or field.motion == "step" or field.type != "integer":
		return value / field.per_unit
	var turn: int = field.most - field.least + 1
	var way: int = to[place_of_field] - from[place_of_field]
	# Half a turn goes up, in either direction.
	if field.motion == "angle" and 2 * way > turn:
		way -= turn
	elif field.motion == "angle" and 2 * way <= -turn:
		way += turn
	value += way * share
	if field.motion == "angle":
		value = field.least + fposmod(value - field.least, turn)
	return value / field.per_unit


## How far the shown time is from the first sample to the second one; 0: the first alone counts.
func _share(track: Track, at_ms: float) -> float:
	at_ms -= _lag(track, at_ms)
	# Of those before the shown time, only the last is needed.
	var past := 0
	while past + 1 < track.times.size() and track.times[past + 1] <= at_ms:
		past += 1
	_forget(track, past)
	if track.objects.size() == 1 or at_ms <= track.times[0]:
		return 0.0
	var from := track.objects[0]
	var to := track.objects[1]
	# A longer step is a teleport.
	if Vector2(from.x, from.y).distance_to(Vector2(to.x, to.y)) > _replica.grid.cell_units:
		return 0.0
	return (at_ms - track.times[0]) / (track.times[1] - track.times[0])


## The delay of an object changes slowly, so that it does not jump.
func _lag(track: Track, at_ms: float) -> float:
	var passed_ms := 0.0 if is_nan(track.shown_ms) else maxf(0, at_ms - track.shown_ms)
	var wanted_ms := _zone_delays_ms[track.zone] - track.lag_ms
	track.lag_ms += clampf(wanted_ms, -ZONE_SLEW_MAX * passed_ms, ZONE_SLEW_MAX * passed_ms)
	track.shown_ms = at_ms if is_nan(track.shown_ms) else maxf(at_ms, track.shown_ms)
	return track.lag_ms


func _follow(before: DunlinObject, after: DunlinObject, at_ms: float) -> void:
	if before.x == after.x and before.y == after.y and before.state == after.state:
		return
	var track: Track = _tracks.get(after.id)
	if track == null:
		track = _begin_track(after.id)
	if track == null:
		return
	track.zone = _replica.grid.zone(_replica.view, after.cell)
	var zone_before := _replica.grid.zone(_last_view, before.cell)
	var stood_until_ms := _stood_until(zone_before, at_ms)
	# The object did not change until the base of this snapshot, or the last update of its zone.
	if track.times.is_empty() or track.times[-1] < stood_until_ms:
		_add(track, before, stood_until_ms)
	if _replica.wait_ticks(zone_before) > 0:
		_resume(track)
	_add(track, after, at_ms)
	_forget(track, track.times.size() - SAMPLES_MAX)


## An object whose cell waited for longer than the delay was shown where it was then. It goes on from there.
func _resume(track: Track) -> void:
	if track.times.is_empty() or is_nan(track.shown_ms):
		return
	var stood_ms := maxf(0, track.shown_ms - track.lag_ms - track.times[-1])
	track.lag_ms = maxf(track.lag_ms, minf(DELAY_MAX_MS, track.lag_ms + stood_ms))


## Null if there is no room for another one.
func _begin_track(id: int) -> Track:
	if _sample_bytes + BYTES_OF_TRACK > SAMPLE_BYTES_MAX:
		return null
	_sample_bytes += BYTES_OF_TRACK
	var track := Track.new()
	_tracks[id] = track
	return track


## Adds a sample, if need be in place of the oldest ones. If even that is too much, the object is not followed until it changes again.
func _add(track: Track, one: DunlinObject, at_ms: float) -> void:
	var bytes := _bytes_of(one)
	while not track.objects.is_empty() and _sample_bytes + bytes > SAMPLE_BYTES_MAX:
		_forget(track, 1)
	if _sample_bytes + bytes > SAMPLE_BYTES_MAX:
		return
	track.times.append(at_ms)
	track.objects.append(one)
	track.bytes.append(bytes)
	_sample_bytes += bytes


func _forget(track: Track, gone: int) -> void:
	if gone <= 0:
		return
	for at in gone:
		_sample_bytes -= track.bytes[at]
	track.times = track.times.slice(gone)
	track.objects = track.objects.slice(gone)
	track.bytes = track.bytes.slice(gone)


func _remove(id: int) -> void:
	if _tracks.has(id):
		_forget(_tracks[id], _tracks[id].objects.size())
		_tracks.erase(id)
		_sample_bytes -= BYTES_OF_TRACK


func _bytes_of(one: DunlinObject) -> int:
	var kind: RefCounted = null if _replica.schema == null else _replica.schema.kind_of(one.kind)
	return BYTES_OF_SAMPLE + one.state.size() + (0 if kind == null else kind.bytes_of_values(one.state))


## Until when an object in this zone, as seen from the last view, had not changed.
func _stood_until(zone: int, at_ms: float) -> float:
	if _replica.base == 0:
		return at_ms
	var per_second := _replica.ticks_per_second()
	# After a longer time far cells were sent, but nothing had changed in them.
	var is_postponed := _far_late_tick > 0 and _replica.tick - _far_late_tick < FAR_LATE_S * per_second and _replica.base - _far_tick < FAR_WAIT_TICKS
	var known_tick := _replica.base
	if _replica.waited != 0:
		known_tick -= _replica.wait_ticks(zone)
	elif zone == Grid.FAR_ZONE:
		known_tick = _far_tick if is_postponed else _replica.grid.far_multiple(_replica.base)
	if known_tick == _replica.base and not is_nan(_last_ms):
		return minf(_last_ms, at_ms)
	return at_ms - (_replica.tick - known_tick) / per_second * 1000.0


## Measures how much longer it is from one update of a zone to the next than between snapshots.
func _measure_zones(at_ms: float) -> void:
	# A server that does not say that far cells have waited.
	var is_far_late := _replica.waited == 0 and _replica.grid.far_multiple(_replica.tick) <= _replica.base
	if _replica.updated_zones[Grid.FAR_ZONE] and is_far_late:
		_far_late_tick = _replica.tick
	for zone in Grid.ZONES:
		if _replica.updated_zones[zone]:
			var needed_ms := maxf(0, _last_ms - _stood_until(zone, at_ms))
			_zone_delays_ms[zone] = minf(DELAY_MAX_MS, _cover(_zone_needs_ms[zone], ZONE_UPDATES, needed_ms))


## Adds a value, and returns the delay that covers nearly all of the last ones.
func _cover(needs_ms: PackedFloat64Array, most: int, needed_ms: float) -> float:
	if needs_ms.size() == most:
		needs_ms.remove_at(0)
	needs_ms.append(needed_ms)
	var sorted := needs_ms.duplicate()
	sorted.sort()
	return sorted[mini(sorted.size() - 1, floori(sorted.size() * COVERED))]
