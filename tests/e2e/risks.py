"""Files at risk: what a server refuses to serve, or to trust, until somebody says that it is meant."""

from control import Control
from harness import *


def refused(t, *arguments):
    """What a start and a check say, which is the same; a check ends with 1."""
    said = t.serve_fails(*arguments, "--listen", f"unix:{t.path('refused.sock')}")
    check = subprocess.run([BINARY, "serve", "--check", *arguments, "--listen", f"unix:{t.path('refused.sock')}"],
                           capture_output=True, text=True)
    equal(check.returncode, 1, "the status of a check")
    contains(check.stderr, said.strip().split("error: ")[-1])
    return said


@test(fairlift_only=True)
def an_image_of_another_format_is_refused_to_whoever_names_it_unless_it_is_said_to_be_raw(t):
    for name, at, magic in [("qcow2", 0, b"QFI\xfb"), ("vmdk", 0, b"KDMV"), ("vhdx", 0, b"vhdxfile"), ("luks", 0, b"LUKS\xba\xbe"), ("gpt", 4096, b"EFI PART")]:
        path, is_kept = t.image(name, MIB, (at, magic)), name not in ("luks", "gpt")
        for direct in "auto", "off":
            one = f"a=file:{path},direct={direct}"
            contains(refused(t, one, "b=mem:1m"), f"{path} is ", f"{path},format=raw; --read-only serves it as it is")
            # A file may be read by a service where nobody is there to answer, and a client may have written the header: the others are served.
            config = f"""
                [export.a]
                backing = "file:{path},direct={direct}"
                [export.b]
                backing = "mem:1m"
                """
            Path(t.path("check.toml")).write_text(config)
            for words, what in [(["--config", t.path("check.toml")], "read-only" if is_kept else ""), ([one, "-r"], "")]:
                said = t.run(BINARY, "serve", "--check", *words, "--listen", f"unix:{t.path('s')}")
                contains(said, "warning: export", f"{path} is ", "; 1 warning")
                equal("served read-only" in said, bool(what), "whether a check says that it is served read-only")
            server = t.server(config=config)
            with server.connect("b") as beside:
                beside.write(0, b"beside")
            with server.connect("a") as client:
                equal(client.read(at, len(magic)), magic, "the bytes of the file")
                equal(client.read_only, is_kept, f"whether {name} is read-only")
            server.says("WARN", "export.a", f"{path},format=raw", *(["served read-only", "overlay:base=qcow2:" if name == "qcow2" else "qemu-img convert -f"] if is_kept else ["cryptsetup open" if name == "luks" else "losetup -b 4096"]))
            told = [line for line in Control(t, server).ask("GET", "/v1/status?seconds=0.1")["warnings"] if f"{path} is " in line]
            equal(len(told), 1, "the warnings of status")
            equal("served read-only" in told[0], is_kept, "whether status says that it is served read-only")
            server.stop()
    server = t.server("b=mem:1m", f"a=file:{t.path('qcow2')},format=raw")
    control = Control(t, server)
    equal(control.ask("GET", "/v1/exports/a")["backing"], f"file:{t.path('qcow2')},format=raw", "the backing")
    with server.connect("a") as client:
        client.write(4096, b"raw")
    # One who adds it is there to answer, and the others are served.
    for name, *words in [("vmdk", "a VMDK image", "qemu-img convert -f vmdk"), ("luks", "a LUKS container"), ("gpt", "for sectors of 4096")]:
        for more in [], ["--dry-run"]:
            contains(control.cli("add", "export", f"c={t.path(name)}", *more, code=1), *words, ",format=raw; read_only=true")
    control.cli("add", "export", f"c={t.path('vmdk')}", "read_only=true")
    # A disk with a table of its own for sectors of 512 bytes is what a disk image is.
    control.cli("add", "export", f"e={t.image('mbr', MIB, (510, bytes([0x55, 0xAA])), (512, b'EFI PART'))}")
    control.cli("add", "export", f"d={t.path('vhdx')},format=raw")
    with server.connect("c") as one, server.connect("d") as other:
        equal((one.read_only, other.read_only), (True, False), "who may only read")


