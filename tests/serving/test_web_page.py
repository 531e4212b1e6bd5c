"""The page of `probing web` in a real browser, on real trainings: what it shows and what it does.

In every case the page complains of nothing and asks nobody but its own server.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.cli.render.profiling.flamegraph import render_flamegraph
from probing.profiling import parse_folded
from tests.harness.browser import CHROMIUM, Browser, browser
from tests.harness.page import click, drag, view
from tests.harness.targets import Target, start_program, stop
from tests.harness.web import REST_S, Web, needs_page, two_ranks, web

pytestmark = [
    pytest.mark.torch,
    pytest.mark.browser,
    needs_page,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]

VALUES = {
    "make_timestamp_ns(-1)": "1969-12-31T23:59:59.999999999",
    "to_timestamp(1764394123.456789)": "2025-11-29T05:28:43.456789Z",
    "'-infinity'::TIMESTAMP": "-infinity",
    "DATE '2025-11-29'": "2025-11-29",
    "TIME '12:34:56.5'": "12:34:56.500000",
    "INTERVAL '2 months -1 days 90 seconds'": "P2M-1DT90S",
    "sum(9007199254740993::BIGINT)": "9007199254740993",
    "-0.1::DECIMAL(38, 4)": "-0.1000",
    "12345678.9::DOUBLE": "12345678.9",
    "[9007199254740993, NULL]": "[9007199254740993,null]",
    "[1, 2]::UTINYINT[]": "[1,2]",
    "['NaN'::DOUBLE]": '["NaN"]',
    "[{'a': DATE '2025-11-29', 'b': 0.10}]": '[{"a":"2025-11-29","b":"0.10"}]',
    "MAP {1: TIME '12:34:56'}": '{"1":"12:34:56.000000"}',
    "'\\x00\\xff'::BLOB": "00ff",
}
"""Expressions of SQL, and what they are in the grid and as CSV."""
PLOTS = "document.querySelectorAll('.uplot canvas').length > 2"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Target]]:
    """Both ranks of a training whose names are markup."""
    with two_ranks(tmp_path_factory.mktemp("target"), job="<i>job</i>") as started:
        yield started


@pytest.fixture(scope="module")
def target(ranks: list[Target]) -> Target:
    """The first of them."""
    return ranks[0]


@pytest.fixture(scope="module")
def served(ranks: list[Target], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """The command about them."""
    with web(tmp_path_factory.mktemp("web") / "in", ranks[0].home) as started:
        yield started


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all of them."""
    with browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def blank(opened: Browser) -> Browser:
    """The browser, with nothing in it and nothing kept of what was."""
    opened.open("about:blank")
    opened.wait_for("location.href === 'about:blank'")
    opened.show(theme="light", width=1280)
    opened.requests.clear()
    opened.faults.clear()
    return opened


@pytest.fixture
def page(served: Web, blank: Browser) -> Iterator[Browser]:
    """The page, opened by its link."""
    opened = blank
    opened.open(served.link)
    opened.wait_for("document.querySelector('tr[data-endpoint]')")
    yield opened
    assert opened.faults == []
    own = (served.link.partition("#")[0], "data:", "about:blank", "blob:")
    assert [one for one in opened.requests if not one.startswith(own)] == []
    assert served.errors == ""


def test_the_token_leaves_the_address_at_once(page: Browser, served: Web) -> None:
    """Neither the address nor the history has it, and a reload needs none."""
    assert page.evaluate("location.href") == f"http://127.0.0.1:{served.port}/"
    assert served.token not in page.evaluate("JSON.stringify([history.state, document.cookie])")
    page.call("Page.reload")
    page.wait_for("document.querySelector('tr[data-endpoint]')")
    assert not [one for one in page.requests if served.token in one.partition("#")[0]]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_new_link_opens_in_the_tab_of_an_old_one(
    blank: Browser, served: Web, is_refused: bool
) -> None:
    """It differs behind `#` alone, and its token is taken at once, also where none is kept."""
    blank.open(served.link.replace(served.token, "0" * 64))
    blank.wait_for("document.querySelector('[role=alert]')")
    if is_refused:
        blank.evaluate(
            "Object.defineProperty(window, 'sessionStorage', {get() { throw new Error() }}) && 1"
        )
    blank.evaluate(f"location.hash = '#token={served.token}'")
    blank.wait_for("document.querySelector('tr[data-endpoint]')")
    assert served.token not in blank.evaluate("location.href")


