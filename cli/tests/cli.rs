//! The binary as a person meets it.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn fairlift(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary runs")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlift"));
    command.args(arguments).stdin(Stdio::null()).env_remove("RUST_LOG").env_remove("LISTEN_FDS");
    command
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn help_teaches() {
    let help = fairlift(&["--help"]);
    assert!(help.status.success());
    for word in ["serve", "tunables", "config", "completions", "man", "Examples:", "fairlift serve disk.img"] {
        assert!(out(&help).contains(word), "{word} is not in\n{}", out(&help));
    }
    for flag in ["--listen", "--scheduler", "--set", "--tls-certificates", "--insecure", "--check"] {
        assert!(out(&fairlift(&["serve", "--help"])).contains(flag), "{flag}");
    }
    assert!(out(&fairlift(&["--version"])).starts_with("fairlift 0."));
}

#[test]
fn the_example_config_is_shown_three_ways_and_is_right() {
    let shown = out(&fairlift(&["config"]));
    assert_eq!(shown, out(&fairlift(&["config-help"])));
    assert!(out(&fairlift(&["help", "config"])).contains("[export.alice]"));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(shown.as_bytes()).unwrap();
    let check = fairlift(&["serve", "--check", "--config", file.path().to_str().unwrap()]);
    assert_eq!(out(&check), "ok: 2 exports, 1 disk, 3 groups, 2 listeners\n", "{}", err(&check));
}

#[test]
fn tunables_can_be_asked_for() {
    let none = out(&fairlift(&["tunables", "none"]));
    assert!(none.starts_with("none: no tunables\n") && none.contains("\n  flush_company "), "{none}");
    assert!(out(&fairlift(&["tunables"])).contains("read_expire"));
    assert_eq!(fairlift(&["tunables", "elevator"]).status.code(), Some(2));
}

#[test]
fn completions_and_manual_pages_come_out() {
    assert!(out(&fairlift(&["completions", "bash"])).contains("fairlift"));
    assert!(out(&fairlift(&["man"])).starts_with(".ie"));
}

