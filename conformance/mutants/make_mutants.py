"""Writes a copy of the tree in which chosen places of the product's sources can be made wrong.

Every mutant is compiled in; the environment variable KVC_MUTANT (a number, 1 and up) switches one
on, so that one build serves all of them. Operators, a fixed list:

  compare    <  <=   >  >=   ==  !=   one for the other
  arithmetic +  -                     one for the other
  logic      && ||                    one for the other
  negate     if (c)                   if (!(c))
  boolean    true false               one for the other in a return statement
  number     n                        n + 1, integers in expressions
  delete     a call, an assignment, ++ or -- that stands as a statement of its own

Not mutated: checks of our own invariants (KVC_CHECK), constant expressions, and statements that
only touch speed (reserve, prefetch). A sample is drawn evenly over the files from a seed.

Usage: make_mutants.py --build build/dev --out DIR --count N --seed S
"""

import argparse
import collections
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys

import clang.cindex as cx

FOLDERS = ("plugin/coordinator/", "plugin/offload/", "plugin/simple_cpu/", "plugin/offloading/")
SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
         "+": "-", "-": "+", "&&": "||", "||": "&&"}
OPERATOR = {"&&": "logic", "||": "logic", "+": "arithmetic", "-": "arithmetic"}
SPEED = re.compile(r"\b(reserve|prefetch\w*|__builtin_prefetch|shrink_to_fit)\b")
HEADER = """#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdlib>

namespace kvc::mutants {
inline const int active = [] {
  const char* const value = std::getenv("KVC_MUTANT");
  return value == nullptr ? 0 : std::atoi(value);
}();
// A byte a mutant, in a file that the runner made: which places did this test pass.
inline char* const seen = [] {
  const char* const path = std::getenv("KVC_MUTANTS_SEEN");
  const int file = path == nullptr ? -1 : ::open(path, O_RDWR);
  if (file < 0) return static_cast<char*>(nullptr);
  void* const at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}();
constexpr bool on(int number) {
  if (__builtin_is_constant_evaluated()) return false;
  if (seen != nullptr) seen[number] = 1;
  return active == number;
}
}  // namespace kvc::mutants
"""
Site = collections.namedtuple("Site", "file start end operator before after line")


def is_product(path: str) -> bool:
    name = pathlib.PurePath(path).name
    return (path.startswith(FOLDERS) and path.endswith((".cc", ".h")) and "/tests/" not in path
            and "/tools/" not in path and "_test" not in name and "test_support" not in name)


