"""Tables of a result of ``python -m benchmarks partitioned``."""

from __future__ import annotations

from benchmarks.partitioned.model import PREDICTED, Model, fit, load_of, most

# Of a network card of 400 Gbit/s for each GPU. An assumption, not a measurement.
NETWORK = 50e9
TITLES = {
    ("cuda", "nccl"): "GPUs, NCCL",
    ("cuda", "gloo"): "GPUs, gloo through the CPUs' memory",
    ("cpu", "gloo"): "CPUs, gloo",
}


def title_of(row: dict) -> str:
    return TITLES[row["device"], row["backend"]]


def series(result: dict) -> dict[str, list[dict]]:
    """The rows of each device and backend, by number of ranks."""
    found: dict[str, list[dict]] = {}
    for row in sorted(result["rows"], key=lambda row: row["ranks"]):
        found.setdefault(title_of(row), []).append(row)
    return found


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def size(value: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value / 1e3:.3g} kB"


def hidden(row: dict) -> float | None:
    """How much of the shorter one of counting and communication the other one hides."""
    communication, counting = most(row, "communication_s"), most(row, "counting_s")
    if row["ranks"] == 1:
        return None
    saved = communication + counting - most(row, "steps_s")
    return max(0.0, min(1.0, saved / min(communication, counting)))


def graph(result: dict) -> str:
    row, settings = result["rows"][0], result["settings"]
    return (
        f"R-MAT of Graph500's parameters, scale {settings['scale']}: {row['vertices']:,} vertices with an edge, {row['edges']:,} edges, "
        f"{row['triangles']:,} triangles"
    )


def partitions(result: dict) -> str:
    """Time and size of partitions. External vertices are more than a rank's share of all vertices."""
    header = [
        "",
        "ranks",
        "buckets",
        "partition",
        "save",
        "load",
        "largest file",
        "vertices of a rank",
        "external",
    ]
    rows = []
    for title, of_series in series(result).items():
        for row in of_series:
            named, share = most(row, "named"), row["vertices"] / row["ranks"]
            times = [seconds(most(row, name)) for name in ("partition_s", "save_s", "load_s")]
            cells = [size(most(row, "file_bytes")), f"{named:,.0f}", f"{max(0.0, 1 - share / named):.0%}"]
            rows.append([title, str(row["ranks"]), str(row["buckets"]), *times, *cells])
    return table(header, rows)


def counts(result: dict) -> str:
    """Time, bytes and memory of counts."""
    header = [
        "",
        "ranks",
        "count",
        "edges/s",
        "steps",
        "counting alone",
        "communication alone",
        "hidden",
        "bytes sent for each edge",
    ]
    header += ["by the formula", "held by a rank"]
    rows = []
    for title, of_series in series(result).items():
        for row in of_series:
            took, share = most(row, "count_s"), hidden(row)
            sent = sum(of_rank["sent_bytes"] for of_rank in row["each"]) / row["edges"]
            cells = [
                seconds(took),
                f"{row['edges'] / took:.3g}",
                seconds(most(row, "steps_s")),
                seconds(most(row, "counting_s")),
            ]
            cells += [seconds(most(row, "communication_s")), "-" if share is None else f"{share:.0%}"]
            cells += [f"{sent:.2f}", f"{load_of(row).bytes_for_each_edge:.2f}", size(most(row, "held_bytes"))]
            rows.append([title, str(row["ranks"]), *cells])
    return table(header, rows)


def single(result: dict) -> str:
    """The operator for one device, beside which the counts stand."""
    times = {title_of(row): row["single"] for row in result["rows"] if row.get("single")}
    return "\n".join(
        f"`torch_ops.triangle_count` on one device ({title}): {seconds(time['orient_s'])} to orient, "
        f"{seconds(time['count_s'])} to count."
        for title, time in times.items()
    )


def fitted(result: dict) -> dict[str, tuple[Model, list[dict]]]:
    """The model of each series that has several numbers of ranks."""
    return {title: (fit(rows), rows) for title, rows in series(result).items() if len(rows) > 1}


def predictions(result: dict) -> str:
    network = f"total at {NETWORK / 1e9:.0f} GB/s a rank"
    header = [
        "",
        "ranks",
        "buckets",
        "counting",
        "communication",
        "total",
        network,
        "bytes sent for each edge",
        "held by a rank",
    ]
    rows = []
    for title, (model, of_series) in fitted(result).items():
        counts = [*(row["ranks"] for row in of_series), *PREDICTED]
        for ranks in sorted(set(counts)):
            load = load_of(of_series[0], ranks)
            times = [model.counting(load), model.communication(load), model.seconds(load), model.seconds(load, NETWORK)]
            cells = [f"{load.bytes_for_each_edge:.2f}", size(load.memory)]
            rows.append([title, str(ranks), str(load.deal.buckets), *map(seconds, times), *cells])
    return table(header, rows)


def conditions(result: dict) -> str:
    commit = (result["source"]["commit"] or "unknown")[:7]
    return f"Measured on {result['gpu']['name']}, {result['date'][:10]}, at commit {commit}. {graph(result)}."


def text(result: dict) -> str:
    parts = [conditions(result), single(result), partitions(result), counts(result)]
    if fitted(result):
        parts.append(predictions(result))
    return "\n\n".join(part for part in parts if part)
