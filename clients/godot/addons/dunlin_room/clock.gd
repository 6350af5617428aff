class_name DunlinClock
extends RefCounted
## An estimate of the server's clock: the shortest latency of the last seconds.

## The shortest latency is remembered for at most twice this time, because clocks drift.
const WINDOW_MS := 5000.0
## A larger difference is not latency: a clock was set, or the machine slept.
const JUMP_MS := 10_000.0

var _window_start_ms := 0.0
var _least_ms := INF
var _least_before_ms := INF


func clear() -> void:
	_window_start_ms = 0.0
	_least_ms = INF
	_least_before_ms = INF


## What to add to the local clock.
func offset_ms() -> float:
	var least := minf(_least_ms, _least_before_ms)
	return 0.0 if is_inf(least) else -least


func server_time_ms(now_ms: float) -> float:
	return now_ms + offset_ms()


## A snapshot arrived. Returns its delay relative to the shortest latency.
func observe(time_us: int, now_ms: float) -> float:
	var way_ms := now_ms - time_us / 1000.0
	var passed_ms := now_ms - _window_start_ms
	if absf(way_ms + offset_ms()) > JUMP_MS:
		_least_ms = INF
		_least_before_ms = INF
	if passed_ms >= WINDOW_MS or passed_ms < 0:
		_least_before_ms = _least_ms if passed_ms < 2 * WINDOW_MS else INF
		_least_ms = INF
		_window_start_ms = now_ms
	_least_ms = minf(_least_ms, way_ms)
	return way_ms + offset_ms()
