extends SceneTree
## Prints what is read from each line of a file, as write_sources.rs does: print.gd -- FILE

const States := preload("res://states.gd")


func _initialize() -> void:
	for line in FileAccess.get_file_as_string(OS.get_cmdline_user_args()[0]).split("\n", false):
		var words := line.split(" ")
		var shown: String
		match words[0]:
			"between":
				var from := States.WalkerState.read(bytes_of(words[1]))
				var one := States.WalkerState.between(from, States.WalkerState.read(bytes_of(words[2])), float(words[3]))
				shown = "heading=%.2f score=%.2f light=%s" % [one.heading, one.score, one.light]
			"1":
				shown = walker(States.WalkerState.read(bytes_of(words[1])))
			"2":
				shown = bag(States.BagState.read(bytes_of(words[1])))
			_:
				shown = log_(States.LogState.read(bytes_of(words[1])))
		print(line, " ", shown)
	quit()


func walker(one: States.WalkerState) -> String:
	if one == null:
		return "-"
	var values := [one.heading, one.score, int(one.is_on), one.light, one.target, one.wide, one.deep, hex(one.name)]
	return "heading=%.1f score=%.1f is_on=%d light=%s target=%d wide=%d deep=%d name=%s" % values


func bag(one: States.BagState) -> String:
	return "-" if one == null else "label=%s pair=%s amount=%d items=%s" % [hex(one.label), numbers(one.pair), one.amount, numbers(one.items)]


func log_(one: States.LogState) -> String:
	return "-" if one == null else "numbers=%s long=%s class=%d" % [numbers(one.numbers), numbers(one.long), one.class_]


func numbers(items: PackedInt64Array) -> String:
	return ",".join(Array(items).map(str))


func hex(text: String) -> String:
	return text.to_utf8_buffer().hex_encode()


func bytes_of(word: String) -> PackedByteArray:
	return PackedByteArray() if word == "empty" else word.hex_decode()
