"""kvc.h for Python: structs, the table of a library, one handle per role. Knows nothing of vLLM.

Two views of a struct: ctypes classes (TYPES, make) for calls that are made now and then, and Record
for the calls of every step (Handle.bind), which reads and writes plain numbers. Lists that a
library puts out are read as 64-bit words (words_of, rows_of): every struct of kvc.h is a whole
number of them.
"""

import array
import contextlib
import ctypes
import pathlib
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

NO_LIMIT = (1 << 64) - 1
# Set again from the header, as all constants: lib.E_ARG is KVC_E_ARG.
MINOR, OK, MORE, CAP_EVENTS, CAP_STEPPED = 0, 0, 1, 0, 0
# Struct name without "kvc_" -> ctypes class; slot of kvc_plugin_api -> result and arguments.
TYPES: dict[str, Any] = {
    "uint8_t": ctypes.c_uint8, "uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64, "int64_t": ctypes.c_int64, "status": ctypes.c_int32,
    "job": ctypes.c_uint64, "void": None,
}
SLOTS: dict[str, tuple[Any, ...]] = {}
_DECLARATION = re.compile(r"(?:const )?(?:kvc_)?(\w+) (\**)(\w+)(\[\w+\])?$")
_FUNCTION = re.compile(r"(?:const )?(?:kvc_)?(\w+) (\*?)\(\*(\w+)\)\((.*)\)")


def _type_of(declaration: str) -> tuple[str, Any]:
    kind, pointer, name, array_of = _DECLARATION.match(declaration).groups()
    found = ctypes.c_void_p if pointer else TYPES[kind]
    return name, found * 32 if array_of else found  # the only arrays are keys


def _constants(text: str) -> dict[str, int]:
    """Enumerators, and bits or numbers behind #define, of kvc.h without their KVC_."""
    out = {n: int(v) for n, v in re.findall(r"KVC_(\w+) = (-?\d+)", text)}
    out |= {n: int(v) for n, v in re.findall(r"#define KVC_(\w+) (\d+)u", text)}
    return out | {n: 1 << int(v) for n, v in re.findall(
        r"#define KVC_(\w+) \(UINT(?:32|64)_C\(1\) << (\d+)\)\s", text)}


def _read_header(text: str) -> None:
    """The structs of kvc.h: one declaration a statement, by the rules of that header."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    globals().update(_constants(text))
    for struct_name, body in re.findall(r"typedef struct kvc_(\w+) \{(.*?)\} kvc_\1;", text, re.S):
        fields = []
        for line in (" ".join(s.split()) for s in body.split(";")):
            if slot := _FUNCTION.match(line):
                kind, pointer, name, arguments = slot.groups()
                fields.append((name, ctypes.c_void_p))
                if struct_name == "plugin_api":
                    SLOTS[name] = (ctypes.c_void_p if pointer else TYPES[kind], *(
                        _type_of(a.strip())[1] for a in arguments.split(",")))
            elif line:
                fields.append(_type_of(line))
        TYPES[struct_name] = type("kvc_" + struct_name, (ctypes.Structure,), {"_fields_": fields})


_read_header(pathlib.Path(__file__).with_name("kvc_h").read_text(encoding="utf-8"))
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, TYPES["bytes"])


class KvcError(RuntimeError):
    """A kvc library refused something; the text is the library's own where there is one."""


_STATUS = {value: "KVC_" + name for name, value in list(globals().items())
           if name in ("OK", "MORE", "LATER") or re.match(r"E_[A-Z]+$", name)}


def said(status: int) -> str:
    """A status as it is told: its name and its number."""
    return f"{_STATUS.get(status, 'unknown status')} ({status})"


def make(name: str, **fields: Any) -> Any:
    """A struct with struct_size set."""
    kind = TYPES[name]
    return kind(ctypes.sizeof(kind), **fields)


def bytes_of(data: bytes) -> Any:
    """kvc_bytes over `data`, which the caller keeps alive."""
    return TYPES["bytes"](ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data))


def list_of(items: Any) -> Any:
    """kvc_list over a ctypes array."""
    return TYPES["list"](ctypes.addressof(items), len(items), ctypes.sizeof(items._type_), 0)


# All of the process's memory, as bytes and as words: a list of the library is a slice of it, read
# where it lies. Making such a view reads nothing.
_BYTES = memoryview((ctypes.c_uint8 * (1 << 62)).from_address(0)).cast("B")
WORDS = _BYTES.cast("q")


def words_of(data: int, count: int, stride: int) -> memoryview:
    """The elements of a kvc_list as 64-bit words, stride // 8 of them an element. They are not
    copied: good for as long as the list is."""
    at = data >> 3 if count else 0
    return WORDS[at : at + (count * stride >> 3)]


def rows_of(data: int, count: int, stride: int) -> list[memoryview]:
    """The words of each element of a kvc_list. An empty one may have no stride."""
    words, width = words_of(data, count, stride), stride // 8 or 1
    return [words[i : i + width] for i in range(0, len(words), width)]


