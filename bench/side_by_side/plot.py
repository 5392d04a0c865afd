"""Pictures of what was measured."""
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  the backend comes first

INK, FAINT, OURS = "#1f2933", "#9aa5b1", "#0b6e99"
COLORS = {"qkv": OURS, "PyTorch": "#ee6c4d", "PyTorch, three steps": "#ee6c4d", "ONNX Runtime": "#8a5a9e",
          "OpenVINO": "#5f9e6e", "qkv's plain forward": "#7fb3cc"}
plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 10, "axes.edgecolor": FAINT, "axes.labelcolor": INK,
                     "text.color": INK, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False,
                     "axes.spines.right": False})


def ratios(figures, title, file):
    """Each peer's time over ours, a row a case; a line at 1, where both are as fast."""
    shown = [one for one in figures if one["best_peer"]][::-1]
    fig, axes = plt.subplots(figsize=(9, 1.4 + 0.30 * len(shown)))
    for place, one in enumerate(shown):
        peers = {name: side["ms"] / one["ms"] for name, side in one["sides"].items() if side["role"] == "peer"}
        ends = [min(1, *peers.values()), max(1, *peers.values())]
        axes.plot(ends, [place, place], color="#e4e7eb", lw=5, solid_capstyle="round", zorder=1)
        for name, ratio in peers.items():
            axes.scatter(ratio, place, s=46, color=COLORS.get(name, FAINT), zorder=3)
        axes.annotate(f"{one['ratio']:.2f}×", (one["ratio"], place), (0, 6), textcoords="offset points", ha="center",
                      fontsize=7.5)
    axes.axvline(1, color=OURS, lw=2, zorder=2)
    axes.set_xscale("log")
    axes.set_yticks(range(len(shown)), [one["name"] for one in shown])
    axes.set_ylim(-0.7, len(shown) - 0.1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}×" if value in (0.5, 2, 3, 5, 20, 50) else "")
    axes.set_xlabel("time of each program over qkv's (log scale): right of the line, qkv is faster")
    names = dict.fromkeys(name for one in shown for name, side in one["sides"].items() if side["role"] == "peer")
    for name in names:
        axes.scatter([], [], s=46, color=COLORS.get(name, FAINT), label=name)
    axes.plot([], [], color=OURS, lw=2, label="qkv")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, frameon=False, handletextpad=0.2)
    fig.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    fig.tight_layout()
    fig.savefig(file, dpi=150)


def lines(axes, figures, key, unit):
    for name in dict.fromkeys(name for one in figures for name in one["sides"]):
        points = [(one["length"], one["sides"][name][key] / unit) for one in figures if name in one["sides"]]
        steps = name.endswith("three steps")
        axes.plot(*zip(*points), marker="o", ms=5, lw=2, color=COLORS[name], ls="--" if steps else "-",
                  label="PyTorch, weights written out" if steps else name, zorder=3)


def reference(axes, figures, key, unit, power, text):
    """T to a power, through our last point."""
    last = figures[-1]
    top = last["sides"]["qkv"][key] / unit
    lengths = [one["length"] for one in figures]
    axes.plot(lengths, [top * (length / last["length"])**power for length in lengths], color=FAINT, lw=1, ls=":", zorder=1)
    axes.annotate(text, (last["length"], top), (6, 0), textcoords="offset points", color=FAINT, va="center")


def growth(figures, title, file):
    """Time against T with a line of T², memory against T with a line of T."""
    fig, both = plt.subplots(1, 2, figsize=(11, 4.6))
    for axes, key, unit, power, text, label in (
            (both[0], "ms", 1e3, 2, "T²", "time of a call (s)"),
            (both[1], "bytes", 2**20, 1, "T", "memory at the peak of a call (MiB)")):
        lines(axes, figures, key, unit)
        reference(axes, figures, key, unit, power, text)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks([one["length"] for one in figures], [f"{one['length']:,}" for one in figures], rotation=40,
                        ha="right")
        axes.set_xlabel("T, queries and keys")
        axes.set_title(label, loc="left", fontsize=10)
        axes.grid(True, which="major", color="#e4e7eb", lw=0.7)
        axes.set_axisbelow(True)
    both[0].legend(frameon=False, loc="upper left")
    fig.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    fig.tight_layout()
    fig.savefig(file, dpi=150)