@test(fairlift_only=True)
def one_image_is_written_by_one_export_unless_it_is_said_to_be_shared(t):
    path = t.image("a.img", 2 * MIB)
    os.link(path, t.path("link.img"))
    for other in path, t.path("link.img"):
        contains(refused(t, f"a={path}", f"b={other}"), 'export "a" writes to', ",shared")
    server = t.server(f"a={path}")
    control = Control(t, server)
    control.cli("add", "export", f"reader={path}", "read_only=true")
    contains(control.cli("add", "export", f"b={path}", code=1), 'export "a" writes to')
    contains(control.cli("set", "export", "reader", "read_only=false", code=1), 'export "a" writes to')
    control.cli("add", "export", f"b={path},shared")
    server.stop()
    t.server(config=f"""
        [export.left]
        backing = "{path}"
        size = "1m"
        [export.right]
        backing = "{path}"
        offset = "1m"
        """)


@test(fairlift_only=True)
def a_config_file_is_no_disk_and_an_image_is_no_config_file(t):
    path, image = t.path("disks.toml"), t.image("alice.img", 64 * KIB)
    Path(path).write_text('[export.a]\nbacking = "mem:1m"\n')
    contains(t.serve_fails(f"a={path}", "--listen", f"unix:{t.path('s')}"), f"use --config {path}", f"file:{path},format=raw")
    raw = t.server(f"a=file:{path},format=raw")
    with raw.connect("a") as client:
        equal(client.read(0, 8), b"[export.", "the bytes of the file")
    raw.stop()
    Path(t.path("other.toml")).write_text("text = 'of another program'\n")
    t.server(f"a={t.path('other.toml')}").stop()
    many = Path(t.path("many.toml"))
    many.write_text("x " * (256 * KIB))
    many_lines = Path(t.path("lines.toml"))
    many_lines.write_text("a b\n" * 10000)
    for config, *words in [(image, "this is no config file: it has bytes that are no text", f"fairlift serve NAME={image}"), (many, "many.toml:1:3: "), (many_lines, "more places are no TOML")]:
        said = t.serve_fails("--config", config)
        contains(said, *words)
        assert len(said) < 10000, f"{len(said)} bytes are said of {config}"


@test(fairlift_only=True)
def a_missing_image_ends_the_start_with_1_so_that_a_service_tries_again(t):
    path = t.path("later.img")
    contains(refused(t, f"a={path}"), "No such file", f"truncate -s 10g {path}")
    contains(refused(t, f"a={t.dir}"), "is a directory")
    nowhere = refused(t, f"a={t.path('nodir/a.img')}")
    contains(nowhere, "No such file", "its directory is not there")
    assert "truncate" not in nowhere, nowhere
    beside = t.image("latter.img", MIB)
    os.mkdir(t.path("lateer.img"))
    says = refused(t, f"a={path}")
    contains(says, f'{path}: No such file or directory (os error 2); did you mean "latter.img"?; a new disk', "truncate")
    contains(t.run(BINARY, "serve", "--check", f"a={path}", "--root", t.dir, code=1), 'did you mean "latter.img"?')
    # Clients are told no names of files.
    server = t.server(f"b={beside}")
    says = server.control("add", "export", f"a={path}", code=1)
    contains(says, "No such file", "truncate")
    assert "latter" not in says, says


@test(fairlift_only=True)
def a_token_or_a_key_that_others_can_read_is_refused(t):
    path = t.secret("token", "0123456789abcdef\n")
    os.chmod(path, 0o644)
    says = t.serve_fails("mem:1m", "--listen", f"unix:{t.path('x')}", "--control", f"tcp:127.0.0.1:{free_port()},token={path}")
    contains(says, "every user of this machine can read it (mode 0644)", f"chmod o= {path}")