def block_ids(data: int, count: int, stride: int) -> memoryview:
    """Block ids of a list of kvc_block."""
    return words_of(data, count, stride)[1 :: stride // 8 or 1]


def bytes_at(data: int, size: int) -> bytes:
    """A copy of a kvc_bytes."""
    return _BYTES[data : data + size].tobytes()


def _plain(kind: Any) -> str:
    """Format of module struct for a ctypes struct, nested ones flat."""
    return "".join(_plain(t) if hasattr(t, "_fields_") else {"P": "Q"}.get(t._type_, t._type_)
                   for _, t in kind._fields_)


class Record:
    """`count` structs of one kind in memory of their own, for the calls of every step.

    words: the memory as 64-bit numbers; texts: the same as pointers, to which bytes can be assigned
    (and are kept alive until the next assignment).
    """

    def __init__(self, name: str, count: int = 1) -> None:
        kind = TYPES[name]
        self._format = struct.Struct(_plain(kind))  # native: kvc.h has no padding
        self.size, self.count = ctypes.sizeof(kind), count
        self.memory = (kind * count)()
        self.address = ctypes.addressof(self.memory)
        self.words = memoryview(self.memory).cast("B").cast("Q")
        self.texts = (ctypes.c_char_p * len(self.words)).from_buffer(self.memory)
        if kind._fields_[0][0] == "struct_size":
            self.words[:: self.size // 8] = memoryview(array.array("Q", [self.size] * count))

    def put(self, *values: int) -> None:
        """All fields of the first struct but struct_size."""
        self._format.pack_into(self.memory, 0, self.size, *values)

    def pack(self, *values: int) -> bytes:
        """As put, but the bytes."""
        return self._format.pack(self.size, *values)

    def pack_all(self, rows: Iterable[tuple[int, ...]]) -> bytes:
        """As pack, of every row one after the other."""
        return b"".join(self.pack(*row) for row in rows)


def tables(requests: int, groups: int) -> Record:
    """kvc_table of every group, request after request."""
    out = Record("table", requests * groups)
    for i in range(out.count):
        out.words[i * (out.size >> 3)] |= (i % groups) << 32
    return out


def text_of(data: Any) -> str:
    return ctypes.string_at(data.data, data.size).decode("utf-8", "replace") if data.size else ""


def rank_info(info: Any) -> tuple[int, int, int, bytes, bytes]:
    """kvc_rank_info as plain data for the handshake: rank, pages, stride, classes, inventory."""
    classes, inventory = info.classes, info.inventory
    return (info.rank, info.pages, classes.stride,
            ctypes.string_at(classes.data, classes.count * classes.stride),
            ctypes.string_at(inventory.data, inventory.size) if inventory.size else b"")


def rank_infos(ranks: list[tuple[int, int, int, bytes, bytes]]) -> Any:
    """ctypes array of kvc_rank_info; borrows from `ranks`."""
    out = [make("rank_info", rank=rank, pages=pages, inventory=bytes_of(inventory),
                    classes=(ctypes.cast(classes, ctypes.c_void_p), len(classes) // (stride or 1),
                             stride))
           for rank, pages, stride, classes, inventory in ranks]
    return (TYPES["rank_info"] * len(out))(*out)


# Slots that a library may lack, and the capability that promises each.
OPTIONAL = {"take_events": CAP_EVENTS, "pump_scheduler": CAP_STEPPED, "pump_rank": CAP_STEPPED}


class Library:
    """A loaded kvc library: every slot as a callable attribute, None where one of OPTIONAL is not
    there. What KVC-L-001 to KVC-L-006 demand is checked here, not at the first call that fails.
    Threads: any."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:  # ValueError: a path, or the loader's words of it, that are no text
            entry = ctypes.CDLL(path).kvc_plugin_entry_v1
        except (OSError, AttributeError, ValueError) as e:
            raise KvcError(f"kvc library {path}: {e}") from e
        entry.argtypes, entry.restype = (ctypes.c_uint32, ctypes.c_void_p), ctypes.c_int32
        api = make("plugin_api")
        status = entry(MINOR, ctypes.addressof(api))
        if status != OK:
            raise KvcError(f"kvc library {path}: kvc_plugin_entry_v1 answered {said(status)}")
        if api.struct_size > ctypes.sizeof(api):
            raise KvcError(f"kvc library {path}: it filled {api.struct_size} bytes of a table of "
                           f"{ctypes.sizeof(api)}")
        for name, signature in SLOTS.items():
            at = getattr(type(api), name).offset
            address = getattr(api, name) if at + 8 <= api.struct_size else None
            if not address and (name not in OPTIONAL or api.caps & OPTIONAL[name]):
                raise KvcError(f"kvc library {path}: its table of {api.struct_size} bytes has no "
                               f"{name}")
            setattr(self, name, ctypes.CFUNCTYPE(*signature)(address) if address else None)


class Handle:
    """One role of a library. Threads: one caller at a time; log from any thread.

    Owns the handle and what the library may call or read until close.
    """

    def __init__(self, library: Library, role: str, opened: Any, caps: int, log: Callable) -> None:
        self.library, self.role = library, role
        self.broke: Callable[[str], None] = print  # the owner's, for bind
        errors: list[str] = []
        opening = True

        def on_log(_host: int, level: int, text: Any) -> None:
            with contextlib.suppress(Exception):  # never into the library
                if opening and level == 3:
                    errors.append(text_of(text))
                else:
                    log(level, text_of(text))

        self._log = _LOG(on_log)
        self._host = make("host_api", abi_minor=MINOR, caps=caps)
        self._host.log = ctypes.cast(self._log, ctypes.c_void_p).value
        out = ctypes.c_void_p()
        status = getattr(library, "open_" + role)(
            *map(ctypes.byref, (self._host, opened, out)))
        opening = False
        if status < 0 or not out.value:
            why = "; ".join(errors) or "no text"
            raise KvcError(
                f"kvc library {library.path}: open_{role} answered {said(status)}: {why}")
        self.address: int | None = out.value

    def call(self, slot: str, *given: Any) -> int:
        """The slot's status. Pointers are addresses, ctypes arrays, or byref of a struct."""
        return getattr(self.library, slot)(self.address, *given)

    def bind(self, slot: str, *given: Any, mild: tuple[int, ...] = ()) -> Callable[[], int]:
        """The slot with its arguments made once: numbers and Records, of which the last one has its
        whole size in each call, to be filled if it is an out-struct. Answers the status; self.broke
        is told of a negative one that is not mild. Not to be called after close."""
        def argument(of: Any) -> Any:
            record = isinstance(of, Record)
            return ctypes.byref(of.memory) if record else ctypes.c_void_p.from_param(of)

        # Without argtypes: these are in the form already in which ctypes passes arguments on.
        call = ctypes.CFUNCTYPE(ctypes.c_int32)(
            ctypes.cast(getattr(self.library, slot), ctypes.c_void_p).value)
        arguments = tuple(map(argument, (self.address, *given)))
        last = given[-1] if isinstance(given[-1], Record) else Record("fence")  # one to write to
        sizes, size = memoryview(last.memory).cast("B").cast("I"), last.size

        def bound() -> int:
            sizes[0] = size
            status = call(*arguments)
            if status < 0 and status not in mild:
                self.broke(f"{slot} answered {said(status)}: {self.error()}")
            return status
        return bound

    def error(self) -> str:
        """Text of the last failed call of this handle."""
        text, needed = ctypes.create_string_buffer(2048), ctypes.c_uint64()
        status = self.call("last_error_" + self.role, text, len(text), ctypes.byref(needed))
        return text.raw[: needed.value].decode("utf-8", "replace") if status == OK else ""

    def numbers(self) -> Iterator[tuple[str, str, int]]:
        """(name, labels, value) of stats; scheduler role, none after close."""
        needed, kind = ctypes.c_uint64(), TYPES["stat"]
        if self.address is not None:
            self.call("stats", 0, ctypes.sizeof(kind), 0, ctypes.byref(needed))
        room = (kind * needed.value)()
        if len(room) and self.call("stats", room, ctypes.sizeof(kind), len(room),
                                   ctypes.byref(needed)) == OK:
            for stat in room:
                yield text_of(stat.name), text_of(stat.labels), stat.value

    def outcomes(self) -> Iterator[tuple[str, int, int]]:
        """(outcome, hand-offs, all offers) of boundary_stats; scheduler role, none after close."""
        counts = make("boundary_stats")
        if self.address is not None and self.call("boundary_stats", ctypes.byref(counts)) == OK:
            for name, _ in TYPES["offer_counts"]._fields_:
                yield name, getattr(counts.handoffs, name), getattr(counts.all_offers, name)

    def events(self) -> Iterator[Any]:
        """Drains take_events; each kvc_event is valid until the next one."""
        kind, count, status = TYPES["event"], ctypes.c_uint64(), MORE
        room = (kind * 256)()
        while status == MORE:
            status = self.call(
                "take_events", room, ctypes.sizeof(kind), len(room), ctypes.byref(count))
            yield from room[: count.value if status >= 0 else 0]

    def check(self, slot: str, *given: Any) -> None:
        """As call; a negative status is a KvcError with the library's text."""
        if (status := self.call(slot, *given)) < 0:
            raise KvcError(f"kvc library {self.library.path}: {slot} answered {said(status)}: "
                           + self.error())

    def close(self) -> None:
        """From its return the library touches no memory for this handle."""
        address, self.address = self.address, None
        if address is not None:
            getattr(self.library, "close_" + self.role)(address)
