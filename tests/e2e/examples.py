"""Examples for other programs, checked by these programs or by their schemas: units, domains, manifests, scrape configs, drives, the dashboard.

A check whose program or schema cannot be had skips and says so."""

import fcntl
import xml.etree.ElementTree as xml

from harness import *

PAGES = sorted((ROOT / "docs").rglob("*.md"))


def blocks(kind):
    """Each block of a kind on the pages, with its page."""
    return [(page.name, block) for page in PAGES for block in re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text(), re.M | re.S)]


def schemas(t):
    """A directory with the packages of tests/examples.txt, installed once."""
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlift-tools/examples"
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        listed = (ROOT / "tests/examples.txt").read_text()
        done = place / "installed"
        if not done.exists() or done.read_text() != listed:
            shutil.rmtree(place, ignore_errors=True)
            pip = ["python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes", "--no-deps", "--only-binary", ":all:"]
            said = t.run(*pip, "--target", place, "-r", ROOT / "tests/examples.txt", seconds=100, code=None)
            if not (place / "kubernetes_validate").exists():
                t.skip(f"pip cannot install tests/examples.txt: {said.strip()[-200:]}")
            done.write_text(listed)
    return place


@test(fairlift_only=True)
def systemd_takes_the_units(t):
    if not shutil.which("systemd-analyze"):
        t.skip("systemd-analyze is not installed (Debian: systemd)")
    t.run(BINARY, "units", t.path("units"))
    units = sorted(Path(t.path("units")).iterdir())
    said = t.run("systemd-analyze", "verify", "--man=no", *units)
    equal([line for line in said.splitlines() if "fairlift" in line], [], "complaints of systemd")
    broken = Path(t.path("broken.service"))
    broken.write_text(units[0].read_text().replace("ExecStart=/", "ExecStart=nowhere/", 1))
    contains(t.run("systemd-analyze", "verify", "--man=no", broken, code=None), "broken.service")


@test(fairlift_only=True)
def libvirt_takes_the_disks(t):
    if not shutil.which("virt-xml-validate") or not shutil.which("xmllint"):
        t.skip("virt-xml-validate is not installed (Debian: libvirt-clients, libxml2-utils)")

    def domain(text):
        whole = xml.fromstring('<domain type="kvm"><name>guest</name><memory unit="MiB">64</memory><os><type arch="x86_64">hvm</type></os>'
                               "<devices/></domain>")
        for part in xml.fromstring(f"<parts>{text}</parts>"):
            (whole.find("devices") if part.tag == "disk" else whole).append(part)
        Path(t.path("domain.xml")).write_text(xml.tostring(whole, encoding="unicode"))
        return t.path("domain.xml")

    found = blocks("xml")
    assert len(found) >= 3, f"the pages have {len(found)} domains"
    for page, text in found:
        contains(t.run("virt-xml-validate", domain(text), "domain"), "validates")
    contains(t.run("virt-xml-validate", domain(found[0][1].replace("<target", "<tarqet")), "domain", code=None), "fails to validate")


@test(fairlift_only=True, seconds=150)
def kubernetes_takes_the_manifests(t):
    try:
        import jsonschema
        import yaml
    except ImportError as why:
        t.skip(f"{why} (Debian: python3-jsonschema, python3-yaml)")
    versions = schemas(t) / "kubernetes_validate/kubernetes-json-schema"
    newest = max(versions.glob("v*-local-strict"), key=lambda path: [int(part) for part in re.findall(r"\d+", path.name)])

    def mistakes(manifest):
        group, _, version = manifest["apiVersion"].rpartition("/")
        name = "-".join(filter(None, [manifest["kind"].lower(), group.split(".")[0], version]))
        schema, definitions = (json.loads((newest / f"{file}.json").read_text()) for file in (name, "_definitions"))
        # They call themselves addresses of kubernetes.io; nothing is asked of it.
        schema["$id"], definitions["$id"] = "file:///schema", "file:///api/_definitions.json"
        resolver = jsonschema.RefResolver("file:///schema", schema, store={definitions["$id"]: definitions})
        return [error.message for error in jsonschema.Draft7Validator(schema, resolver=resolver).iter_errors(manifest)]

    manifests = [manifest for _, text in blocks("yaml") for manifest in yaml.safe_load_all(text) if "apiVersion" in manifest]
    assert manifests, "the pages have no manifest"
    for manifest in manifests:
        equal(mistakes(manifest), [], f"mistakes in the {manifest['kind']} {manifest['metadata']['name']}")
    wrong = {**manifests[0], "spec": {**manifests[0]["spec"], "volumeMood": "Filesystem"}}
    contains(" ".join(mistakes(wrong)), "volumeMood")


