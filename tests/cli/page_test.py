#!/usr/bin/env python3
"""Tests of the page of `tutti bench --html`: what it holds by a parser, how it looks in a headless browser.

Knows what the help promises, nothing of how it is done. Usage: page_test.py TUTTI; 77 is "skipped" (no browser).
"""

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
EMPTY = {"meta", "br", "hr", "img", "link", "input"}
FOLDER = os.path.dirname(os.path.abspath(__file__))
PLOT = os.path.join(FOLDER, "..", "..", "tools", "cli", "plot")
XML = os.path.join(FOLDER, "..", "topology", "data", "power9_two_sockets.xml")
# Contrast as WCAG 2 defines it, of each text against the first filled thing behind it. Text in an SVG may stand on its boxes.
PROBE = """
<script>
const channel = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const luminance = rgb => { const [r, g, b] = rgb.match(/[\\d.]+/g).map(Number); return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b) };
const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05) };
const paper = getComputedStyle(document.body).backgroundColor;
const faults = [];
for (const e of document.querySelectorAll('h1, h2, p, code, th, td, dt, dd, figcaption'))
  if (contrast(getComputedStyle(e).color, paper) < 4.5) faults.push('contrast of ' + e.tagName + ' ' + e.textContent);
for (const svg of document.querySelectorAll('svg')) {
  const frame = svg.getBoundingClientRect();
  if (frame.width < 100 || frame.height < 50) faults.push('a picture of ' + frame.width + ' by ' + frame.height);
  const boxes = [...svg.querySelectorAll('rect')].filter(r => getComputedStyle(r).fill.startsWith('rgb'));
  for (const text of svg.querySelectorAll('text')) {
    const place = text.getBoundingClientRect(), x = place.x + place.width / 2, y = place.y + place.height / 2;
    if (place.left < frame.left - 1 || place.right > frame.right + 1 || place.bottom > frame.bottom + 1) faults.push('outside: ' + text.textContent);
    const behind = boxes.filter(r => { const b = r.getBoundingClientRect(); return b.left < x && x < b.right && b.top < y && y < b.bottom }).pop();
    if (contrast(getComputedStyle(text).fill, behind ? getComputedStyle(behind).fill : paper) < 4.5) faults.push('contrast of ' + text.textContent);
    if (place.height < 8 && svg.closest('.charts')) faults.push('small: ' + text.textContent);
  }
  for (const line of svg.querySelectorAll('polyline'))
    if (contrast(getComputedStyle(line).stroke, paper) < 3) faults.push('contrast of a curve');
}
if (document.documentElement.scrollWidth > innerWidth) faults.push('wider than the screen: ' + document.documentElement.scrollWidth);
const charts = [...document.querySelectorAll('.charts svg')].map(s => s.getBoundingClientRect().y);
document.body.insertAdjacentHTML('beforeend', '<pre id="probe"></pre>');
document.getElementById('probe').textContent = JSON.stringify({faults, paper, width: innerWidth, columns: charts[0] === charts[1] ? 2 : 1,
  loaded: performance.getEntriesByType('resource').length});
</script>
"""


def expect(condition, what):
    if not condition:
        print("FAILED: " + what)
        sys.exit(1)


