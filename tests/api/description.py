"""Validates requests and responses against schema/openapi.json. Supports the part of JSON Schema that the file uses."""

import json
from pathlib import Path

KEYWORDS = {
    "$ref", "additionalProperties", "anyOf", "description", "enum", "items", "maximum", "minimum", "oneOf", "properties",
    "required", "type",
}
TYPES = {
    "array": list, "boolean": bool, "integer": int, "null": type(None), "number": (int, float), "object": dict, "string": str,
}


class Description:
    def __init__(self):
        path = Path(__file__).resolve().parents[2] / "schema/openapi.json"
        self.document = json.loads(path.read_text("utf-8"))
        self.checked = set()

    def problem(self, path, body, status, answer):
        """The first violation, or None. Requests are validated only if they had a result."""
        described = self.document["paths"].get(path)
        if described is None:
            return None
        self.checked.add(path)
        of_json = lambda content: content["content"]["application/json"]["schema"]
        response = described["post"]["responses"].get(str(status))
        if response is None:
            return f"status {status} is not described"
        problem = self.fits(answer, of_json(response), "answer")
        if problem is None and status == 200 and '"error"' not in json.dumps(answer) and body is not None:
            problem = self.fits(body, of_json(described["post"]["requestBody"]), "request")
        return problem

    def fits(self, value, schema, at):
        unknown = schema.keys() - KEYWORDS
        assert not unknown, f"this checker does not know {unknown}"
        if "$ref" in schema:
            found = self.document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            return self.fits(value, found, at)
        for choice, count in (("oneOf", 1), ("anyOf", None)):
            if choice in schema:
                problems = [self.fits(value, one, at) for one in schema[choice]]
                fitting = problems.count(None)
                if fitting == 0:
                    return f"{at} fits none of {len(problems)}: {problems}"
                if count is not None and fitting != count:
                    return f"{at} fits {fitting} of {choice}"
        if "enum" in schema and value not in schema["enum"]:
            return f"{at} is none of {schema['enum']}"
        return self.of_type(value, schema, at) or self.inside(value, schema, at)

    def of_type(self, value, schema, at):
        names = schema.get("type", [])
        names = [names] if isinstance(names, str) else names
        fits = lambda name: isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
        if names and not any(map(fits, names)):
            return f"{at} is no {' or '.join(names)}"
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if value < schema.get("minimum", value) or value > schema.get("maximum", value):
                return f"{at} is out of bounds"
        return None

    def inside(self, value, schema, at):
        if isinstance(value, list) and "items" in schema:
            problems = (self.fits(item, schema["items"], f"{at}[{index}]") for index, item in enumerate(value))
            return next(filter(None, problems), None)
        if not isinstance(value, dict):
            return None
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name in schema.get("required", []):
            if name not in value:
                return f"{at} has no {name}"
        for name, item in value.items():
            if name not in known and rest is False:
                return f"{at} has a {name}, which is not described"
            inner = known.get(name, rest)
            problem = self.fits(item, inner, f"{at}.{name}") if isinstance(inner, dict) else None
            if problem:
                return problem
        return None
