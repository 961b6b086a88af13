"""The page that the control server serves: what a person sees and changes, in a real browser where there is one."""

import base64
import http.client

import chromium
from control import Control
from harness import *
from why import Load

# A device that takes 20 ms for each read, and seven at once: what the weights say shows at once, and a client that does not run for a
# moment, whatever else the machine does, has asked for enough before.
CONFIG = """
    [disk.ssd]
    scheduler = "fair"
    depth = 7
    [export.alice]
    backing = "null:1g,delay=20ms"
    disk = "ssd"
    group = "/tenants/alice"
    [export.bob]
    backing = "null:1g,delay=20ms"
    disk = "ssd"
    group = "/tenants/bob"
    [group."/tenants/bob"]
    latency = "5s"
    """


def get(port, path="/", method="GET", body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, dict(answer.headers), answer.read().decode()


def served(t, *more, config=CONFIG):
    """A server whose page is at a port of this machine, and the token."""
    token, port = "0123456789abcdef" * 2, free_port()
    t.secret("token", token + "\n")
    server = t.server(config=config, args=[f"--control=tcp:127.0.0.1:{port},token={t.path('token')}{''.join(more)}"])
    return server, port, token


@test(fairlift_only=True)
def the_page_needs_no_token_and_shows_nothing_without(t):
    _, port, token = served(t)
    status, headers, text = get(port)
    equal(status, 200, "the page")
    contains(headers["content-security-policy"], "default-src 'none'", "script-src 'self'", "frame-ancestors 'none'")
    for name in re.findall(r'(?:href|src)="([^"#]+)"', text):
        if name != "data:,":
            equal(get(port, "/" + name)[0], 200, name)
    for bad in ("alice", token, "http:", "https:", "//"):
        if bad in text:
            raise AssertionError(f"the page has {bad!r}")
    equal(get(port, "/v1/status")[0], 401, "the figures without a token")
    equal(get(port, "/", Host="evil.example")[0], 403, "the page for a page of the internet")


@test(fairlift_only=True)
def a_page_of_the_internet_cannot_reach_a_unix_socket_that_ssh_forwards(t):
    control = Control(t, t.server("a=mem:1m"))
    for host, code in (("localhost:9000", 200), ("127.0.0.1:9000", 200), ("evil.example:9000", 403)):
        control.ask("GET", "/v1", code=code, headers={"Host": host})


@test(fairlift_only=True)
def the_page_fits_a_telephone_and_says_what_binds_whom(t):
    if not chromium.program():
        t.skip("there is no Chromium (Debian: chromium-headless-shell)")
    long = '[disk.archive-of-the-house]\n[export.carol]\nbacking = "mem:1m"\ndisk = "archive-of-the-house"\ngroup = "/tenants/research/carol-and-others"\n'
    server, port, token = served(t, config=CONFIG + long)
    for name in ("alice", "bob"):
        Load(t, server, name, 64)
    page = chromium.Chromium(t, f"http://127.0.0.1:{port}/#token={token}")
    # Also beside the widths at which it leaves columns out.
    for width in (400, 700, 760, 780, 920, 940, 1000, 1140, 1160, 1400):
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        page.until(f"innerWidth === {width}", "the page has its width")
        page.until("document.querySelectorAll('#tenants tbody tr').length === 3", "the tenants")
        page.until("document.querySelector('#groups').textContent.includes('1 connection')", "their clients")
        wide = page.run("[document.documentElement, ...document.querySelectorAll('.wide')].map(e => e.scrollWidth - e.clientWidth)")
        equal(wide, [0, 0, 0, 0], f"pixels out of sight at {width} of the page, of disks, of tenants, of the graphs' figures")
        plots = page.run("[...document.querySelectorAll('.plot')].map(plot => plot.getBoundingClientRect()).map(box => [box.left >= 0 && box.right <= innerWidth, box.width >= 150])")
        equal(plots, [[True, True]] * 3, f"graphs that are wholly in sight, and wide enough, at {width}")
        text = page.run("document.body.textContent")
        contains(text, "latency 5s", "export alice", "config version 0", "127.0.0.1")


@test(fairlift_only=True)
def a_weight_that_is_changed_on_the_page_moves_the_share(t):
    if not chromium.program():
        t.skip("there is no Chromium (Debian: chromium-headless-shell)")
    server, port, token = served(t)
    for name in ("alice", "bob"):
        Load(t, server, name, 64)
    page = chromium.Chromium(t, f"http://127.0.0.1:{port}/", size=(1080, 900))
    page.until("!document.getElementById('enter').hidden", "the token is asked for")
    page.run("document.getElementById('token').focus()")
    page.type(token)
    page.key("Enter", 13, "\r")
    page.until("document.getElementById('enter').offsetHeight === 0", "the token is not asked for any more")
    row = lambda name: f"[...document.querySelectorAll('#tenants tbody tr')].find(r => r.cells[0].textContent === '/tenants/{name}')"
    page.until(f"{row('alice')} && {row('bob')}", "both tenants")
    for name in "alice", "bob":
        page.until(f"{row(name)}.cells[3].textContent === '50 %'", f"{name} is due half")
        page.until(f"Math.abs(parseFloat({row(name)}.cells[2].textContent) - 50) < 5", f"{name} has half")
    weight = "document.querySelector('input[data-path=\"/tenants/alice\"]')"
    page.click(weight)
    page.run(f"{weight}.select()")
    page.type("300")
    page.key("Enter", 13, "\r")
    page.until("document.getElementById('said').textContent === '/tenants/alice has weight 300'", "the weight is set")
    share = f"parseFloat({row('alice')}.cells[2].textContent)"
    page.until(f"{row('alice')}.cells[3].textContent === '75 %' && {share} > 65", "alice has three quarters")
    page.until("document.querySelector('#groups').innerText.includes('75 % of /tenants')", "the tree says so")
    again(lambda: drawn(page))
    pictures(t, page)
    page.run(f"{weight}.focus(); {weight}.select()")
    page.type("0")
    page.key("Enter", 13, "\r")
    page.until("document.getElementById('said').textContent.includes('from 1 to 1000')", "0 is no weight")
    # By keys alone: from the filter to a tenant's `why`.
    page.run("document.getElementById('filter').focus()")
    page.type("bob")
    page.until("document.querySelectorAll('#tenants tbody tr').length === 1", "only bob")
    page.run("document.querySelector('#tenants tbody .why').focus()")
    page.key("Enter", 13, "\r")
    page.until("document.getElementById('why').open && document.getElementById('why-text').innerText.includes('own operations')", "why")
    tree = page.tree()
    for wanted in (("dialog", "bob"), ("button", "Close")):
        if wanted not in tree:
            raise AssertionError(f"a screen reader is not told {wanted}: {tree}")
    page.key("Escape", 27)
    page.until("!document.getElementById('why').open", "Escape closes it")
    tree = page.tree()
    for wanted in (("spinbutton", "weight of /tenants/alice"), ("button", "why /tenants/bob"), ("heading", "Tenants"), ("searchbox", "Filter")):
        if wanted not in tree:
            raise AssertionError(f"a screen reader is not told {wanted}: {tree}")
    others = [url for url in page.requested() if not url.startswith((f"http://127.0.0.1:{port}/", "data:", "about:"))]
    equal(others, [], "what was asked of other hosts")
    equal([text for text in page.complaints() if "401" not in text], [], "what the browser complains of")


# Of a picture of the page: the pixel in its corner, the colours of the legend, and for each graph how many pixels have each of these.
PIXELS = """(async (data) => {
    const image = new Image(), canvas = document.createElement("canvas"), context = canvas.getContext("2d", {willReadFrequently: true});
    image.src = "data:image/png;base64," + data;
    await image.decode();
    [canvas.width, canvas.height] = [image.width, image.height];
    context.drawImage(image, 0, 0);
    const pixels = (x, y, width, height) => {
        const bytes = context.getImageData(x, y, width, height).data;
        return Array.from({length: bytes.length / 4}, (_, at) => `rgb(${bytes.slice(4 * at, 4 * at + 3).join(", ")})`);
    };
    const colours = [...document.querySelectorAll("#legend .swatch")].map(swatch => getComputedStyle(swatch).backgroundColor);
    const plots = [...document.querySelectorAll(".plot")].map(plot => {
        const {x, y, width, height} = plot.getBoundingClientRect(), all = pixels(x, y, width, height);
        return colours.map(colour => all.filter(pixel => pixel === colour).length);
    });
    return [pixels(2, 2, 1, 1)[0], colours, plots];
})"""


def pictures(t, page):
    """Four pictures, at a desk's width and a telephone's, light and dark: each graph has the line of each tenant in the colours of that scheme.

    PICTURES names a directory that keeps them, with graphs that are fuller."""
    place = os.environ.get("PICTURES") or t.path("pictures")
    os.makedirs(place, exist_ok=True)
    page.run("document.activeElement.blur(); scrollTo(0, 0)")
    count = 30 if os.environ.get("PICTURES") else 12
    points = "Math.min(...[...document.querySelectorAll('#p99-chart path.p99')].map(path => path.getAttribute('d').split(' ').length - 1))"
    page.until(f"{points} >= {count}", "lines that are long enough to be seen", 60)
    seen = {}
    for name, width, height in ("page", 1080, 1000), ("phone", 400, 1700):
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        for scheme in "light", "dark":
            page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            page.until(f"innerWidth === {width}", "its width")
            file = Path(place, f"{name}-{scheme}.png")
            page.picture(file)
            paper, colours, plots = page.run(f"{PIXELS}({base64.b64encode(file.read_bytes()).decode()!r})")
            equal((len(plots), len(colours), len({paper, *colours})), (3, 2, 3), f"graphs, lines, and their colours with the paper's in {file.name}")
            if min(min(counts) for counts in plots) < 20:
                raise AssertionError(f"a tenant's line is missing in {file.name}: pixels of {colours} in each graph: {plots}")
            seen[name, scheme] = (paper, *colours)
    for name in "page", "phone":
        equal(seen[name, "light"][0], "rgb(255, 255, 255)", f"the paper of {name} in light")
        equal(seen[name, "dark"][0], "rgb(21, 23, 26)", f"the paper of {name} in the dark")
        if set(seen[name, "light"]) & set(seen[name, "dark"]):
            raise AssertionError(f"a colour is the same in light and dark: {seen}")


def drawn(page):
    """The last minutes: what both had and were due, their rate and p99, bob's latency, and where the weight was changed."""
    time.sleep(1)  # the last point is another one in each look
    equal(page.run("[...document.querySelectorAll('#legend tbody th')].map(item => item.textContent)"), ["/tenants/alice", "/tenants/bob"], "who is drawn")
    # By colour, the heights of a line's first and last point: 0 is the top of the picture, and 100 its bottom.
    ends = lambda kind: page.run(
        f"Object.fromEntries([...document.querySelectorAll('{kind}')].map(path => {{"
        "const points = path.getAttribute('d').match(/[\\d.]+ [\\d.]+/g) || [];"
        "return [path.getAttribute('class').split(' ')[1], points.length ? [points[0], points[points.length - 1]].map(p => Number(p.split(' ')[1])) : []] }))")
    due = ends("#had-chart path.aim")
    for colour, wanted in ("c0", (50, 25)), ("c1", (50, 75)):
        if len(due[colour]) != 2 or any(abs(one - two) > 2 for one, two in zip(due[colour], wanted)):
            raise AssertionError(f"what both were due, before and after: wanted {wanted} for {colour}, got {due}")
    had = ends("#had-chart path.had")
    # Before, in some second: one of them may have begun a moment before the other.
    lines = [page.run(f"document.querySelector('#had-chart path.had.{colour}').getAttribute('d').match(/[\\d.]+ [\\d.]+/g)") for colour in ("c0", "c1")]
    nearest = min(abs(float(one.split()[1]) - float(two.split()[1])) for one, two in zip(*lines))
    path = lambda kind: page.run(f"document.querySelector('#had-chart path.{kind}.c0').getAttribute('d')")
    if path("had") == path("aim"):
        raise AssertionError(f"alice had what she was due, to the hundredth, in each second: {path('had')}")
    if not (had["c0"][1] < had["c1"][1] - 30 and nearest < 15):
        raise AssertionError(f"alice had as much as bob, and three times as much: {had}, and once {nearest} from each other")
    rate = ends("#rate-chart path.rate")
    if not rate["c0"][1] < rate["c1"][1] - 10:
        raise AssertionError(f"alice reads more a second than bob: {rate}")
    p99 = ends("#p99-chart path.p99")
    target = ends("#p99-chart path.aim")
    if not (target["c0"] == [] and target["c1"][1] < p99["c1"][1] and all(p99.values())):
        raise AssertionError(f"both have a p99, and bob a latency of 5 s, which is longer: {p99}, {target}")
    equal(page.run("[...document.querySelectorAll('.mark')].map(mark => mark.textContent)"), ["1"] * 3, "marks")
    contains(page.run("document.getElementById('changes').textContent"), "/tenants/alice weight 100 → 300")
    points_at_a_moment(page)


def points_at_a_moment(page):
    """The figures under the graphs are the latest, or those of where a person points: here the first, when both were due half."""
    figures = "[...document.querySelectorAll('#legend tbody tr')].map(row => row.cells[2].textContent)"
    equal(page.run(f"[document.getElementById('moment').textContent, ...{figures}]"), ["Now", "75 %", "25 %"], "what is due now")
    first = page.run("Number(document.querySelector('#had-chart path').getAttribute('d').match(/[\\d.]+/)[0]) / 300")
    page.click("document.querySelector('#had-chart .plot')")
    x, y = page.run(f"(() => {{ const b = document.querySelector('#rate-chart .plot').getBoundingClientRect(); return [b.x + b.width * {first}, b.y + 9] }})()")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    page.until(f"{figures}.join() === '50 %,50 %' && document.querySelectorAll('.pointer').length === 3", "what was due then")
    contains(page.run("document.getElementById('moment').textContent"), "At ")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=y)
    page.until("document.getElementById('moment').textContent === 'Now' && !document.querySelector('.pointer')", "the latest again")
    page.run("document.getElementById('rate').value = 'iops'; document.getElementById('rate').dispatchEvent(new Event('change'))")
    page.until("document.getElementById('rate-head').textContent === 'IOPS'", "operations a second")
    page.run("document.getElementById('rate').value = 'bps'; document.getElementById('rate').dispatchEvent(new Event('change'))")