def test_a_process_that_is_not_recorded_is_not_stuck(page: Browser) -> None:
    """Nobody is sent to look for its threads."""
    page.evaluate(
        "void (old => { window.fetch = async (...asked) => { const it = await old(...asked);"
        " return asked[0] === '/page/processes' ? new Response((await it.text())"
        ".replaceAll('\"training\"', '\"not recorded\"')) : it; }; })(fetch)"
    )
    page.wait_for("document.querySelector('tr .state.quiet')?.textContent === 'not recorded'")


def test_processes_and_steps(page: Browser) -> None:
    """A training's row says what it does; its plots zoom by the mouse, and the address says how."""
    page.wait_for("document.querySelector('tr[data-endpoint] .state.good')")
    page.wait_for("!document.querySelector('.found').textContent.includes('…')")
    view(page, "steps")
    page.wait_for(PLOTS)
    page.wait_for("document.querySelector('.summary').textContent.includes('steps on record')")
    page.wait_for("document.body.innerText.includes('Nothing of a device is on record')")
    drag(page)
    page.wait_for("/from=\\d+&to=\\d+/.test(location.hash)")
    page.wait_for("document.querySelector('.ran pre').textContent.includes('step >= ')")
    click(page, "Show all")
    page.wait_for("!location.hash.includes('from=')")
    assert "FROM python.steps" in page.evaluate("document.querySelector('.ran pre').textContent")


def test_who_is_no_rank_is_counted_apart(
    blank: Browser, ranks: list[Target], tmp_path: Path
) -> None:
    """A process beside a job is none of its ranks, and the page is not about the job alone."""
    home = ranks[0].home
    other = start_program("idle", home=home, cwd=tmp_path, PROBING="all")
    try:
        other.wait_for_agent()
        with web(tmp_path / "in", home) as started:
            blank.open(started.link)
            said = "2 of 2 ranks of job <i>job</i> seen, and 1 other process: "
            found = "document.querySelector('.summary')?.textContent"
            blank.wait_for(f"{found}?.startsWith({json.dumps(said)})")
            assert blank.evaluate("document.querySelector('h2').textContent") == "Processes"
            assert blank.faults == []
            blank.open("about:blank")
    finally:
        other.reap()


def test_one_step(page: Browser) -> None:
    """The calls of a step are boxes; keys zoom, and the address says which step it is."""
    view(page, "step")
    page.wait_for("document.querySelector('.told').textContent.includes('are shown of')")
    whole = page.evaluate("document.querySelector('.told').textContent")
    page.evaluate("document.querySelector('.icicle canvas').focus()")
    page.press("+")
    page.wait_for(f"document.querySelector('.told').textContent !== {json.dumps(whole)}")
    page.press("0")
    page.wait_for(f"document.querySelector('.told').textContent === {json.dumps(whole)}")
    page.press("ArrowDown")
    page.wait_for("document.querySelector('.told').textContent.startsWith('step · ')")
    page.press("ArrowDown")
    page.wait_for("document.querySelector('.told').textContent.includes(' · forward · ')")
    stages = page.evaluate(
        "[...document.querySelectorAll('td:nth-child(3)')].map(x => x.innerText)"
    )
    assert {"forward", "backward", "optimizer"} <= set(stages)
    click(page, "← before")
    page.wait_for("/step=\\d+/.test(location.hash)")
    page.wait_for("document.querySelector('.ran pre').textContent.includes('WHERE step = ')")


def test_one_step_of_all_ranks(page: Browser) -> None:
    """The same step of the other rank is drawn below, and both are coloured by FLOPs."""
    view(page, "step")
    page.wait_for("document.querySelector('.icicle')")
    page.evaluate("document.querySelector('input[type=checkbox]').click()")
    page.wait_for("document.querySelectorAll('.icicle').length === 2")
    assert page.evaluate("document.querySelector('h3').textContent") == "rank 1"
    choose = (
        "const one = document.querySelector('[value=flops]').parentElement; one.value = 'flops'"
    )
    page.evaluate(f"{{ {choose}; one.dispatchEvent(new Event('change', {{bubbles: true}})) }}")
    page.wait_for("document.querySelector('.scale') && !document.querySelector('[role=status]')")
    assert page.evaluate("document.querySelector('[role=alert]')") is None