class Page(html.parser.HTMLParser):
    """The elements with their attributes and texts; a page that is not nested well, or names an address, fails."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(text)
        expect(not self.open, f"elements left open: {self.open}")

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", **dict(attributes)}
        self.elements.append(element)
        if tag not in EMPTY:
            self.open.append(element)

    def handle_startendtag(self, tag, attributes):
        self.elements.append({"tag": tag, "text": "", **dict(attributes)})

    def handle_endtag(self, tag):
        expect(self.open and self.open[-1]["tag"] == tag, f"</{tag}> closes {self.open[-1]['tag'] if self.open else 'nothing'}")
        self.open.pop()

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag):
        return [element for element in self.elements if element["tag"] == tag]

    def texts(self, tag):
        return [element["text"] for element in self.all(tag)]


def check_page(path):
    """What holds for every page: it loads nothing, and each part has a name."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    page = Page(text)
    expect(text.startswith("<!doctype html>") and page.all("html")[0]["lang"] == "en", "the page says what it is")
    addresses = re.findall(r'(?:src|href|srcset|action|data)\s*=|@import|url\(|\w+://[^\s"<]*', text)
    expect(set(addresses) <= {"http://www.w3.org/2000/svg"} and not page.all("script"), f"the page loads nothing: {addresses}")
    names = [element["id"] for element in page.elements if "id" in element]
    expect(len(names) == len(set(names)), f"names are there once: {names}")
    for element in page.elements:
        expect(all(name in names for name in element.get("aria-labelledby", "").split()), f"labels exist: {element}")
        expect(element["tag"] != "svg" or element.get("role") == "img", f"pictures are pictures: {element}")
        expect(element["tag"] != "th" or element.get("scope") in ("row", "col"), f"heads of a table say of what: {element}")
    expect(len(page.all("desc")) >= len(page.all("svg")) >= 2, "pictures are told in words")
    expect(page.texts("h1")[0] and page.texts("title")[0].startswith(page.texts("h1")[0]), "a title")
    return page