@test(fairlift_only=True)
def the_page_shows_what_was_before_it_was_opened(t):
    server, port, token = served(t)
    for name in ("alice", "bob"):
        Load(t, server, name, 64)
    headers = {"Authorization": f"Bearer {token}"}

    def samples(count):
        until(lambda: len(json.loads(get(port, "/v1/history", **headers)[2])["samples"]) >= count, f"the server has {count} samples", 60)

    samples(2)
    equal(get(port, "/v1/groups/tenants/alice", "PATCH", '{"weight": 300}', **headers)[0], 200, "the weight is set")
    samples(4)
    told = json.loads(get(port, "/v1/history", **headers)[2])
    equal([one["what"] for one in told["changes"]], ['group "/tenants/alice": weight 300 (was 100)'], "changes")
    rows = [{row["path"]: row for row in sample["tenants"]} for sample in told["samples"]]
    for at, shares in (1, (0.5, 0.5)), (-1, (0.75, 0.25)):
        for name, share in zip(("alice", "bob"), shares):
            row = rows[at][f"/tenants/{name}"]
            if not (abs(row["due"] - share) < 0.04 and abs(row["had"] - share) < 0.08 and row["iops"] > 10 and row["p99_us"] > 20_000):
                raise AssertionError(f"{name} had and was due {share} in sample {at}: {row}")
    equal([row["/tenants/bob"]["latency_target_us"] for row in rows], [5e6] * len(rows), "bob's latency")
    if not chromium.program():
        t.skip("there is no Chromium (Debian: chromium-headless-shell)")
    page = chromium.Chromium(t, f"http://127.0.0.1:{port}/#token={token}")
    page.until("document.querySelectorAll('#legend tbody tr').length === 2", "both lines")
    equal(page.run("[...document.querySelectorAll('.mark')].map(mark => mark.textContent)"), ["1"] * 3, "marks")
    contains(page.run("document.getElementById('changes').textContent"), 'group "/tenants/alice": weight 300 (was 100)')
    points = page.run("document.querySelector('#had-chart path.aim.c0').getAttribute('d').match(/[\\d.]+ [\\d.]+/g).map(point => point.split(' ').map(Number))")
    mark = page.run("parseFloat(document.querySelector('#had-chart .mark').style.left) * 3")
    before, after = ([y for x, y in points if (x < mark) == earlier] for earlier in (True, False))
    if not (len(before) >= 1 and len(after) >= 2 and abs(before[-1] - 50) < 4 and abs(after[-1] - 25) < 4):
        raise AssertionError(f"alice's due is a half before the mark at {mark} and three quarters after it: {points}")
    equal(page.run("document.querySelector('#had-chart path.aim.c0').getAttribute('d').split('M').length - 1"), 1, "parts of the line")
    # As after minutes in a hidden tab: the samples that are missing come from the server, and no change comes twice.
    page.run("samples.splice(0, samples.length - 1); missed = true; 0")
    page.until("!missed && samples.length > 3", "the gap is filled")
    equal(page.run("[...document.querySelectorAll('.mark')].map(mark => mark.textContent)"), ["1"] * 3, "marks")


