"""A server for one command (`--run`): it serves while the command runs, and answers its exit code."""

from harness import *


def run(t, *words, code=0):
    """What the command prints. Nothing of the server is left where its private sockets are."""
    runtime = t.path("runtime")
    os.makedirs(runtime, exist_ok=True)
    said = t.run(BINARY, "serve", *words, env={**os.environ, "XDG_RUNTIME_DIR": runtime}, code=code)
    equal(os.listdir(runtime), [], "what is left of its directory")
    return said


@test(fairlift_only=True)
def a_command_finds_the_server_by_variables_and_its_exit_code_is_the_servers(t):
    equal(run(t, "a=mem:1m", "--run", 'nbdinfo --size "$uri"; exit 7', code=7), "1048576\n")
    image = t.image("b.img", MIB)
    said = run(t, "a=mem:1m", f"b={image}", "--run", 'nbdcopy "$uri" "nbd+unix:///b?socket=$unixsocket"; echo "<$uri> <$nbd> <$port> <$exportname>"')
    socket = re.search(r"socket=(\S+/nbd\.sock)>", said)[1]
    contains(said, f"<nbd+unix:///a?socket={socket}> <nbd:unix:{socket}:exportname=a> <> <a>")
    said = run(t, "a=mem:1m", "--run", f"{BINARY} set group /a weight=300; {BINARY} get group /a")
    contains(said, "weight: 300")
    said = run(t, "a=mem:1m", "--listen", "tcp:127.0.0.1:0", "--run", 'nbdinfo --size "$uri"; echo "$uri|$unixsocket|$nbd|$port"')
    port = re.search(r"\|(\d+)$", said, re.M)[1]
    contains(said, "1048576\n", f"nbd://127.0.0.1:{port}/a||nbd:localhost:{port}:exportname=a|{port}")


@test(fairlift_only=True)
def a_command_that_a_signal_ends_is_told_as_a_shell_tells_it(t):
    run(t, "a=mem:1m", "--run", "kill -9 $$", code=137)


@test(fairlift_only=True)
def without_a_server_the_command_is_not_run(t):
    contains(run(t, "a=/nowhere.img", "--run", "echo ran", code=1), "/nowhere.img")
    contains(run(t, "a=mem:1x", "--run", "echo ran", code=2), "1x")
    equal(run(t, "a=mem:1m", "--run", "echo ran", "--check"), "ok: 1 export, 1 disk, 1 group, 1 listener\n")


@test(fairlift_only=True)
def a_signal_to_end_is_the_commands_and_the_server_follows_it(t):
    runtime = t.path("runtime")
    os.mkdir(runtime)
    said = t.path("said")
    process = t.start(BINARY, "serve", "a=mem:1m", "--run", f'echo "$unixsocket" > {said}; exec sleep 60', env={**os.environ, "XDG_RUNTIME_DIR": runtime})
    until(lambda: os.path.exists(said) and Path(said).read_text(), "the command runs")
    assert os.path.exists(Path(said).read_text().strip()), "the socket is there"
    process.terminate()
    equal(process.wait(60), 128 + 15, "the exit code")
    equal(os.listdir(runtime), [], "what is left")
    os.remove(said)
    # A server whose starter is killed ends too.
    process = t.start(BINARY, "serve", "a=mem:1m", "--run", f'echo "$unixsocket" > {said}; while [ -S "$unixsocket" ]; do sleep 0.05; done; echo gone > {said}', env={**os.environ, "XDG_RUNTIME_DIR": runtime})
    until(lambda: os.path.exists(said) and Path(said).read_text(), "the command runs")
    process.kill()
    until(lambda: Path(said).read_text() == "gone\n", "the server has taken its socket away")
    until(lambda: not descendants(os.getpid()), "both have ended")


if __name__ == "__main__":
    main()