def test_what_happened_is_marked(page: Browser, target: Target) -> None:
    """An eval is a line in the plots and a row of the list, its code as text."""
    assert target.run(str(target.pid), "eval", "'<b>hit</b>'").returncode == 0
    view(page, "steps")
    page.wait_for(PLOTS)
    rows = "[...document.querySelectorAll('details td.wide')]"  # a finding may come before it
    page.wait_for(f"{rows}.some(one => one.textContent.includes('<b>hit</b>'))")
    assert "FROM python.evals" in page.evaluate("document.querySelector('.ran').textContent")


def test_the_model(page: Browser) -> None:
    """Its modules are a tree with what is known of each, to be sorted, folded and searched."""
    view(page, "model")
    module = "document.querySelector('tr[data-module*=img]')"
    page.wait_for(module)
    click(page, "Shapes and FLOPs")
    page.wait_for(f"{module}.textContent.includes('[4, 8] → [4, 8]')")
    assert "512" in page.evaluate(f"{module}.textContent")  # 2 x 4 x 8 x 8, and nothing of the bias
    click(page, "Gradients and updates")
    page.wait_for("document.querySelector('thead').textContent.includes('update norm')")
    click(page, "parameters")
    page.wait_for("document.querySelector('[aria-sort=descending]').textContent === 'parameters ↓'")
    page.evaluate("document.querySelector('button.fold').focus()")
    page.press("ArrowLeft")
    page.wait_for(f"!{module}")
    page.press("ArrowRight")
    page.wait_for(module)
    search = "document.querySelector('[type=search]')"
    page.evaluate(f"{search}.value = 'no such'; {search}.dispatchEvent(new Event('input'))")
    page.wait_for(f"!{module} && document.body.innerText.includes('0 found')")
    assert page.evaluate("document.querySelectorAll('.ran pre').length") == 2


def test_memory(page: Browser, target: Target) -> None:
    """Phases are plotted from the record; categories and holders are looked for on a button."""
    view(page, "memory")
    page.wait_for("document.querySelector('.uplot canvas')")
    click(page, "Look at the next step")
    page.wait_for("document.querySelectorAll('.split').length === 2")
    assert "activations" in page.text()
    click(page, "The largest batch that fits")
    heads = "[...document.querySelectorAll('thead')]"
    page.wait_for(f"{heads}.some((one) => one.textContent.includes('now: batch 4'))")
    click(page, "Who holds the largest")
    page.wait_for("document.body.innerText.includes('of the module <img')")
    page.wait_for(f"document.body.innerText.includes('probing {target.pid} memory --record on')")


def test_the_doctor(page: Browser) -> None:
    """It shows what the record shows, by which SQL, and on a button all that the command does."""
    view(page, "doctor")
    page.wait_for("document.querySelector('.ran pre').textContent.includes('FROM python.')")
    page.evaluate("document.querySelector('.environment summary').click()")
    page.wait_for("document.querySelector('.environment tbody').textContent.includes('torch')")
    click(page, "Examine all")
    page.wait_for("document.body.innerText.includes('Healthy')")
    assert "Not looked at" in page.text()


def test_all_ranks_at_once(page: Browser) -> None:
    """One statement runs over the tables of both ranks, and the doctor compares them."""
    view(
        page,
        "sql",
        sql="SELECT rank, count(*) > 9 AS enough FROM python.steps GROUP BY 1 ORDER BY 1",
    )
    page.wait_for("document.querySelector('.cm-content').textContent.includes('enough')")
    page.evaluate("document.querySelector('input[type=checkbox]').click()")
    click(page, "Run")
    page.wait_for("document.querySelector('.grid tbody').textContent === '10true21true'")
    assert "asked 2 ranks: all answered" in page.text()
    view(page, "sql", sql="SELECT stpe FROM python.steps")
    page.wait_for("document.querySelector('.cm-content').textContent.includes('stpe')")
    click(page, "Run")
    page.wait_for("document.querySelector('[role=alert]').textContent.includes('Did you mean')")
    page.faults[:] = [one for one in page.faults if "status of 400" not in one]
    view(page, "doctor")
    click(page, "Examine all 2 ranks")
    page.wait_for("document.body.innerText.includes('ranks 0-1:')")
    assert "All ranks" in page.text()