class Finder:
    """Collects the sites of one translation unit. Text is bytes: clang counts bytes."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root, self.text, self.sites = root, {}, {}

    def source(self, cursor) -> tuple[str, bytes] | None:
        if cursor.location.file is None:
            return None
        path = pathlib.Path(cursor.location.file.name)
        try:
            name = str(path.resolve().relative_to(self.root))
        except ValueError:
            return None
        if not is_product(name):
            return None
        if name not in self.text:
            self.text[name] = (self.root / name).read_bytes()
        return name, self.text[name]

    def add(self, cursor, start: int, end: int, operator: str, after: str) -> None:
        name, text = self.source(cursor)
        before = text[start:end].decode()
        if "KVC_CHECK" in before or "#" in before or "//" in before:
            return
        line = text.count(b"\n", 0, start) + 1
        whole_line = text.split(b"\n")[line - 1].decode()
        if "KVC_CHECK" in whole_line or "static_assert" in whole_line:
            return
        self.sites[(name, start, end, operator)] = Site(
            name, start, end, operator, before, after, line)

    def binary(self, cursor) -> None:
        sides = list(cursor.get_children())
        if len(sides) != 2:
            return
        _, text = self.source(cursor)
        left, right = sides[0].extent, sides[1].extent
        between = text[left.end.offset:right.start.offset].decode().strip()
        if between not in SWAPS:
            return
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        a, b = text[start:left.end.offset].decode(), text[right.start.offset:end].decode()
        kind = OPERATOR.get(between, "compare")
        if kind == "arithmetic" and any(
                s.type.get_canonical().kind == cx.TypeKind.POINTER for s in (cursor, *sides)):
            return
        self.add(cursor, start, end, kind, f"({a}) {SWAPS[between]} ({b})")

    def visit(self, cursor, in_statement_list: bool) -> None:
        kind = cursor.kind
        if kind in (cx.CursorKind.STATIC_ASSERT, cx.CursorKind.ENUM_DECL,
                    cx.CursorKind.TEMPLATE_TYPE_PARAMETER,
                    cx.CursorKind.TEMPLATE_NON_TYPE_PARAMETER, cx.CursorKind.CASE_STMT):
            children = list(cursor.get_children())
            if kind != cx.CursorKind.CASE_STMT:
                return
            for child in children[1:]:
                self.visit(child, True)
            return
        found = self.source(cursor)
        if found is None and kind != cx.CursorKind.TRANSLATION_UNIT and (
                cursor.location.file is not None):
            return
        if kind in (cx.CursorKind.VAR_DECL, cx.CursorKind.FIELD_DECL, cx.CursorKind.PARM_DECL) and (
                found is not None):
            words = found[1][cursor.extent.start.offset:cursor.extent.end.offset]
            if b"constexpr" in words or kind != cx.CursorKind.VAR_DECL:
                return
        if found is not None:
            self.one(cursor, found[1], in_statement_list)
        inside = kind == cx.CursorKind.COMPOUND_STMT
        for child in cursor.get_children():
            self.visit(child, inside)

    def one(self, cursor, text: bytes, in_statement_list: bool) -> None:
        kind, start, end = cursor.kind, cursor.extent.start.offset, cursor.extent.end.offset
        words = text[start:end].decode()
        if kind == cx.CursorKind.BINARY_OPERATOR:
            self.binary(cursor)
        elif kind == cx.CursorKind.IF_STMT:
            children = list(cursor.get_children())
            at = re.match(r"if\s*\(", words)
            if at and children[0].kind.is_expression():
                c = children[0].extent
                condition = text[c.start.offset:c.end.offset].decode()
                # Only a plain condition: the text between the parentheses is the expression.
                if text[start + at.end():c.start.offset].strip() == b"":
                    self.add(cursor, c.start.offset, c.end.offset, "negate", f"!({condition})")
        elif kind == cx.CursorKind.CXX_BOOL_LITERAL_EXPR:
            if re.search(rb"return\s*$", text[max(0, start - 16):start]):
                self.add(cursor, start, end, "boolean", "false" if words == "true" else "true")
        elif kind == cx.CursorKind.INTEGER_LITERAL:
            if re.fullmatch(r"\d+[uUlL]*", words):
                self.add(cursor, start, end, "number", f"({words} + 1)")
        if in_statement_list and text[end:end + 1] == b";" and not SPEED.search(words):
            assignment = kind == cx.CursorKind.BINARY_OPERATOR and re.search(
                r"[^=!<>]=[^=]", words)
            if assignment or kind in (cx.CursorKind.CALL_EXPR,
                                      cx.CursorKind.COMPOUND_ASSIGNMENT_OPERATOR,
                                      cx.CursorKind.UNARY_OPERATOR):
                self.add(cursor, start, end, "delete", "")


def sites_of(root: pathlib.Path, build: pathlib.Path) -> list[Site]:
    finder = Finder(root)
    index = cx.Index.create()
    builtin = subprocess.run(["clang++", "-print-resource-dir"], capture_output=True, text=True,
                             check=True).stdout.strip()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        name = str(pathlib.Path(entry["file"]).resolve().relative_to(root))
        if not is_product(name):
            continue
        flags = re.findall(r"(?:^|\s)((?:-I|-D|-isystem ?)\S+)", entry["command"])
        unit = index.parse(entry["file"], args=[
            "-x", "c++", "-std=c++20", "-resource-dir", builtin,
            *(part for f in flags for part in f.split())])
        errors = [d for d in unit.diagnostics if d.severity >= cx.Diagnostic.Error]
        if errors:
            sys.exit(f"{name}: {errors[0]}")
        finder.visit(unit.cursor, False)
    return sorted(finder.sites.values())


def sample(sites: list[Site], count: int, seed: int) -> list[Site]:
    """Round robin over the files, so that each has its share; none overlaps another."""
    source = random.Random(seed)
    by_file = collections.defaultdict(list)
    for site in sites:
        by_file[site.file].append(site)
    for file_sites in by_file.values():
        source.shuffle(file_sites)
    taken: list[Site] = []
    used = collections.defaultdict(list)
    while len(taken) < count and any(by_file.values()):
        for name in sorted(by_file, key=lambda n: (-len(by_file[n]), n)):
            while by_file[name] and len(taken) < count:
                site = by_file[name].pop()
                if all(site.end <= a or site.start >= b for a, b in used[name]):
                    used[name].append((site.start, site.end))
                    taken.append(site)
                    break
    return sorted(taken)


def mutated(text: bytes, numbered: list[tuple[int, Site]]) -> bytes:
    for number, site in sorted(numbered, key=lambda n: -n[1].start):
        before = text[site.start:site.end].decode()
        switch = f"::kvc::mutants::on({number})"
        if site.operator == "delete":
            new = f"if (!{switch}) {{ {before}; }}"
        else:
            new = f"({switch} ? ({site.after}) : ({before}))"
        text = text[:site.start] + new.encode() + text[site.end:]
    return text


def write_tree(root: pathlib.Path, tree: pathlib.Path, by_file: dict[str, list]) -> None:
    """Leaves what has not changed as it is: nothing of it is built again."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
                            capture_output=True, check=True).stdout.decode().split("\0")
    names = {name for name in listed if name and (root / name).exists()}
    for path in list(tree.rglob("*")):
        if not path.is_dir() and str(path.relative_to(tree)) not in names | {"mutant_switch.h"}:
            path.unlink()
    texts = {name: mutated((root / name).read_bytes(), by_file[name]) if name in by_file
             else (root / name).read_bytes() for name in names}
    texts["mutant_switch.h"] = HEADER.encode()
    for name, text in texts.items():
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != text:
            target.write_bytes(text)
            if name in names:
                shutil.copymode(root / name, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, type=pathlib.Path, help="a configured build tree")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", default="", help="numbers that do not compile, by commas")
    given = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]
    sites = sites_of(root, given.build)
    chosen = sample(sites, given.count, given.seed)
    by_file = collections.defaultdict(list)
    without = {int(n) for n in given.without.split(",") if n}
    for number, site in enumerate(chosen, 1):
        if number not in without:
            by_file[site.file].append((number, site))
    write_tree(root, given.out / "tree", by_file)
    rows = [{"mutant": n, "file": s.file, "line": s.line, "operator": s.operator,
             "before": s.before, "after": s.after,
             "text": (root / s.file).read_text().splitlines()[s.line - 1].strip()}
            for n, s in enumerate(chosen, 1) if n not in without]
    (given.out / "mutants.json").write_text(json.dumps(
        {"seed": given.seed, "sites": len(sites), "mutants": rows}, indent=1))
    print(f"{len(sites)} sites in {len({s.file for s in sites})} files, {len(rows)} mutants")


if __name__ == "__main__":
    main()