def rows_of_comparison():
    rows = []
    for exponent in range(2, 21, 3):
        for name, factor in (("tutti", 1), ("mpich", 1.5), ("openmpi", 2.25), ("gloo", 9)):
            time = factor * (0.5 + 2**exponent / 8000)
            row = {"library": name, "collective": "allreduce", "bytes": 2**exponent, "count": 2**exponent // 4, "dtype": "f32", "op": "sum"}
            row.update(in_place=False, ranks=4, nodes=1, algorithm="ring<1>", transport="shm", backend=f"{name} 1.2", p50_us=time, wrong=0)
            row.update(p95_us=time, min_us=time, algbw_GBs=2**exponent / time / 1e3, busbw_GBs=1.5 * 2**exponent / time / 1e3)
            rows.append({**row, "best_peer": "mpich", "ratio": 1.5} if name == "tutti" else row)
    return rows


def draw_comparison(tutti, folder):
    """A page of saved results, with a machine that has two sockets."""
    environment = {**os.environ, "HWLOC_XMLFILE": XML, "TUTTI_TUNING_FILE": "off"}
    boxes = json.loads(
        subprocess.run([tutti, "info", "--topology", "--plan", "4", "--json"], capture_output=True, check=True, env=environment).stdout
    )
    about = {
        "command": "tutti bench <i>&amp;</i>",
        "machine": boxes,
        "settings": [["calls", "fresh"]],
        "versions": [["program", "tutti 1"]],
    }
    saved, told, page = (os.path.join(folder, name) for name in ("rows.json", "about.json", "page.html"))
    with open(saved, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows_of_comparison())
    with open(told, "w", encoding="utf-8") as file:
        json.dump(about, file)
    subprocess.run([sys.executable, "-B", os.path.join(PLOT, "plot_bench.py"), "--about", told, saved, page], check=True)
    return page


def check_comparison(path):
    page = check_page(path)
    expect(page.texts("code")[0] == "tutti bench <i>&amp;</i>", f"texts stay texts: {page.texts('code')}")
    expect(len(page.all("polyline")) >= 8, "a curve for each library in both charts")
    expect(
        [text for text in page.texts("th") if ", us" in text] == [f"{name}, us" for name in ("tutti", "mpich", "openmpi", "gloo")],
        "side by side",
    )
    expect(
        [text for text in page.texts("th") if text.endswith("B")] == ["4 B", "32 B", "256 B", "2 KiB", "16 KiB", "128 KiB", "1 MiB"],
        "a line each",
    )
    expect(page.texts("td").count("mpich (ring<1>)") == 7 and "1.50" in page.texts("td"), f"peers: {page.texts('td')}")
    expect(page.texts("text").count("3") == 10 and any("socket 1" in text for text in page.texts("text")), "the machine with its ranks")
    expect("ranks 3 on CPUs" in page.texts("desc")[-1], f"the machine in words: {page.texts('desc')[-1]}")


def check_run(tutti, folder):
    """A page of a run, from the command line."""
    path, saved = os.path.join(folder, "run.html"), os.path.join(folder, "run.json")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")}
    environment.update(TUTTI_TUNING_FILE="off", TUTTI_TIMEOUT="77s")
    words = ["bench", "allreduce", "-n", "2", "-b", "4", "-e", "4k", "-f", "32", "--budget", "0.02", "--iters", "3", "--check"]
    result = subprocess.run(
        [tutti, *words, "--bind", "core", "--html", path, "--json", saved], capture_output=True, text=True, check=False, env=environment
    )
    expect(result.returncode == 0 and f"# html: {path}\n" in result.stdout, f"a page: {result}")
    page = check_page(path)
    with open(saved, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    cells = page.texts("td")
    for row in rows:
        expect(f'{row["p50_us"]:.2f}' in cells and row["algorithm"] in cells, f"the table has {row}: {cells}")
    told = dict(zip(page.texts("dt"), page.texts("dd")))
    expect(told["TUTTI_TIMEOUT"] == "77s" and told["results"] == "verified bit by bit", f"settings: {told}")
    expect(re.match(r"tutti \d+\.\d+\.\d+, build ", told["program"]) and told["tutti"].startswith("native"), f"versions: {told}")
    expect(page.texts("code")[0].startswith("tutti bench allreduce -n 2"), "the command")
    expect(re.search(r"; ranks 0(,1)? on CPUs", page.texts("desc")[-1]) is not None, f"ranks in their places: {page.texts('desc')[-1]}")
    missing = os.path.join(folder, "no", "such.html")
    refused = subprocess.run([tutti, *words, "--html", missing], capture_output=True, text=True, check=False, env=environment)
    expect(
        refused.returncode == 2 and not refused.stdout and "--html" in refused.stderr and "No such file" in refused.stderr,
        f"said at once: {refused}",
    )


def look(browser, page, folder, width, is_dark):
    """The page as a browser shows it, with its faults."""
    probed = os.path.join(folder, "probed.html")
    with open(page, encoding="utf-8") as file:
        text = file.read()
    with open(probed, "w", encoding="utf-8") as file:
        file.write(text.replace("</body>", PROBE + "</body>"))
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile"]
    command += [
        f"--window-size={width},900",
        f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
        "--dump-dom",
        "file://" + probed,
    ]
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False, timeout=100).stdout
    told = re.findall(r'<pre id="probe">({.*?)</pre>', shown, re.S)
    expect(len(told) == 1, f"{browser} shows the page: {shown[-300:]}")
    return json.loads(html.unescape(told[0]))


def main():
    tutti = os.path.abspath(sys.argv[1])
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    with tempfile.TemporaryDirectory() as folder:
        check_run(tutti, folder)
        page = draw_comparison(tutti, folder)
        check_comparison(page)
        if browser is None:
            print("SKIPPED: the page holds all, but there is no browser to look at it; Debian: apt install chromium-headless-shell")
            sys.exit(SKIPPED)
        for width, is_dark, columns in ((390, False, 1), (390, True, 1), (1200, True, 2)):
            seen = look(browser, page, folder, width, is_dark)
            expect(not seen["faults"] and seen["loaded"] == 0, f"{width} pixels, {'dark' if is_dark else 'light'}: {seen}")
            expect(seen["width"] == width and seen["columns"] == columns, f"charts below or beside each other: {seen}")
            expect(("255, 255, 255" in seen["paper"]) != is_dark, f"the paper: {seen}")
    print("passed")


if __name__ == "__main__":
    main()