def test_stacks_of_ranks_and_samples(page: Browser) -> None:
    """Equal stacks of the ranks are one, and those that were sampled are a flame graph."""
    view(page, "act")
    page.wait_for("document.querySelector('.note')?.textContent.includes('--allow-eval')")
    assert page.evaluate("document.querySelector('textarea')") is None
    view(page, "stacks", form="ranks")
    page.wait_for("document.querySelector('.thread')")
    assert "ranks 0-1 (2 of 2)" in page.text()
    view(page, "stacks", form="samples")
    page.wait_for("document.querySelector('.told').textContent.includes('samples are shown of')")
    page.wait_for("document.querySelector('.icicle canvas').height > 50")


def test_questions_by_sql(page: Browser) -> None:
    """A million rows are a grid and a plot; what is wrong is marked at its place."""
    view(page, "sql", sql="SELECT range AS x, range * 2 AS y FROM range(1000000)")
    click(page, "Run")
    page.wait_for("document.querySelector('.grid table')?.ariaRowCount === '1000000'")
    assert page.evaluate("document.querySelectorAll('.grid tbody tr').length") < 100
    page.evaluate("document.querySelector('.grid').scrollTop = 1e9")
    page.wait_for("document.querySelector('.grid tbody tr:last-child')?.ariaRowIndex === '1000000'")
    click(page, "Plot")
    page.wait_for("document.querySelector('.uplot canvas')")
    view(page, "sql", sql="SELECT range AS a, -range AS b FROM range(10)")
    page.wait_for("document.querySelector('.cm-content').textContent.includes('AS b')")
    click(page, "Run")
    page.wait_for("document.querySelector('.u-legend')?.textContent.match(/a.*b/s)")
    across, middle = drag(page)
    view(page, "sql", sql="SELECT range + 5000 AS a, -range AS b FROM range(12)")
    page.wait_for("document.querySelector('.cm-content').textContent.includes('5000')")
    click(page, "Run")  # all of it is seen, whatever of the one before was zoomed into
    page.wait_for("document.body.innerText.includes('12 rows in')")
    for at in (0.8, 0.9):
        page.mouse("mouseMoved", across(at), middle)
    page.wait_for("document.querySelector('.u-legend').textContent.includes('5,010')")
    view(page, "sql", sql="SELECT stpe FROM python.steps")
    page.wait_for("document.querySelector('.cm-content').textContent.includes('stpe')")
    click(page, "Run")
    page.wait_for("document.querySelector('.cm-lintRange-error')?.textContent === 'stpe'")
    page.wait_for("document.querySelector('[role=alert]').textContent.includes('Did you mean')")
    page.faults[:] = [one for one in page.faults if "status of 400" not in one]


def test_values_of_every_type_are_exact(page: Browser) -> None:
    """Cells and CSV have times as ISO 8601 and all digits, in lists and structs, too."""
    view(page, "sql", sql=f"SELECT {', '.join(VALUES)}")
    click(page, "Run")
    page.wait_for("document.querySelector('.grid tbody td:nth-child(2)')")
    cells = "[...document.querySelectorAll('.grid tbody td')].slice(1).map(one => one.textContent)"
    assert page.evaluate(cells) == list(VALUES.values())
    page.evaluate("URL.createObjectURL = (blob) => { window.file = blob; return '#'; }")
    click(page, "CSV")
    told = page.evaluate("window.file.text()").splitlines()[1]
    assert next(csv.reader([told])) == list(VALUES.values())


def test_names_are_text(page: Browser) -> None:
    """What a process calls its modules, classes, functions and threads is shown as it stands."""
    view(page, "stacks")
    page.wait_for("document.querySelector('.thread')")
    shown = page.text()
    for name in ("thread", "function"):
        assert f"<img src=x onerror=\"hit = '{name}'\">" in shown
    view(page, "model")
    page.wait_for("document.querySelector('.tree')?.textContent.includes('turned\\\\u202egnp')")
    view(page, "steps")
    named = "[...document.querySelectorAll('figcaption')]"
    page.wait_for(f"{named}.some(one => one.textContent.includes(\"hit = 'metric'\"))")
    view(page, "model")
    page.wait_for("document.querySelector('.tree thead')?.textContent.includes('parameters')")
    wide = "document.querySelector('.tree').scrollWidth"
    assert page.evaluate(f"{wide} <= document.documentElement.clientWidth"), "a name hides figures"
    view(page, "sql", sql="SELECT DISTINCT module, class FROM python.torch_trace")
    click(page, "Run")
    page.wait_for("document.querySelector('.grid tbody').textContent.includes(\"'class'\")")
    cells = "SELECT '<script>window.hit = 1</script>' AS \"<b>name</b>\""
    view(page, "sql", sql=cells)
    page.wait_for("document.querySelector('.cm-content').textContent.includes('<b>')")
    click(page, "Run")
    page.wait_for("document.querySelector('.grid thead').textContent.includes('<b>name</b>')")
    assert page.evaluate("window.hit") is None
    assert page.evaluate("document.querySelectorAll('main img, main b, main script').length") == 0


