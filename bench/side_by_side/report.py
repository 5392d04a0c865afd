"""A case's figures, and how they are shown."""
from .race import AGREE


def peak(case, peaks):
    """What the case cannot be faster than, per second."""
    if case["limit"] == "bfloat16":
        return max(peaks["float32"], peaks["bfloat16_dot"], peaks["bfloat16_tiles"])
    return peaks[case["limit"]]


def shape(case):
    if case["kind"] == "model":
        return f"({case['batch']}, {case['keys']})"
    return "({batch}, {q_heads}, {kv_heads}, {keys}, {d})".format(**case)


def figures(case, contestants, notes, peaks):
    """Everything about a case that was run, for JSON and for the table."""
    sides = {one.program: {"way": one.way, "role": one.role, "ms": one.median(), "all_ms": one.ms,
                           "difference": one.difference} for one in contestants}
    ours = sides["qkv"]["ms"]
    work = case["bytes"] if case["limit"] == "memory" else case["operations"]
    peers = {name: side["ms"] for name, side in sides.items() if side["role"] == "peer"}
    best = min(peers, key=peers.get) if peers else None
    return {**case, "sides": sides, "ms": ours, "speed": work / (ours / 1e3),
            "share": work / (ours / 1e3) / peak(case, peaks), "best_peer": best,
            "ratio": peers[best] / ours if best else None, "agreement": AGREE[case["dtype"]], "notes": notes}


def time_text(ms):
    for unit, factor in (("us", 1e3), ("ms", 1.0), ("s", 1e-3)):
        if ms * factor < 1000 or unit == "s":
            value = ms * factor
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def heading():
    titles = ["case", "shape", "qkv", "share of the peak", "best peer", "its time", "ratio", "others"]
    return "| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|"


def row(figure):
    sides = figure["sides"]
    best = figure["best_peer"]
    others = [f"{name} {time_text(side['ms'])}" for name, side in sides.items() if name not in ("qkv", best)]
    cells = [figure["name"], shape(figure), time_text(figure["ms"]), f"{100 * figure['share']:.0f} % of {figure['limit']}"]
    if best:
        cells += [f"{best}, {sides[best]['way']}", time_text(sides[best]["ms"]), f"{figure['ratio']:.2f}×"]
    else:
        cells += ["none", "", ""]
    return "| " + " | ".join([*cells, ", ".join(others)]) + " |"


def machine_text(machine, peaks, threads):
    lines = [f"{machine['processor']}, {threads} threads, last-level cache {machine['last_level_cache'] >> 20} MiB"]
    for one in peaks:
        tiles = f", tiles {one['bfloat16_tiles'] / 1e9:.0f}" if one["bfloat16_tiles"] else ""
        dot = f"; bfloat16 dot product {one['bfloat16_dot'] / 1e9:.0f}" if one["bfloat16_dot"] else ""
        lines.append(f"peaks, {one['threads']} thread(s): float32 {one['float32'] / 1e9:.0f} GF/s{dot}{tiles} GF/s; "
                     f"memory {one['memory'] / 1e9:.1f} GB/s over {one['memory_bytes'] >> 20} MiB")
    return "\n".join(lines)
