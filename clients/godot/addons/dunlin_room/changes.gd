class_name DunlinChanges
extends RefCounted
## What a snapshot has changed.

## The first snapshot after a join, and others that do not build on an earlier one.
var is_full := false
var tick := 0
var added: Array[DunlinObject] = []
## Objects as they are now. [member before] has them, in the same order, as they were.
var changed: Array[DunlinObject] = []
var before: Array[DunlinObject] = []
var removed: Array[DunlinObject] = []