def test_it_acts_and_goes_on_with_the_record(blank: Browser, tmp_path: Path) -> None:
    """It runs code and acts where that is allowed and said twice, and survives the process."""
    target = start_program(
        "hostile_names", str(REST_S), home=tmp_path / "home", cwd=tmp_path, PROBING="1"
    )
    try:
        target.wait_for_step(50)
        with web(tmp_path / "in", target.home, "--allow-eval") as started:
            blank.open(started.link)
            blank.wait_for("document.querySelector('tr[data-endpoint]')")
            view(blank, "act")
            field = "document.querySelector('textarea')"
            blank.wait_for(field)
            code = json.dumps("'<b>' + str(6 * 7)")
            blank.evaluate(f"{field}.value = {code}; {field}.dispatchEvent(new Event('input'))")
            click(blank, "Run it …")
            blank.wait_for("document.activeElement.textContent === 'No'")
            assert (
                target.run(str(target.pid), "query", "FROM python.evals").stdout.count("6 *") == 0
            )
            click(blank, "Yes, run it")
            blank.wait_for("document.querySelector('pre.answer').textContent === \"'<b>42'\"")
            click(blank, "Apply it …")
            click(blank, "Yes, apply it")
            blank.wait_for("document.body.innerText.includes('0.001 → 0.0005')")
            view(blank, "steps")
            blank.wait_for(PLOTS)
            target.kill()
            ended = "document.querySelector('[role=status]')?.textContent.includes('has ended')"
            blank.wait_for(ended)
            blank.wait_for("document.querySelector('.about').innerText.includes('without a word')")
            assert blank.evaluate("document.title").startswith("dead: process ")
            view(blank, "stacks")
            open_then = "document.querySelector('.thread')?.textContent.includes('step ')"
            nothing = "document.body.innerText.includes('nothing is open on its record: step ')"
            blank.wait_for(f"{open_then} || {nothing}")
            view(blank, "doctor")
            blank.wait_for("document.body.innerText.includes('it cannot be asked any more')")
            view(blank, "sql", sql="SELECT count(*) > 50 AS enough FROM python.steps")
            click(blank, "Run")
            blank.wait_for("document.querySelector('.grid tbody')?.textContent.includes('true')")
            assert blank.faults == []
            blank.open("about:blank")
    finally:
        target.reap()


def test_a_report_is_saved_from_the_page(page: Browser) -> None:
    """It is the file that the command writes, handed on as one."""
    view(page, "steps")
    page.evaluate(
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text });"
        " return 'data:,' }"
    )
    click(page, "Save a report")
    page.wait_for("window.saved?.startsWith('<!doctype html>')")
    assert page.evaluate("window.saved.includes('id=\"record\"')")
    assert page.evaluate("document.querySelector('[role=alert]')") is None


def test_a_report_is_whole_in_one_file(blank: Browser, target: Target, tmp_path: Path) -> None:
    """It draws steps, calls and environment, asks for nothing, and makes no markup of names."""
    path = tmp_path / "run.html"
    done = target.run(str(target.pid), "report", "-o", str(path))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    refused = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no'); } })"
    script = blank.call("Page.addScriptToEvaluateOnNewDocument", source=refused)
    try:
        blank.open(path.as_uri())  # as in a sandboxed frame, where nothing can be kept
        blank.wait_for(PLOTS)
    finally:
        blank.call("Page.removeScriptToEvaluateOnNewDocument", **script)
    blank.wait_for("document.querySelector('.icicle canvas').height > 50")
    assert "hit = 'module'" in blank.text()
    assert "Findings" in blank.text()
    assert blank.evaluate("window.hit") is None
    assert blank.faults == []
    assert {one for one in blank.requests if not one.startswith("data:")} <= {
        path.as_uri(),
        "about:blank",
    }