#[test]
fn what_is_typed_wrong_is_status_2_and_says_what_is_possible_in_one_style() {
    let vmdk = "a=vmdk:x: only raw images are served; convert this one (qemu-img convert -f vmdk -O raw x NEW.img), or have \
                 qemu-storage-daemon serve it, and this server in front of that (nbd:URI)";
    for (line, why) in [
        (
            "serve a=men:1g",
            "a=men:1g: unknown backing \"men:\": the backings are null:SIZE, mem:SIZE, file:PATH, sim:PROFILE, nbd:URI, rbd:POOL/IMAGE, overlay:base=PATH,top=PATH, qcow2:PATH and fault:RULES,inner=BACKING; did you mean \"mem\"?",
        ),
        (
            "serve a=mem:1gb",
            "a=mem:1gb: \"gb\" is ambiguous (powers of 1000 or of 1024); write 1g (powers of 1024), or the number of bytes",
        ),
        ("serve a=vmdk:x", vmdk),
        ("serve a=mem", "a=mem: there is no file mem; that kind of backing is written mem:SIZE"),
        ("status alice", "alice: status shows all tenants; `fairlift why alice` says what this one waits for"),
        (
            "top --once alice",
            "alice: top shows all tenants; `fairlift why alice` says what this one waits for, `fairlift top --filter alice` shows it alone",
        ),
        (
            "serve a=mem:1m b=mem:1m a=mem:1m",
            "export \"a\": is defined twice (backings 1 and 3); names must be unique: NAME=BACKING",
        ),
        (
            "serve --scheduler noone",
            "--scheduler noone: is unknown; there is none, mq-deadline, fair, bfq, cfq; did you mean \"none\"?",
        ),
        ("serve --scheduler", "--scheduler: needs a value; there is none, mq-deadline, fair, bfq, cfq"),
        ("iostest sim:nvme-plp --json", "--json: needs a value"),
        (
            "serve --listen /run/x",
            "--listen /run/x: an address is unix:PATH or tcp:HOST:PORT; did you mean \"unix:/run/x\"?",
        ),
        (
            "serve --listen vsock:2:10809",
            "--listen vsock:2:10809: vsock is not supported; an address is unix:PATH or tcp:HOST:PORT",
        ),
        ("serve --set x", "--set x: a setting has the form KEY=VALUE, as in read_expire=20ms"),
        ("serve --set read_expire=xyz", "--set read_expire=xyz: \"xyz\" is not a time; examples: 500ms, 2s"),
        (
            "serve --scheduler none --set read_expire=1",
            "--set read_expire=1: read_expire belongs to mq-deadline; scheduler none has no tunables of its own; every scheduler \
             has flush_coordinate, flush_company, flush_company_min, flush_remember, flush_ahead, charge_flushes",
        ),
        (
            "serve --set weight=3",
            "--set weight=3: a weight belongs to a group: --weight NAME=300 for an export of the command line, or \
             [group.\"/PATH\"] weight = 300 in a config file",
        ),
        ("serve --weight alice", "--weight alice: a weight has the form NAME=N, as in alice=300"),
        ("serve --weight alice=0", "--weight alice=0: a weight is a number from 1 to 1000, not \"0\""),
        (
            "serve --weights a=3",
            "--weights: there is no such flag; --weight NAME=N gives one export its weight, and may be given several times",
        ),
        (
            "serve --group /a",
            "--group: there is no such flag; --weight NAME=N gives an export a group of its own; other groups are set in a config \
             file (`fairlift config` shows one)",
        ),
        (
            "tunables --control unix:/x",
            "--control: there is no such flag; it follows a command that asks a server, as in fairlift status --control ADDRESS",
        ),
        ("serve --version", "--version: there is no such flag; `fairlift version` says it"),
        ("serve --port 10809", "--port: there is no such flag; an address is given as --listen tcp:HOST:PORT"),
        ("serve --port=10809", "--port: there is no such flag; an address is given as --listen tcp:HOST:PORT"),
        ("serve --socket /x", "--socket: there is no such flag; a socket is given as --listen unix:PATH"),
        (
            "serve -d",
            "-d: there is no such flag; fairlift serve stays in the foreground; systemd, or & in a shell, runs it in the background",
        ),
        ("serve --shceduler none", "--shceduler: there is no such flag; did you mean --scheduler?"),
        ("serve --depth 0", "--depth 0: 0 is not in 1..=4096"),
        ("serve --handshake-timeout 10", "--handshake-timeout 10: a time needs a unit: 10s, 10ms, 10us"),
        ("serve --tls maybe", "--tls maybe: takes off, on (if the client asks) or require, not \"maybe\""),
        ("iostest sim:nvme-plp -w drr --runtime 0", "--runtime 0: the time must be longer than 0"),
        (
            "iostest mem:1m -w drr --jobs 1",
            "drr, set 1, 1 job: 1 file of 512M does not fit on this disk of 1M; choose a smaller file size (--filesize)",
        ),
        ("tunables none bfq", "bfq: is one word too many"),
        ("models sata-720", "unknown model \"sim:sata-720\""),
        ("completions", "for which shell? There is bash, elvish, fish, powershell, zsh"),
        ("completions foo", "foo: unknown shell; there are bash, elvish, fish, powershell, zsh"),
        (
            "add carol=mem:64m group=/t",
            "carol=mem:64m: unknown kind; there are group, export, disk, listener, client; did you mean `fairlift add export carol=mem:64m group=/t`?",
        ),
        (
            "serve --listen :10898",
            "--listen :10898: an address is unix:PATH or tcp:HOST:PORT, not \":10898\"; did you mean \"tcp:127.0.0.1:10898\"?",
        ),
        (
            "schedulers",
            "schedulers: there is no such command; `fairlift tunables` lists the schedulers and their tunables",
        ),
        (
            "stop",
            "stop: there is no such command; SIGTERM or Ctrl-C stops a server: `systemctl stop fairlift`, or kill PID",
        ),
        (
            "serve alice=/nowhere/a.img,bob=/nowhere/b.img",
            "alice=/nowhere/a.img,bob=/nowhere/b.img: exports are separated by blanks alone: alice=/nowhere/a.img bob=/nowhere/b.img",
        ),
        (
            "reload two.toml",
            "two.toml: reload takes no file: it reads the one again that the server was started with; ",
        ),
        ("reload --config two.toml", "--config: reload takes no file: "),
        ("serv", "serv: there is no such command; did you mean \"serve\"?"),
        ("frobnicate", "frobnicate: there is no such command; the commands are serve, "),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let output = fairlift(&words);
        let printed = err(&output);
        assert_eq!(output.status.code(), Some(2), "{line} says\n{printed}");
        let lines: Vec<_> = printed.lines().collect();
        let [first, "", hint] = lines[..] else { panic!("{line} says\n{printed}") };
        assert!(first.starts_with(&format!("error: {why}")), "{line} says\n{printed}");
        let command = if ["serv", "stop", "schedulers", "frobnicate"].contains(&words[0]) { "" } else { words[0] };
        let command = ["fairlift", command, "--help"].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>();
        assert_eq!(hint, format!("For more information, try '{}'.", command.join(" ")));
    }
    // Spaces around "=" are one word only in quotes.
    let spaces = fairlift(&["serve", "alice = mem:1g"]);
    assert!(
        err(&spaces).starts_with("error: alice = mem:1g: no spaces around \"=\": alice=mem:1g\n"),
        "{}",
        err(&spaces)
    );
}

