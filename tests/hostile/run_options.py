"""Options of the command line."""


def option(arguments, name):
    """Removes `name` and its value from `arguments`. Returns the value, or None if `name` is absent."""
    if name not in arguments:
        return None
    at = arguments.index(name)
    value = arguments[at + 1]
    del arguments[at : at + 2]
    return value
