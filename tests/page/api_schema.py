"""Checks JSON values against the schemas of the API's OpenAPI document."""
import json
import pathlib

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "proto" / "openapi.json"
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}


class ApiSchema:
    def __init__(self, path=DOCUMENT):
        self.document = json.loads(pathlib.Path(path).read_text())

    def of_answer(self, path):
        """Returns the schema of the successful answer of GET `path`, as the document names it."""
        return self.document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]

    def problems(self, value, schema, where="$"):
        """Yields what differs from the schema: missing members, members of another type."""
        if "$ref" in schema:
            found = self.document
            for part in schema["$ref"].lstrip("#/").split("/"):
                found = found[part]
            yield from self.problems(value, found, where)
            return
        for key in ("oneOf", "anyOf"):
            if key in schema:
                tried = [list(self.problems(value, one, where)) for one in schema[key]]
                if all(tried):
                    yield from min(tried, key=len)
                return
        names = schema.get("type", [])
        names = [names] if isinstance(names, str) else names
        fits = [name for name in names if isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name in ("integer", "number"))]
        if names and not fits:
            yield f"{where} is {type(value).__name__}, not {' or '.join(names)}"
            return
        if "enum" in schema and value not in schema["enum"]:
            yield f"{where} is {value!r}, not one of {schema['enum']}"
        if isinstance(value, dict):
            for name in schema.get("required", []):
                if name not in value:
                    yield f"{where} lacks {name}"
            rest = schema.get("additionalProperties", True)
            for name, inner in value.items():
                member = schema.get("properties", {}).get(name, rest if isinstance(rest, dict) else {})
                if rest is False and name not in schema.get("properties", {}):
                    yield f"{where} has {name}"
                yield from self.problems(inner, member, f"{where}.{name}")
        if isinstance(value, list):
            for i, inner in enumerate(value[:50]):
                yield from self.problems(inner, schema.get("items", {}), f"{where}[{i}]")
