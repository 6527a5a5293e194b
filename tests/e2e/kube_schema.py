"""Strict validation of objects against Kubernetes' own API description: no unknown fields, no
missing fields, correct types.
"""
import json
import re

QUANTITY = re.compile(r"^[+-]?[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei|[eE][+-]?[0-9]+)?$")
TYPES = {"string": str, "integer": int, "boolean": bool, "number": (int, float), "object": dict, "array": list}


class Schemas:
    def __init__(self, path):
        self.definitions = json.loads(path.read_text())["definitions"]
        self.kinds = {}
        for name, definition in self.definitions.items():
            for kind in definition.get("x-kubernetes-group-version-kind", []):
                if "apiVersion" in definition.get("properties", {}):
                    version = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
                    self.kinds[version, kind["kind"]] = name

    def add_custom(self, description):
        """Adds the kinds of a CustomResourceDefinition."""
        spec = description["spec"]
        for version in spec["versions"]:
            name = f"{spec['group']}/{version['name']}/{spec['names']['kind']}"
            self.definitions[name] = version["schema"]["openAPIV3Schema"]
            self.kinds[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = name

    def has_kind(self, document):
        return (document.get("apiVersion"), document.get("kind")) in self.kinds

    def errors(self, document):
        """Returns the errors, one line each."""
        name = self.kinds[document["apiVersion"], document["kind"]]
        return list(self.check(document, self.definitions[name], document["kind"]))

    def check(self, value, schema, where):
        if "$ref" in schema:
            name = schema["$ref"].split("/")[-1]
            if name.endswith(".api.resource.Quantity"):
                if not QUANTITY.match(str(value)):
                    yield f"{where}: {value!r} is no quantity"
                return
            schema = self.definitions[name]
        if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                yield f"{where}: {value!r} is neither a number nor a text"
            return
        kind = schema.get("type")
        if kind and (not isinstance(value, TYPES[kind]) or (kind in ("integer", "number") and isinstance(value, bool))):
            yield f"{where}: {value!r} is no {kind}"
            return
        if "enum" in schema and value not in schema["enum"]:
            yield f"{where}: {value!r} is none of {schema['enum']}"
        if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{where}: {value!r} does not match {schema['pattern']}"
        if isinstance(value, dict):
            yield from self.check_object(value, schema, where)
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.check(item, schema.get("items", {}), f"{where}[{index}]")

    def check_object(self, value, schema, where):
        known, more = schema.get("properties"), schema.get("additionalProperties")
        for key in schema.get("required", []):
            if key not in value:
                yield f"{where}: {key} is missing"
        for key, item in value.items():
            if known and key in known:
                yield from self.check(item, known[key], f"{where}.{key}")
            elif isinstance(more, dict):
                yield from self.check(item, more, f"{where}.{key}")
            elif known:
                yield f"{where}: there is no field {key}"
