#!/usr/bin/env python3
"""JSON schemas for kubeconform out of Kubernetes' own description of its API.

    schemas.py SWAGGER FOLDER KIND...

SWAGGER is api/openapi-spec/swagger.json of k8s.io/kubernetes. Each version of each KIND becomes FOLDER/daemonset-apps-v1.json
and the like, complete in itself, which permits no field that Kubernetes does not know.
"""
import json
import pathlib
import re
import sys

PREFIX = "#/definitions/"
# Described as texts, which may be numbers, too.
NUMBERS_TOO = ("io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString")


def strict(definition):
    if "properties" in definition and "additionalProperties" not in definition:
        return {**definition, "additionalProperties": False}
    return definition


def reachable(definitions, first):
    found, left = {}, [first]
    while left:
        name = left.pop()
        if name not in found:
            found[name] = {"type": ["string", "number"]} if name in NUMBERS_TOO else strict(definitions[name])
            left += re.findall(rf'"\$ref": "{PREFIX}([^"]+)"', json.dumps(found[name]))
    return found


def main():
    swagger, folder, *kinds = sys.argv[1:]
    definitions = json.loads(pathlib.Path(swagger).read_text())["definitions"]
    missing = set(kinds)
    for name, definition in definitions.items():
        for known in definition.get("x-kubernetes-group-version-kind", []):
            group, version, kind = known["group"], known["version"], known["kind"]
            if kind not in kinds:
                continue
            missing.discard(kind)
            found = reachable(definitions, name)
            found[name]["properties"]["apiVersion"] = {"const": f"{group}/{version}" if group else version}
            found[name]["required"] = ["apiVersion", "kind", "metadata", "spec"]
            file = "-".join([kind.lower(), *([group.split(".")[0]] if group else []), version]) + ".json"
            schema = {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": PREFIX + name, "definitions": found}
            (pathlib.Path(folder) / file).write_text(json.dumps(schema))
    if missing:
        sys.exit(f"{swagger} does not know {sorted(missing)}")


main()
