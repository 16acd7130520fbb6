"""Say where requirements/*.lock and pyproject.toml disagree, without asking the network."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)", re.MULTILINE)
DIRECT = "(pyproject.toml"  # the lock's note on a package that pyproject.toml itself asks for


@dataclass(frozen=True)
class Pin:
    """One package of a lock."""

    version: str
    direct: bool
    hashed: bool


def read_lock(text: str) -> dict[str, Pin]:
    """Give the pins of a lock by package name."""
    starts = list(PIN.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    pins = {}
    for match, end in zip(starts, ends, strict=True):
        block = text[match.start() : end]
        pin = Pin(match["version"], direct=DIRECT in block, hashed="--hash=sha256:" in block)
        pins[canonicalize_name(match["name"])] = pin
    return pins


def declared(project: Path, *groups: str, extras: bool = False) -> dict[str, Requirement]:
    """Give what pyproject.toml asks for: the runtime dependencies, all extras if asked, and these groups."""
    data = tomllib.loads(project.read_text())
    lines = [*data["project"]["dependencies"]]
    if extras:
        for extra in data["project"].get("optional-dependencies", {}).values():
            lines += extra
    for group in groups:
        lines += data["dependency-groups"][group]
    return {canonicalize_name(line.name): line for line in map(Requirement, lines)}


def compare(wanted: dict[str, Requirement], text: str) -> list[str]:
    """List what is wrong with a lock's text for these requirements."""
    pins = read_lock(text)
    problems = [f"{name} is missing" for name in wanted if name not in pins]
    dropped = [name for name, pin in pins.items() if pin.direct and name not in wanted]
    problems += [f"{name} is no longer asked for" for name in dropped]
    problems += [f"{name} has no hash" for name, pin in pins.items() if not pin.hashed]
    problems += [
        f"{name}=={pins[name].version} does not satisfy '{requirement}'"
        for name, requirement in wanted.items()
        if name in pins and not requirement.specifier.contains(pins[name].version, prereleases=True)
    ]
    if "://" in text:
        problems.append("it names a host; a lock holds names, versions and hashes only")
    return problems


def check(root: Path) -> list[str]:
    """List every disagreement of the two locks with pyproject.toml and with each other."""
    project = root / "pyproject.toml"
    runtime = (root / "requirements/runtime.lock").read_text()
    dev = (root / "requirements/dev.lock").read_text()
    problems = [f"runtime.lock: {problem}" for problem in compare(declared(project, "build"), runtime)]
    everything = declared(project, "build", "dev", extras=True)
    problems += [f"dev.lock: {problem}" for problem in compare(everything, dev)]
    dev_pins = read_lock(dev)
    for name, pin in read_lock(runtime).items():
        if name not in dev_pins or dev_pins[name].version != pin.version:
            problems.append(f"dev.lock: {name} is not {pin.version} as in runtime.lock")
    return problems


def main() -> int:
    """Print the disagreements of the repository this script is in."""
    problems = check(Path(__file__).resolve().parents[1])
    for problem in problems:
        print(problem, file=sys.stderr)
    print("Run `make lock`." if problems else "Locks agree with pyproject.toml.")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
