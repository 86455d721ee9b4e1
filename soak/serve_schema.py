"""Calls made up from the service's own description: no 5xx, and no status or body it does not name.

    python soak/serve_schema.py [--cases 2000]

A third of them does not fit the description, a third does, and a third also names members, axes and
levels that there are.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from tests.support.service import Service, served

CHECKS: Any = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
KNOWN = 5
"""Members of each axis that calls name."""


def tried(service: Service, cases: int) -> dict[str, Counter[int]]:
    """How often each status came, by call; raises at the first answer that is not as described."""
    url = f"http://127.0.0.1:{service.port}"
    described = requests.get(f"{url}/openapi.json", timeout=60).json()
    # Calls of a table are those of the first one: the same functions at another address.
    paths = described["paths"]
    described["paths"] = {path: paths[path] for path in paths if "{table}" not in path}
    ways = [
        (GenerationMode.NEGATIVE, described, cases // 3),
        (GenerationMode.POSITIVE, described, 2 * cases // 3),
        (GenerationMode.POSITIVE, closer(described, service), cases),
    ]
    found: dict[str, Counter[int]] = {}
    with requests.Session() as session:
        for mode, schema, wanted in ways:
            for operation in _operations(schema, url):
                name = f"{operation.method.upper()} {operation.path}"
                statuses = found.setdefault(name, Counter())
                _ask(operation, mode, wanted, session, statuses)
                print(f"{mode.value} {name}: {dict(statuses)}", file=sys.stderr, flush=True)
    return found


def closer(described: dict[str, Any], service: Service) -> dict[str, Any]:
    """The description with members, axes and levels that there are, where any text would do."""
    result = copy.deepcopy(described)
    about = service.call("GET", "/v1/model")[1]
    axes = [axis["name"] for axis in about["axes"]]
    known = []
    for axis in axes:
        members = service.call("GET", f"/v1/members?axis={axis}&limit={KNOWN}")[1]["members"]
        known.append({"enum": [one["label"] for one in members] + ["somebody new"]})
    size = {"minItems": len(axes), "maxItems": len(axes)}
    cell = {"type": "array", "prefixItems": known, **size}
    level = {"enum": about["levels"]}
    kinds = result["components"]["schemas"]
    kinds["Asked"]["properties"]["cells"]["items"] = cell
    kinds["Cells"]["properties"]["cells"]["items"]["prefixItems"] = [cell, level]
    wanted = kinds["Wanted"]["properties"]
    wanted["axis"] = {"enum": [axes[0], None]}
    wanted["ratings"]["items"]["prefixItems"] = [known[1], level]
    del wanted["given"]  # for tables with more axes
    member = {**wanted, "member": known[0]}
    del member["ratings"], wanted["member"]
    either = [("ratings", wanted), ("member", member)]
    kinds["Wanted"] = {
        "oneOf": [
            {"type": "object", "required": [name], "properties": own, "additionalProperties": False}
            for name, own in either
        ]
    }
    for calls in result["paths"].values():
        for call in calls.values():
            for parameter in call.get("parameters", []):
                if parameter["name"] == "axis":
                    parameter["schema"] = {"enum": axes}
                elif parameter["name"] == "member":
                    parameter["schema"] = {"enum": known[0]["enum"] + known[1]["enum"]}
                elif parameter["name"] == "label":
                    parameter["schema"] = cell
    return result


def _operations(schema: dict[str, Any], url: str) -> Iterator[Any]:
    loaded = schemathesis.openapi.from_dict(schema)
    loaded.config.update(base_url=url)
    for result in loaded.get_all_operations():
        yield result.ok()


def _ask(
    operation: Any,
    mode: GenerationMode,
    wanted: int,
    session: requests.Session,
    statuses: Counter[int],
) -> None:
    """Until there were ``wanted`` calls in all."""
    number = 0
    while statuses.total() < wanted:  # a call that takes nothing has few cases: once more
        number += 1

        @seed(number)
        @settings(
            max_examples=wanted - statuses.total(),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def once(case: Any) -> None:
            answer = case.call(session=session, timeout=60)
            case.validate_response(answer, checks=CHECKS)
            statuses[answer.status_code] += 1

        try:
            once()
        except Unsatisfiable:  # nothing can be wrong with a call that takes nothing
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    cases = parser.parse_args().cases
    with tempfile.TemporaryDirectory() as place, served(Path(place)) as service:
        found = tried(service, cases)
    for call, statuses in found.items():
        counts = ", ".join(f"{status}: {number:,}" for status, number in sorted(statuses.items()))
        print(f"{call:>32}  {counts}")
    print(json.dumps({call: dict(sorted(statuses.items())) for call, statuses in found.items()}))


if __name__ == "__main__":
    main()
