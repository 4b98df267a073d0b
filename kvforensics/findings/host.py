"""The host's memory: offloading, pinned memory, swap, checkpoints larger than RAM, the CPU backend."""

from __future__ import annotations

from kvforensics.findings.case import Case, high, low, merged, printed
from kvforensics.findings.finding import NOTE, WARNING, Action, Finding, FindingRule
from kvforensics.report.sizes import gib_text
from reconstruct.interval import ANYTHING


def _cpu_offload(case: Case) -> Finding | None:
    asked = case.ledger.settings.get("cpu_offload_gb")
    wanted = isinstance(asked, int | float) and asked > 0
    lines = merged(
        case.lines("cpu_offload", "cpu_offload_notice"), case.setting_lines("cpu_offload_gb") if wanted else ()
    )
    if not lines:
        return None
    moved = next((printed(s, "offloaded") for s in case.of("cpu_offload")), ANYTHING)
    detail = "Weights are kept in host memory"
    detail += f": {gib_text(moved)} a rank." if moved != ANYTHING else "."
    detail += " The check of free device memory and the profile are not lifted by it: "
    detail += "what a layer needs while it runs counts on the GPU."
    action = Action(
        "more --cpu-offload-gb, where weights are what is too large", (), "every step copies over the bus: slower"
    )
    return Finding("cpu-offload-active", NOTE, "Weights are offloaded to host memory", detail, lines, actions=(action,))


def _kv_offload(case: Case) -> Finding | None:
    said = case.of("kv_offload")
    if not said:
        return None
    size = next((s for x in said if (s := printed(x, "host_kv_memory")) != ANYTHING), ANYTHING)
    detail = "A second tier of KV cache stands in host memory"
    detail += f" ({gib_text(size)})." if size != ANYTHING else "."
    detail += " It holds what was evicted; the GPU's pool, its check and its tokens are the same with and without it."
    return Finding(
        "kv-offload-active", NOTE, "KV cache is offloaded to host memory", detail, tuple(s.line for s in said)
    )


def _host_memory(case: Case) -> Finding | None:
    short = [
        s for s in case.of("checkpoint") if low(printed(s, "checkpoint_size")) > high(printed(s, "available_ram"))
    ]  # fmt: skip
    pinned, swap = case.of("pinned_memory_off"), case.of("swap_space")
    if not (short or pinned or swap):
        return None
    parts = [
        f"The checkpoint has {gib_text(printed(said, 'checkpoint_size'))}, the host "
        f"{gib_text(printed(said, 'available_ram'))} of memory: it cannot stay in the page cache, and loading runs at the "
        "disk's pace."
        for said in short[:1]
    ]
    if pinned:
        parts.append("Pinned host memory is off (WSL): copies between host and device are slower.")
    if swap:
        parts.append(f"Swap space takes much of the host: {swap[0].text('detail')}")
    fatal = any(s.rule.template.startswith("Too large") for s in swap)
    lines = merged(tuple(s.line for s in (*short, *pinned, *swap)))
    severity = WARNING if fatal else NOTE
    return Finding("host-memory", severity, "The host is the limit", " ".join(parts), lines)


def _cpu_backend(case: Case) -> Finding | None:
    lines = merged(case.lines("cpu_auto", "cpu_explicit"), _cpu_setting(case))
    if not lines:
        return None
    rule = (
        "VLLM_CPU_KVCACHE_SPACE or --kv-cache-memory-bytes"
        if case.of("cpu_explicit")
        else "--gpu-memory-utilization, of the node's RAM"
    )
    detail = f"The device is the CPU: words such as GPU do not apply, every figure is host memory, and the pool is set by {rule}."
    return Finding("cpu-backend", NOTE, "The CPU backend: memory means RAM", detail, lines)


def _cpu_setting(case: Case) -> tuple[int, ...]:
    return case.setting_lines("device") if case.ledger.settings.text("device") == "cpu" and case.measured else ()


RULES = (
    FindingRule(
        "cpu-offload-active",
        (NOTE,),
        "What host memory holds, and that the GPU's check is not lifted by it.",
        "Weights are offloaded: the engine says how many, or the setting is above 0.",
        ("cpu_offload", "cpu_offload_notice", "cpu_offload_gb"),
        _cpu_offload,
    ),
    FindingRule(
        "kv-offload-active",
        (NOTE,),
        "That the second tier changes nothing in the GPU's pool.",
        "An offloading connector or a cache in host memory was created.",
        ("kv_offload",),
        _kv_offload,
    ),
    FindingRule(
        "host-memory",
        (WARNING, NOTE),
        "Why the host is the limit.",
        "The checkpoint exceeds the available RAM, pinned memory is off, or swap space takes much of the host.",
        ("checkpoint", "pinned_memory_off", "swap_space"),
        _host_memory,
    ),
    FindingRule(
        "cpu-backend",
        (NOTE,),
        "That GPU words do not apply, and which setting rules.",
        "The device is the CPU.",
        ("cpu_auto", "cpu_explicit", "device"),
        _cpu_backend,
    ),
)