#[test]
fn a_sweep_measures_each_value_and_says_which() {
    let flags = "iostest sim:nvme-plp --scheduler mq-deadline -w drr --jobs 1,2 --weights 1,3 --runtime 0.02";
    let run = |sweep: &str| {
        let mut words: Vec<_> = flags.split(' ').collect();
        words.extend(["--sweep", sweep, "--json", "-"]);
        let output = fairlift(&words);
        assert!(output.status.success(), "{}", err(&output));
        assert_eq!(err(&output), "", "nothing beside it where there is no terminal");
        out(&output)
    };
    let json = run("fifo_batch=1,16");
    let places =
        ["\"fifo_batch\": \"1,16\"", "\"settings\":{\"fifo_batch\":\"1\"}", "\"settings\":{\"fifo_batch\":\"16\"}"];
    let bare = json.replace("\": ", "\":");
    for (place, times) in places.map(|place| place.replace("\": ", "\":")).into_iter().zip([1, 2, 2]) {
        assert_eq!(bare.matches(&place).count(), times, "{place} in {json}");
    }
    assert!(json == run("fifo_batch=1,16"), "the same bytes again");
}

#[test]
fn plain_text_beyond_the_loopback_is_refused() {
    let output = fairlift(&["serve", "mem:1m", "--listen", "tcp:0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("--tls require --tls-certificates DIR, or --insecure"), "{}", err(&output));
    assert!(fairlift(&["serve", "mem:1m", "--listen", "tcp:0.0.0.0:0", "--insecure", "--check"]).status.success());
}

const HINT: &str = "\nFor more information, try 'fairlift serve --help'.\n";

#[test]
fn a_wrong_config_is_status_2_and_shows_every_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.toml");
    std::fs::write(&path, "[export.a]\nbacking = \"mem:1x\"\nsise = 1\n").unwrap();
    let name = path.to_str().unwrap();
    let output = fairlift(&["serve", "--config", name, "--listen", "unix:/x"]);
    assert_eq!(output.status.code(), Some(2));
    let expected = format!(
        "{name}:2:11: error: export.a.backing: a size is a whole number of bytes, or has a unit (k, m, g, t: powers of 1024), as in 4k or 10g
  2 | backing = \"mem:1x\"
    |           ^^^^^^^^
{name}:3:1: error: export.a.sise: unknown key; did you mean \"size\"?
  3 | sise = 1
    | ^^^^
2 mistakes; the server was not started

`fairlift config` explains every key.
"
    );
    assert_eq!(err(&output), expected);

    let missing = fairlift(&["serve", "--config", "/nonexistent.toml"]);
    assert_eq!(
        err(&missing),
        "error: --config /nonexistent.toml: No such file or directory (os error 2)\n".to_owned() + HINT
    );
    std::fs::write(&path, b"a = 1\n\xff").unwrap();
    let binary = fairlift(&["serve", "--config", name]);
    assert_eq!(
        err(&binary),
        format!(
            "{name}:2:1: error: not UTF-8 text: byte 6 is 0xff\n  2 | \n    | ^\n\n`fairlift config` explains every key.\n"
        )
    );
}

/// Needs io_uring; says so and passes where there is none.
#[test]
fn a_server_announces_itself_and_drains_on_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s.sock");
    let listen = format!("unix:{}", socket.display());
    let mut server = command(&["serve", "a=mem:1m", "--listen", &listen]);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = String::new();
    let mut lines = std::io::BufReader::new(server.stdout.as_mut().unwrap());
    for _ in 0..2 {
        std::io::BufRead::read_line(&mut lines, &mut printed).unwrap();
    }
    // SIGTERM is what systemd sends.
    let ended = Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap();
    assert!(ended.success());
    let late = Instant::now() + Duration::from_secs(20);
    while server.try_wait().unwrap().is_none() && Instant::now() < late {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = server.kill();
    let output = server.wait_with_output().unwrap();
    if err(&output).contains("io_uring is not available") {
        eprintln!("skipped: {}", err(&output));
        return;
    }
    let control = socket.with_extension("control.sock");
    let wanted = format!(
        "serving a (RAM, 1 MiB) at nbd+unix:///a?socket={}\ncontrol at unix:{}\n",
        socket.display(),
        control.display()
    );
    assert_eq!(printed, wanted);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        err(&output).contains("draining: finishing requests in flight (a second signal stops at once)"),
        "{}",
        err(&output)
    );
    assert!(!socket.exists(), "the socket file is removed");
}
