"""The library's counters for vLLM's log line and Prometheus."""

import time
from typing import Any

from prometheus_client import REGISTRY
from vllm.distributed.kv_transfer.kv_connector.v1 import metrics

INTERVAL_S = 1.0
# vLLM's names where they exist; everything else is kvc:<name of the library>.
NAMES = {
    "load_blocks": "vllm:simple_kv_offload_load_blocks",
    "loaded_bytes": "vllm:kv_offload_load_bytes",
    "stored_bytes": "vllm:kv_offload_store_bytes",
    "host_slots_pinned_now": "vllm:simple_kv_offload_used_blocks",
    "host_slots_reserved_now": "vllm:simple_kv_offload_pending_store_blocks",
    "handoffs": "vllm:simple_kv_offload_save_outcomes",
}
OUTCOMES = {"dropped_pool_full": "dropped_cpu_full", "skipped_not_hashed": "dropped_not_hashed"}


class KvcStats(metrics.KVConnectorStats):
    """data: "name|label=value,..." -> change of a counter, or value of a gauge ('=' before it)."""

    def is_empty(self) -> bool:
        return not self.data

    def aggregate(self, other: metrics.KVConnectorStats) -> "KvcStats":
        for key, value in other.data.items():
            self.data[key] = value if key[0] == "=" else self.data.get(key, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        return {k.rstrip("|"): v for k, v in self.data.items() if v and k[0] != "="}


class Interval:
    """What changed since the last report, at most once in INTERVAL_S."""

    def __init__(self) -> None:
        self._due = 0.0
        self._before: dict[str, int] = {}

    def take(self, read: Any) -> KvcStats | None:
        now = time.monotonic()
        if now < self._due:
            return None
        self._due, data = now + INTERVAL_S, {}
        for name, labels, value in read():
            gauge = name.endswith("_now")
            known = NAMES.get(name, "kvc:" + name.removesuffix("_now"))
            key = f"{'=' if gauge else ''}{known}|{labels}"
            change = value - self._before.get(key, 0)
            self._before[key] = value
            if gauge or change > 0:
                data[key] = value if gauge else change
        return KvcStats(data=data)


class KvcPromMetrics(metrics.KVConnectorPromMetrics):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for old in list(REGISTRY._collector_to_names):  # as vLLM does for its own: a second engine
            if getattr(old, "_name", "").startswith("kvc:"):
                REGISTRY.unregister(old)
        self._known: dict[str, Any] = {}
        self._children: dict[tuple[int, str], Any] = {}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for key, value in transfer_stats_data.items():
            child = self._children.get((engine_idx, key))
            if child is None:
                child = self._children[engine_idx, key] = self._child(engine_idx, key)
            child.set(value) if key[0] == "=" else child.inc(value)

    def _child(self, engine_idx: int, key: str) -> Any:
        name, _, labels = key.lstrip("=").partition("|")
        pairs = dict(p.split("=", 1) for p in labels.split(",") if p)
        if name not in self._known:
            make, more = (self._gauge_cls, {"multiprocess_mode": "mostrecent"}) if (
                key[0] == "=") else (self._counter_cls, {})
            self._known[name] = make(
                name=name, documentation=f"{name} of the kvc library (docs/vllm.md)",
                labelnames=self._labelnames + list(pairs), **more)
        return self._known[name].labels(
            *self.per_engine_labelvalues[engine_idx], *pairs.values())
