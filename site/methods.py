"""The page of the server API's methods, written from schema/openapi.json."""

import json
from pathlib import Path

BEGIN = """# Methods of the server API

To look up a method of the [server API](http-api.md) or a field of its requests and results: this page is written from
`schema/openapi.json`, which the node also serves at `/swagger/openapi.json` if `swagger.enabled` is true. A missing field and `null` are
the same as an empty one. The answer is `{"result": …}` or `{"error": …}`.
"""
TABLE = "| field | type | meaning |\n|---|---|---|"


def page(schema: Path) -> str:
    document = json.loads(schema.read_text())
    schemas = document["components"]["schemas"]
    methods = {path: methods["post"] for path, methods in sorted(document["paths"].items())}
    # Objects with a section each: their names, and the anchors of the sections.
    shared = {request_of(method): method["operationId"] for method in methods.values()}
    requests = len(shared)
    parts = [BEGIN]
    for path, method in methods.items():
        request, result = schemas[request_of(method)], result_of(method, schemas)
        parts.append(f"## {method['operationId']}\n\n{method['summary']} `POST {path}`\n")
        parts.append(f"Request:\n\n{table(request, shared)}\n" if request.get("properties") else "The request has no fields.\n")
        parts.append(f"Result:\n\n{table(result, shared)}\n" if result.get("properties") else "The result has no fields.\n")
    parts.append("## Objects\n\nWhat the fields above contain.\n")
    written = requests
    # It grows while its objects are written, by those that they contain.
    while written < len(shared):
        name = list(shared)[written]
        parts.append(f"### {name}\n\n{table(schemas[name], shared)}\n")
        written += 1
    return "\n".join(parts)


def name_of(reference: dict) -> str:
    return reference["$ref"].rsplit("/", 1)[1]


def request_of(method: dict) -> str:
    return name_of(method["requestBody"]["content"]["application/json"]["schema"])


def result_of(method: dict, schemas: dict) -> dict:
    """The object that `result` is; that of `batch` is the answer itself."""
    answer = method["responses"]["200"]["content"]["application/json"]["schema"]
    if "$ref" in answer:
        answer = schemas[name_of(answer)]
    success = answer["oneOf"][0]
    result = success["properties"].get("result")
    return schemas[name_of(result)] if result else success


def table(schema: dict, shared: dict[str, str]) -> str:
    if "oneOf" in schema:
        fields = {name: field for choice in schema["oneOf"] for name, field in choice["properties"].items()}
        return f"One of these fields:\n\n{rows(fields, set(), shared)}"
    return rows(schema["properties"], set(schema.get("required", [])), shared)


def rows(fields: dict, required: set[str], shared: dict[str, str]) -> str:
    lines = [TABLE]
    for name, field in fields.items():
        needed = ", required" if name in required else ""
        meaning = field.get("description", "").replace("|", "\\|")
        lines.append(f"| `{name}` | {type_of(field, shared)}{needed} | {meaning} |")
    return "\n".join(lines)


def type_of(field: dict, shared: dict[str, str]) -> str:
    if "$ref" in field:
        name = name_of(field)
        return f"[{name}](#{shared.setdefault(name, name.lower())})"
    if choices := field.get("anyOf"):
        return " or ".join(dict.fromkeys(type_of(choice, shared) for choice in choices if choice.get("type") != "null"))
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kinds = field.get("type", "any JSON")
    kind = kinds if isinstance(kinds, str) else next(kind for kind in kinds if kind != "null")
    if kind == "array":
        return f"list of {type_of(field['items'], shared)}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"object of {type_of(field['additionalProperties'], shared)}"
    return kind
