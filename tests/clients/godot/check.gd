extends SceneTree
## Checks of clients/godot, one mode a run:
##     godot --headless --path FOLDER --script check.gd -- vectors LINES | recording FILE | scripted | readme | play URL

var failures := 0


func check(condition: bool, what: String) -> void:
	if condition:
		return
	failures += 1
	if failures <= 20:
		printerr("FAILED " + what)


func _initialize() -> void:
	var arguments := OS.get_cmdline_user_args()
	run(arguments[0], arguments[1] if arguments.size() > 1 else "")


func run(mode: String, argument: String) -> void:
	var count := 0
	match mode:
		"vectors", "recording":
			var vectors: RefCounted = load("res://vectors.gd").new()
			vectors.check = check
			count = vectors.run(argument) if mode == "vectors" else vectors.recording(argument)
		"scripted":
			var scripted: RefCounted = load("res://scripted.gd").new()
			scripted.check = check
			count = await scripted.run()
		"readme":
			var scripted: RefCounted = load("res://scripted.gd").new()
			scripted.check = check
			await process_frame                                # before it, nothing is in the tree
			scripted.readme(load("res://readme.gd").new(), root)
			count = 1
		"play":
			var play: RefCounted = load("res://play.gd").new()
			play.check = check
			count = await play.run(argument, self)
		_:
			check(false, "no such mode: " + mode)
	check(count > 0, "nothing ran")
	print("%s: %d passed, %d failed" % [mode, count, failures])
	quit(0 if failures == 0 else 1)