@test(fairlift_only=True)
def prometheus_takes_the_scrape_config(t):
    found = [text for _, text in blocks("yaml") if "scrape_configs" in text]
    assert found, "the pages have no scrape config"
    t.secret("token", "x\n")
    for text in found:
        Path(t.path("prometheus.yml")).write_text(text.replace("/etc/fairlift/token", t.path("token")))
        t.run("promtool", "check", "config", t.path("prometheus.yml"))
    Path(t.path("wrong.yml")).write_text(found[0].replace("targets", "tarqets"))
    contains(t.run("promtool", "check", "config", t.path("wrong.yml"), code=1), "tarqets")


# Of a drive, by Firecracker's description of its API (1.14): what it needs in either case, and what one of the two has.
DRIVE = {"drive_id": str, "is_root_device": bool}
OF_A_FILE = {"path_on_host": str, "is_read_only": bool}
OF_A_SOCKET = {"socket": str}
ELSE = {"cache_type": ("Unsafe", "Writeback"), "partuuid": str}


def drive_mistakes(drive):
    kind = OF_A_SOCKET if "socket" in drive else {**OF_A_FILE, "io_engine": ("Sync", "Async")}
    needed = {**DRIVE, **(OF_A_SOCKET if "socket" in drive else OF_A_FILE)}
    known = {**needed, **kind, **ELSE}
    fits = lambda key: drive[key] in known[key] if isinstance(known[key], tuple) else isinstance(drive[key], known[key])
    return [key for key in needed if key not in drive] + [key for key in drive if key not in known or not fits(key)]


@test(fairlift_only=True)
def firecracker_has_each_key_of_the_drives(t):
    """Firecracker itself cannot be had as a package, nor its schema be kept here: keys and types are held against a table."""
    drives = [drive for _, text in blocks("json") for drive in json.loads(text).get("drives", [])]
    drives += [json.loads(text) for page in PAGES for text in re.findall(r'`(\{"drive_id".*?\})`', page.read_text())]
    assert len(drives) >= 2, f"the pages have {len(drives)} drives"
    for drive in drives:
        equal(drive_mistakes(drive), [], f"what is wrong with {drive}")
    equal(drive_mistakes({"drive_id": "a", "is_root_device": True, "path_on_host": "b", "cache_type": "None"}), ["is_read_only", "cache_type"], "a wrong one")


@test(fairlift_only=True, seconds=150)
def grafana_loads_the_dashboard_and_loses_nothing_of_it(t):
    """Read into Grafana's own types and written again, it has each field that it had: one that Grafana does not know would be gone."""
    program = """if True:
        import json, sys
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.cog.plugins import register_default_plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard
        register_default_plugins()
        print(json.dumps(Dashboard.from_json(json.load(sys.stdin)), cls=JSONEncoder))
    """

    def lost(before, after, at=""):
        if isinstance(before, dict) and isinstance(after, dict):
            return [one for key in before for one in (lost(before[key], after[key], f"{at}.{key}") if key in after else [f"{at}.{key}"])]
        if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
            return [one for number, pair in enumerate(zip(before, after)) for one in lost(*pair, f"{at}[{number}]")]
        return [] if before == after else [at]

    def loaded(dashboard):
        done = subprocess.run(["python3", "-c", program], input=json.dumps(dashboard), capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(schemas(t))})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    dashboard = json.loads((ROOT / "docs/monitoring/dashboard.json").read_text())
    equal(lost(dashboard, loaded(dashboard)), [], "fields that Grafana does not know")
    ids = [panel["id"] for panel in dashboard["panels"]]
    equal(sorted(set(ids)), sorted(ids), "the numbers of panels, each once")
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert panel["title"] and panel["targets"] and place["x"] + place["w"] <= 24, f"panel {panel['id']} cannot be shown"
    dashboard["panels"][0]["gridPoz"] = dashboard["panels"][0].pop("gridPos")
    contains(" ".join(lost(dashboard, loaded(dashboard))), ".panels[0].gridPoz")


if __name__ == "__main__":
    main()