@test(fairlift_only=True)
def a_line_is_chosen_by_pressing_the_name_of_its_tenant(t):
    if not chromium.program():
        t.skip("there is no Chromium (Debian: chromium-headless-shell)")
    exports = "".join(f'[export.{name}]\nbacking = "null:1g,delay=20ms"\ndisk = "ssd"\ngroup = "/t/{name}"\n' for name in [*"abcdefg", "quiet"])
    server, port, token = served(t, config=f'[disk.ssd]\nscheduler = "fair"\ndepth = 7\n{exports}')
    for name in "abcdefg":
        Load(t, server, name, 4)
    page = chromium.Chromium(t, f"http://127.0.0.1:{port}/#token={token}", size=(1080, 900))
    legend = "[...document.querySelectorAll('#legend tbody th')].map(item => item.textContent).join(' ')"
    drawn = lambda words, what: page.until(f"{legend}.split(' ').length === 6 && `${{{legend}}} `.startsWith('{words}')", what)
    pin = lambda name: f"[...document.querySelectorAll('#tenants .pin')].find(pin => pin.textContent === '/t/{name}')"
    drawn("/t/", "the six busiest are drawn")
    page.click(pin("quiet"))
    drawn("/t/quiet ", "one that does nothing is drawn first, in the place of another")
    other = page.run(f"[...'abcdefg'].find(name => !{legend}.includes('/t/' + name))")
    page.run(f"{pin(other)}.focus()")
    page.key(" ", 32, " ")
    chosen = f"/t/quiet /t/{other} "
    drawn(chosen, "another one, chosen by the keyboard")
    pressed = "[...document.querySelectorAll('#tenants .pin[aria-pressed=true]')].map(pin => pin.textContent).sort().join(' ') + ' '"
    page.until(f"{pressed} === '/t/{other} /t/quiet '", "their names are pressed")
    page.call("Page.reload")
    page.until(f"performance.now() < 20000 && document.readyState === 'complete' && {legend}", "the page is loaded again")
    drawn(chosen, "the address has kept them")
    page.until("document.querySelector('#had-chart path.had.' + document.querySelector('#legend tbody tr').className).getAttribute('d').includes('L')", "its line")
    if ("button", "/t/quiet") not in page.tree():
        raise AssertionError(f"a screen reader is not told of the button: {page.tree()}")
    page.run("document.getElementById('filter').focus()")
    page.type("quiet")
    page.until(f"{legend} + ' ' === '{chosen}'", "the filter leaves what is chosen, and no other")
    page.run(f"{pin('quiet')}.focus()")
    page.key("Enter", 13, "\r")
    page.until(f"{legend} === '/t/{other}'", "its line is given back")
    equal(page.run("location.hash").count("line="), 1, "lines in the address")
    equal([text for text in page.complaints() if "401" not in text], [], "what the browser complains of")


@test(fairlift_only=True)
def a_place_for_looking_only_offers_no_weight(t):
    if not chromium.program():
        t.skip("there is no Chromium (Debian: chromium-headless-shell)")
    _, port, token = served(t, ",read_only")
    page = chromium.Chromium(t, f"http://127.0.0.1:{port}/#token={token}", dark=True)
    page.until("document.getElementById('may').textContent.includes('read-only')", "it says so")
    equal(page.run("[...document.querySelectorAll('#groups input')].map(input => input.disabled)"), [True] * 3, "weights")
    equal(page.run("location.href"), f"http://127.0.0.1:{port}/", "the token is not left in the address")
    equal(page.run("getComputedStyle(document.body).backgroundColor"), "rgb(21, 23, 26)", "dark")


if __name__ == "__main__":
    main()
