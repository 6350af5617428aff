"""Options of the command line."""


def option(arguments, name):
    """The value behind `name`, both taken out of `arguments`; nothing if it is not there."""
    if name not in arguments:
        return None
    at = arguments.index(name)
    value = arguments[at + 1]
    del arguments[at : at + 2]
    return value
