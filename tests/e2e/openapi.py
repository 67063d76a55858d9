"""Checks requests and replies of the API against its own description. Used by test_openapi.py."""
import json
import re
import sys
import urllib.parse

import harness
import pytest

PACKAGES = harness.BUILD / "python"  # scripts/setup.sh --tests
if not (PACKAGES / "requirements.txt").exists():
    pytest.skip(f"there is no {PACKAGES}: scripts/setup.sh --tests", allow_module_level=True)
sys.path.insert(0, str(PACKAGES))
import jsonschema  # noqa: E402


def is_problem(content_type: str) -> bool:
    return content_type == "application/problem+json"


class Description:
    """The document, and what of it was seen."""

    def __init__(self, document: dict) -> None:
        self.document = document
        self.operations = {(method.upper(), path): operation for path, item in document["paths"].items() for method, operation in item.items()}
        self.validators: dict[str, jsonschema.Draft202012Validator] = {}
        self.statuses: set[tuple[str, str]] = set()  # (operationId, status)
        self.inputs: set[tuple[str, str]] = set()  # (operationId, "query dry_run", "header If-Match", "body" or "body member")
        self.codes: set[str] = set()

    def resolved(self, schema: dict) -> dict:
        if "$ref" not in schema:
            return schema
        at = self.document
        for word in schema["$ref"].removeprefix("#/").split("/"):
            at = at[word]
        return at

    def strict(self, schema: dict, part: bool = False) -> dict:
        """The schema, which then refuses every member that it does not name. `part`: others name more of the same object."""
        schema = dict(self.resolved(schema))
        if "properties" in schema:
            schema["properties"] = {name: self.strict(inner) for name, inner in schema["properties"].items()}
        for key in ("oneOf", "prefixItems"):
            if key in schema:
                schema[key] = [self.strict(inner) for inner in schema[key]]
        if "allOf" in schema:
            schema["allOf"] = [self.strict(inner, True) for inner in schema["allOf"]]
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                schema[key] = self.strict(schema[key])
        if not part and "additionalProperties" not in schema and ("properties" in schema or "allOf" in schema):
            schema["unevaluatedProperties"] = False
        return schema

    def validate(self, schema: dict, value, what: str) -> None:
        key = json.dumps(schema, sort_keys=True)
        if key not in self.validators:
            checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
            self.validators[key] = jsonschema.Draft202012Validator(self.strict(schema), format_checker=checker)
        errors = [f"{error.json_path}: {error.message}" for error in self.validators[key].iter_errors(value)]
        assert not errors, (what, errors, value)

    def find(self, method: str, path: str) -> tuple[str, dict] | None:
        """The template of the path and its operation. Fixed words win over parameters."""
        for template in sorted(self.document["paths"], key=lambda t: t.count("{")):
            if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), path) and (method, template) in self.operations:
                return template, self.operations[method, template]
        return None

    def check(self, method: str, target: str, body, headers: dict, reply) -> None:
        path, _, query = target.partition("?")
        found = self.find(method, path)
        if found is None:  # only a problem can come of it
            self.problem(reply, {"no-endpoint", "wrong-method", "bad-value", "no-token"}, target)
            return
        operation = found[1]
        what = f"{method} {target}: {reply.status} {reply.body[:500]!r}"
        responses = operation["responses"]
        response = responses.get(str(reply.status), responses["default"] if "x-codes" in responses["default"] else None)
        if reply.headers["Kvmserver-Version"]:  # a function's own, with any status and content
            response = responses["default"]
        assert response, f"not described: {what}"
        self.statuses.add((operation["operationId"], str(reply.status)))
        content = response.get("content", {})
        kind = (reply.headers["Content-Type"] or "").partition(";")[0]
        if is_problem(kind):
            self.problem(reply, set(response["x-codes"]), what)
            return
        self.success(operation, response, query, body, headers, what)
        if not content:
            assert reply.body == b"", what
        elif "*/*" not in content:
            assert kind in content, f"{kind} is not described: {what}"
            self.content(kind, content[kind]["schema"], reply, what)
        described = {name.lower() for name in response.get("headers", {})}
        for name in ("ETag", "Location", "Upload-Offset", "Upload-Length", "Content-Range", "Accept-Ranges", "Server-Timing"):
            if name in reply.headers and "*/*" not in content:
                assert name.lower() in described, f"{name} is not described: {what}"

    def content(self, kind: str, schema: dict, reply, what: str) -> None:
        if kind == "application/json":
            self.validate(schema, reply.json, what)
        elif kind == "application/x-ndjson":
            for line in filter(None, reply.body.splitlines()):
                self.validate(schema, json.loads(line), what)

    def problem(self, reply, codes: set[str], what: str) -> None:
        if reply.body == b"":  # of HEAD
            return
        assert is_problem(reply.headers["Content-Type"]), what
        self.validate({"$ref": "#/components/schemas/Problem"}, reply.json, what)
        assert reply.json["status"] == reply.status, what
        assert reply.json["code"] in codes, f"the code is not described: {what}"
        self.codes.add(reply.json["code"])

    def success(self, operation: dict, response: dict, query: str, body, headers: dict, what: str) -> None:
        """What was accepted is described."""
        names = {(p["in"], p["name"].lower()) for p in operation["parameters"]}
        used = [("query", name) for name in urllib.parse.parse_qs(query, keep_blank_values=True)]
        used += [("header", name.lower()) for name in headers if name.lower() != "authorization"]
        for place, name in used:
            assert (place, name) in names, f"{place} {name} was accepted and is not described: {what}"
            self.inputs.add((operation["operationId"], f"{place} {name}"))
        if body in (None, b""):
            assert not operation.get("requestBody", {}).get("required"), f"the body is not required: {what}"
            return
        assert "requestBody" in operation, f"a body was accepted and is not described: {what}"
        self.inputs.add((operation["operationId"], "body"))
        schema = operation["requestBody"]["content"].get("application/json", {}).get("schema")
        if schema:
            self.validate(schema, body, what)
            self.inputs.update((operation["operationId"], f"body {name}") for name in body)

    def described(self) -> tuple[set, set, set]:
        """What check() can have seen: statuses of success, inputs, codes."""
        statuses, inputs, codes = set(), set(), set()
        for operation in self.operations.values():
            name = operation["operationId"]
            for status, response in operation["responses"].items():
                codes.update(response.get("x-codes", ()))
                if status != "default" and set(response.get("content", {})) != {"application/problem+json"} and "x-codes" not in response:
                    statuses.add((name, status))
            inputs.update((name, f"{p['in']} {p['name'].lower()}") for p in operation["parameters"] if p["in"] != "path")
            if "requestBody" in operation:
                inputs.add((name, "body"))
                schema = operation["requestBody"]["content"].get("application/json", {}).get("schema", {})
                inputs.update((name, f"body {member}") for member in self.resolved(schema).get("properties", ()))
        return statuses, inputs, codes