def test_a_report_says_where_a_process_stands(blank: Browser, tmp_path: Path) -> None:
    """It has the stacks of one that does not get on, and of one that has ended what it was in."""
    target = start_program("diverges", home=tmp_path / "home", cwd=tmp_path, PROBING="1")
    try:
        target.wait_for_output("ready")
        stop(target.pid)
        for name, said, head in (
            ("stopped", "Its main thread is", "Where its threads are"),
            ("dead", "ended without a word", "Where its threads were"),
        ):
            path = tmp_path / f"{name}.html"
            done = target.run(str(target.pid), "report", "-o", str(path))
            assert done.returncode == 0, done.stderr
            blank.open(path.as_uri())
            blank.wait_for(PLOTS)
            shown = blank.text()
            assert said in shown
            assert head in shown
            assert "No call of a module has begun in it" in shown, "and no plot of a nanosecond"
            assert ("act lr" in shown) == (name == "stopped"), "advice of use"
            logs = "document.querySelector('figcaption button').getAttribute('aria-pressed')"
            assert blank.evaluate(logs) == "true", "an even scale would hide all but one loss"
            target.kill()
    finally:
        target.reap()
    assert blank.faults == []


def test_a_flame_graph_is_whole_in_one_file(blank: Browser, tmp_path: Path) -> None:
    """It draws the stacks of a profile in the order of their names; a search and keys find them."""
    stacks = "t;blocks.10 (B);<img src=x> (/f.py:1) 3\nt;blocks.2 (B);g 1\n"
    path = tmp_path / "p.html"
    path.write_text(render_flamegraph(parse_folded(stacks, seconds=1, hz=1), title="<b>both"))
    blank.open(path.as_uri())
    told = "document.querySelector('.told')?.textContent"
    blank.wait_for(f"{told} === '4 s are shown of 4 s'")
    assert blank.evaluate("document.querySelector('h1').textContent") == "<b>both"
    blank.evaluate("document.querySelector('.icicle canvas').focus()")
    for key, said in (
        ("ArrowDown", "t · 4 s, 100 %"),
        ("ArrowDown", "blocks.2 · B · 1 s, 25 %"),
        ("ArrowDown", "g · 1 s, 25 %"),
    ):
        blank.press(key)
        blank.wait_for(f"{told} === {json.dumps(said)}")
    search = "document.querySelector('[type=search]')"
    blank.evaluate(f"{search}.value = 'img'; {search}.dispatchEvent(new Event('input'))")
    blank.evaluate(f"{search}.focus()")
    blank.press("Enter")
    blank.wait_for(f"{told} === '<img src=x> · /f.py:1 · 3 s, 75 %'")
    assert blank.faults == []


@pytest.mark.nightly
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_thousand_ranks(blank: Browser, tmp_path: Path, theme: str) -> None:
    """They are cells of a grid, coloured by a measure, and a cell leads to the rank's figures."""
    ranks = start_program("fake_ranks", "1000", "uneven", home=tmp_path / "home", cwd=tmp_path)
    try:
        ranks.wait_for_output("ready")
        port = ranks.output.split()[1]
        with web(tmp_path / "in", tmp_path / "home", f"127.0.0.1:{port}") as started:
            blank.show(theme=theme, width=2560)
            blank.open(started.link)
            blank.wait_for("document.querySelectorAll('.cells button').length === 1000")
            blank.wait_for("document.querySelector('.scale')?.textContent.includes('250 ms')")
            blank.evaluate("document.querySelector('.cells [tabindex=\"0\"]').focus()")
            blank.press("ArrowRight")
            blank.press("ArrowDown")
            columns = (
                "[...document.querySelectorAll('.cells button')].filter("
                "(one, _, all) => one.offsetTop === all[0].offsetTop).length"
            )
            reached = f"rank {blank.evaluate(columns) + 1}: "
            assert blank.evaluate("document.activeElement.ariaLabel").startswith(reached)
            blank.evaluate("document.querySelectorAll('.cells button')[500].click()")
            blank.wait_for("document.querySelector('.list strong').textContent === 'rank 500'")
            blank.wait_for("!document.querySelector('td.found').textContent.includes('…')")
            view(blank, "stacks", form="ranks")
            blank.wait_for("document.querySelectorAll('.thread').length === 2")
            slow = "ranks 13, 110, 207, 304, 401, 498, 595, 692, 789, 886, 983 (11 of 1000)"
            blank.wait_for(f"document.body.innerText.includes({json.dumps(slow)})")
            assert blank.faults == []
            blank.open("about:blank")
    finally:
        ranks.reap()
