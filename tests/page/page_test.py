"""Opens pages of `ingot inspect --html` in a headless browser and uses them as a person does.

    python3 tests/page/page_test.py build/release/bin/ingot [MODEL.onnx] [--screenshots FOLDER]

Compares what the page shows with `inspect --json`. Without a model: the digits example, a model of hostile names, and one
of 6,000 nodes. Exit code 77 where there is no browser.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import devtools
import onnx_file

DIGITS = "examples/digits/digits.onnx"
SECONDS = 5  # for a page to open, however large its graphs
failures = []


def expect(what, got, wanted):
    if got != wanted:
        failures.append(f"{what}: got {got!r}, wanted {wanted!r}")


def expect_that(what, holds):
    if not holds:
        failures.append(what)


class Opened:
    """A page with the report that it must show."""

    def __init__(self, page, ingot, model, options, folder):
        self.page, self.name = page, pathlib.Path(model).stem
        html = str(pathlib.Path(folder) / f"{self.name}.html")
        command = [ingot, "inspect", model, *options, "--json", "--html", html]
        printed = subprocess.run(command, check=True, capture_output=True, text=True)
        self.report = json.loads(printed.stdout)
        self.groups = self.report["groups"]
        start = time.monotonic()
        page.open(html)
        page.settle()
        self.seconds = time.monotonic() - start

    def expect(self, what, got, wanted):
        expect(f"{self.name}: {what}", got, wanted)

    def js(self, script):
        return self.page.evaluate(script)

    def count(self, selector):
        return self.js(f"document.querySelectorAll({json.dumps(selector)}).length")

    def place_of(self, view, node):
        """Where a node of a view is on the screen."""
        return self.js(f"(() => {{ const v = ingotPage.views.{view}, b = v.canvas.getBoundingClientRect(), p = v.placeOf({node});"
                       "return p && [b.left + p.x, b.top + p.y]; })()")

    def middle_of(self, view):
        return self.js(f"(() => {{ const b = ingotPage.views.{view}.canvas.getBoundingClientRect();"
                       "return [b.left + b.width / 3, b.top + b.height / 2]; })()")

    def state(self, view):
        return self.js(f"(() => {{ const v = ingotPage.views.{view}; return {{scale: v.scale, left: v.left, top: v.top}}; }})()")


def check_contents(o):
    """Every part shows as much as the report has."""
    o.expect("report", o.js("JSON.stringify({...ingotPage.report, graphs: 0, sources: 0})") is not None, True)
    kinds = o.js("ingotPage.views.after.graph.nodes.filter((n) => n.kind === 'group').length")
    o.expect("kernels drawn", kinds, o.report["kernels"])
    o.expect("nodes of the file", o.js("ingotPage.views.before.graph.nodes.filter((n) => n.kind === 'node').length"), o.report["nodes"])
    o.expect("rows of kernels", o.count("#tab-kernels tbody tr"), o.report["kernels"])
    for tab, selector, wanted in [
        ("roofline", "#tab-roofline .dot", sum(g["flops"] > 0 and g["bytes"] > 0 for g in o.groups)),
        ("memory", "#tab-memory .value", len(o.report["arena"]["values"])),
        ("reasons", "#tab-reasons > table tbody tr", len(o.report["neighbours"])),
    ]:
        o.page.click_on(f'[data-tab="{tab}"]')
        o.expect(f"{tab}: what is drawn", o.count(selector), wanted)
        o.expect(f"{tab} is shown", o.js(f"document.getElementById('tab-{tab}').offsetHeight > 0"), True)
    o.page.click_on('[data-tab="kernels"]')
    for n in o.report["neighbours"]:
        expect_that(f"{o.name}: {n} has no reason", n["reason"])
    places = o.js("Array.from(ingotPage.views.before.layout.x).every(Number.isFinite)")
    o.expect("nodes have places", places, True)
    for value in o.report["arena"]["values"]:
        expect_that(f"{o.name}: {value} lies in the arena", 0 <= value["offset"] and value["offset"] + value["bytes"] <= o.report["arena_bytes"])


def check_no_overlap(o):
    """No two values that are alive at the same launch share bytes, and no two boxes of a rank overlap."""
    values = o.report["arena"]["values"]
    for i, a in enumerate(values):
        for b in values[i + 1:]:
            together = a["first"] <= b["last"] and b["first"] <= a["last"]
            share = a["offset"] < b["offset"] + b["bytes"] and b["offset"] < a["offset"] + a["bytes"]
            expect_that(f"{o.name}: {a['name']} and {b['name']} share memory", not (together and share))
    for view in ("before", "after"):
        overlaps = o.js(f"(() => {{ const l = ingotPage.views.{view}.layout; return l.layers.filter((layer) => "
                        "layer.some((i, p) => p && l.x[i] - l.x[layer[p - 1]] < kNodeWidth)).length; })()")
        o.expect(f"{view}: ranks with overlaps", overlaps, 0)
        upward = o.js(f"(() => {{ const l = ingotPage.views.{view}.layout; return l.edges.filter((e) => l.y[e.to] <= l.y[e.from]).length; }})()")
        o.expect(f"{view}: edges that point up", upward, 0)


def check_search(o, word):
    wanted = [k for k, g in enumerate(o.groups) if word in "\n".join(
        [str(k), g["name"], g["kind"], *(f["name"] for f in g["forms"]), *g["nodes"]]).lower()]
    o.page.press("/")
    o.expect("/ goes to the search", o.js("document.activeElement.id"), "search")
    o.page.type(word)
    found = o.js("ingotPage.hits().filter((h) => h.group !== undefined).map((h) => h.group)")
    o.expect(f"kernels found for {word}", found, wanted)
    o.expect("marked kernels", o.js("ingotPage.views.after.found.size"), len(wanted))
    expect_that(f"{o.name}: the list opens", o.count("#results:not([hidden]) [role=option]") > 0)
    o.page.press("ArrowDown")
    o.page.press("ArrowUp")
    o.page.press("Enter")
    o.expect("Enter selects the first", o.js("ingotPage.selection.group"), wanted[0])
    title = o.js("document.querySelector('#panel h2').textContent")
    expect_that(f"{o.name}: the panel shows it, not {title}", title.startswith(f"{wanted[0]} "))
    o.page.press("]")
    o.expect("] selects the next", o.js("ingotPage.selection.group"), (wanted[0] + 1) % len(o.groups))
    o.page.press("[")
    o.page.press("Escape")
    o.expect("Escape selects nothing", o.js("[ingotPage.selection.group, ingotPage.views.before.selected.size]"), [-1, 0])


def check_selection(o):
    """A click on a kernel selects its nodes in the model, and shows everything about it; and the other way around."""
    k = max(range(len(o.groups)), key=lambda i: o.groups[i]["flops"])
    o.js(f"ingotPage.views.after.reveal([nodeOfGroup[{k}]])")
    o.page.settle()
    o.page.click(*o.place_of("after", o.js(f"nodeOfGroup[{k}]")))
    o.expect("clicked kernel", o.js("ingotPage.selection.group"), k)
    labels = o.js("[...ingotPage.views.before.selected].map((i) => ingotPage.views.before.graph.nodes[i].label)")
    o.expect("its nodes", sorted(set(labels)), sorted(set(o.groups[k]["nodes"])))
    text = o.js("document.getElementById('panel').textContent")
    for part in [*o.groups[k]["operators"], *(f["plan"] for f in o.groups[k]["forms"]), *(r["name"] for r in o.groups[k]["reads"])]:
        expect_that(f"{o.name}: the panel lacks {part!r}", part in text)
    sources = o.js("[...document.querySelectorAll('#panel pre')].map((p) => p.textContent.trimEnd())")
    o.expect("sources", sources, o.js(f"ingotPage.report.sources[{k}].map((s) => s.trimEnd())"))
    o.expect("selected row", o.js("document.querySelector('#tab-kernels tr.selected').dataset.group"), str(k))
    node = o.js("[...ingotPage.views.before.selected].find((i) => ingotPage.views.before.graph.nodes[i].groups.length === 1) ?? -1")
    if node >= 0:
        o.page.press("Escape")
        o.js(f"ingotPage.views.before.reveal([{node}])")
        o.page.settle()
        o.page.click(*o.place_of("before", node))
        o.expect("clicked node's kernel", o.js("ingotPage.selection.group"), o.js(f"ingotPage.views.before.graph.nodes[{node}].groups[0]"))
    for tab, selector in [("roofline", ".dot"), ("memory", ".value")]:
        o.page.click_on(f'[data-tab="{tab}"]')
        first = o.js(f"document.querySelector('#tab-{tab} {selector}')?.dataset.group ?? ''")
        if first:
            o.js(f"document.querySelector('#tab-{tab} {selector}').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
            o.expect(f"a click on a {selector} of {tab}", o.js("String(ingotPage.selection.group)"), first)
    o.page.click_on('[data-tab="kernels"]')
    o.page.press("Escape")


def check_zoom(o):
    x, y = o.middle_of("after")
    before = o.state("after")
    o.page.wheel(x, y, -240)
    after = o.state("after")
    expect_that(f"{o.name}: the wheel zooms in", after["scale"] > before["scale"])
    box = o.js("(() => { const b = ingotPage.views.after.canvas.getBoundingClientRect(); return [b.left, b.top]; })()")
    for axis, at, corner in (("left", x, box[0]), ("top", y, box[1])):
        there = [s[axis] + (at - corner) / s["scale"] for s in (before, after)]
        expect_that(f"{o.name}: the point under the cursor stays, {there}", abs(there[0] - there[1]) < 1)
    o.page.drag(x, y, 40, -60)
    moved = o.state("after")
    expect_that(f"{o.name}: dragging moves the graph", abs((after["top"] - moved["top"]) * moved["scale"] + 60) < 2)
    o.js("ingotPage.views.after.canvas.focus()")
    o.page.press("-")
    expect_that(f"{o.name}: - zooms out", o.state("after")["scale"] < moved["scale"])
    o.page.press("0")
    expect_that(f"{o.name}: 0 goes home", abs(o.state("after")["scale"] - before["scale"]) < 1e-9)


def check_sorting(o):
    for head, key in (("Bytes", "bytes"), ("FLOPs", "flops"), ("Estimated time", "us")):
        position = 1 + o.js(f"[...document.querySelectorAll('#tab-kernels th')].findIndex((t) => t.textContent === '{head}')")
        for down in (True, False):
            o.page.click_on(f"#tab-kernels th:nth-child({position}) button")
            rows = o.js("[...document.querySelectorAll('#tab-kernels tbody tr')].map((r) => Number(r.dataset.group))")
            values = [o.groups[k][key] for k in rows]
            o.expect(f"sorted by {key}", values, sorted(values, reverse=down))


def parts_of(steps):
    """The parts that a course runs, those of branches and bodies in their place."""
    for step in steps:
        if step["kind"] == "part":
            yield step
        for inner in ("then", "else", "body"):
            yield from parts_of(step.get(inner, []))


def check_course(o):
    """Every kernel is in one part, and each step is shown with what the host reads before it."""
    steps = o.report.get("course")
    shown = o.js("!document.querySelector('[data-tab=\"course\"]').hidden")
    o.expect("the course is shown", shown, steps is not None)
    if steps is None:
        return
    launches = [k for part in parts_of(steps) for k in range(*part["launches"])]
    o.expect("launches of the parts", sorted(launches), list(range(o.report["kernels"])))
    expect_that(f"{o.name}: a part waits for sizes", any(part["reads"] for part in parts_of(steps)))
    expect_that(f"{o.name}: an If waits for its condition", any(s["kind"] == "if" and s["reads"] == ["condition"] for s in steps))
    o.page.click_on('[data-tab="course"]')
    o.expect("kernels in the course", o.count("#tab-course [data-group]"), o.report["kernels"])
    o.js("document.querySelector('#tab-course [data-group=\"1\"]').click()")
    o.expect("a click on a kernel of the course", o.js("ingotPage.selection.group"), 1)
    o.page.click_on('[data-tab="kernels"]')
    o.page.press("Escape")


def check_theme(o):
    pixel = ("(() => { const c = new OffscreenCanvas(1, 1).getContext('2d'), from = ingotPage.views.after.canvas;"
             "c.drawImage(from, -2, 2 - from.height, from.width, from.height);"
             "return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3).reduce((a, b) => a + b); })()")
    light = o.js(pixel)
    o.page.click_on("#theme")
    expect_that(f"{o.name}: dark is darker", o.js(pixel) < light - 300)
    o.page.click_on("#theme")


def check_page(o, word):
    expect_that(f"{o.name}: opened in {o.seconds:.1f} s", o.seconds < SECONDS)
    check_contents(o)
    check_course(o)
    check_no_overlap(o)
    check_search(o, word)
    check_selection(o)
    check_zoom(o)
    check_sorting(o)
    check_theme(o)
    o.js("document.getElementById('show-folded').click()")
    o.page.settle()
    o.expect("all nodes are laid out", o.js("ingotPage.views.before.layout.ids.length === ingotPage.views.before.graph.nodes.length"), True)
    o.expect("something is broken", o.js("window.broken === undefined"), True)
    asked = [url for url in o.page.requests if not url.startswith(("file:", "data:"))]
    o.expect("requests", asked, [])
    o.expect("errors in the page", o.page.errors, [])
    print(f"{o.name}: {o.report['nodes']} nodes, {o.report['kernels']} kernels, opened in {o.seconds:.2f} s")


def take_screenshots(o, folder):
    o.page.screenshot(f"{folder}/{o.name}-kernels.png")
    k = max(range(len(o.groups)), key=lambda i: o.groups[i]["flops"])
    o.js(f"ingotPage.pickGroup({k})")
    for tab in ("roofline", "memory", "reasons"):
        o.page.click_on(f'[data-tab="{tab}"]')
        if tab == "memory":
            o.page.click_on("#theme")
        o.page.screenshot(f"{folder}/{o.name}-{tab}.png")
    o.page.click_on("#theme")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ingot")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--word", default="conv", help="to search for")
    parser.add_argument("--screenshots", help="writes pictures there, and tests nothing")
    args = parser.parse_args()
    browser = devtools.find_browser()
    if not browser:
        print(f"skipped: no browser here; INGOT_BROWSER may name one, apt has {devtools.BROWSERS[0]}")
        return 77
    options = ["--target", args.target, "--precision", args.precision]
    with tempfile.TemporaryDirectory() as folder:
        made = {"hostile": onnx_file.hostile_model(), "large": onnx_file.large_model(6000), "course": onnx_file.course_model()}
        for name, content in made.items():
            pathlib.Path(folder, f"{name}.onnx").write_bytes(content)
        models = [(args.model, options, args.word)] if args.model else [
            (DIGITS, options, "conv"), (DIGITS, [], "relu"), (f"{folder}/hostile.onnx", options, "script"), (f"{folder}/large.onnx", options, "branch"),
            (f"{folder}/course.onnx", options, "where"), (f"{folder}/course.onnx", [], "where")]
        for model, chosen, word in models:
            try:
                page = devtools.Page(browser)
            except devtools.NoBrowser as why:
                print(f"skipped: {why}")
                return 77
            try:
                opened = Opened(page, args.ingot, model, chosen, folder)
                take_screenshots(opened, args.screenshots) if args.screenshots else check_page(opened, word)
            finally:
                page.close()
    for failure in failures:
        print(f"FAIL {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
