"""Checks that what pages say in short is what the committed results say, and that docs/benchmarks.md stays one page."""

import re
import statistics

#: A figure with its spread, such as 6.78 ms (5.62 to 7.18).
SPREAD = re.compile(r"([\d,.]+)(?: [×a-zA-Z]+){0,3} \(([\d,.]+) to ([\d,.]+)\)")
#: The table of README.
TABLE = "broadcast"
#: Rows of docs/benchmarks.md.
ROWS_MAX = 60
#: The servers of README's table, as it names them and as the results do.
OF_README = {
    "**Dunlin**": "Dunlin",
    "Centrifugo (its library)": "Centrifugo's library",
    "Socket.IO": "Socket.IO",
    "Colyseus": "Colyseus",
    "uWebSockets.js": "uWebSockets.js",
}


def rounded(value, step):
    return f"{round(value / step) * step:,}"


def memory(value):
    """Bytes for reading: the spread of rounds is larger than these steps."""
    return rounded(value, 500 if value >= 5_000 else 50 if value >= 1_000 else 10) + " bytes"


def median(results, name, key):
    return statistics.median(one["figures"][name][key] for one in results["tables"][TABLE])


def wrong_lines(root, results):
    """What is wrong, as sentences."""
    readme, site, benchmarks = ((root / path).read_text("utf-8") for path in ("README.md", "site/index.md", "docs/benchmarks.md"))
    wrong = []
    for shown, name in OF_README.items():
        rate, p99, bytes_idle = (median(results, name, key) for key in ("deliveries_per_cpu_second", "p99_ms", "idle_bytes"))
        row = f"| {shown} | {rounded(rate, 1000)} | {p99:.0f} ms | {memory(bytes_idle)} |"
        if row not in readme:
            wrong.append(f"README.md does not have the row {row}")
    about = f"about {memory(median(results, 'Dunlin', 'idle_bytes'))}"
    wrong += [f"{page} does not say {about}" for page, text in (("README.md", readme), ("site/index.md", site)) if about not in text.lower()]
    measurements = set(SPREAD.findall((root / "docs/measurements.md").read_text("utf-8")))
    of_systems = benchmarks.partition("## Four published systems")[2].partition("\n## ")[0]
    for figure in SPREAD.finditer(of_systems):
        if figure.groups() not in measurements:
            wrong.append(f"docs/measurements.md does not have the figure {figure.group()} of docs/benchmarks.md")
    rows = [line.strip().strip("|").split(" | ") for line in benchmarks.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in row] for row in rows if not row[0].strip().startswith("what")]
    if len(rows) > ROWS_MAX:
        wrong.append(f"docs/benchmarks.md has {len(rows)} rows; at most {ROWS_MAX} are one page")
    for row in rows:
        is_measured = "not measured:" not in row[-2]
        if is_measured and "`" not in row[-1] and not row[-1].startswith("the same"):
            wrong.append(f"docs/benchmarks.md has no command in the row {row[0]}")
    return wrong
