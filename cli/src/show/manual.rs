//! `fairlift man`: the manual pages. Names, flags and their texts come from the command line's definition; the last sections of a page
//! (examples, signals, exit status, …) are here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};

use crate::args::Cli;
use crate::config::EXAMPLE;
use crate::config::keys::SORTS;

/// The examples of each page: the purpose of one, and behind `$` what is typed.
const EXAMPLES: &str = r#"
[fairlift]
A RAM disk of 1 GiB, to try things out:
$ fairlift serve
Two image files; alice has three times bob's share when the disk is busy:
$ fairlift serve alice=alice.img bob=bob.img --weight alice=300
List its exports, in another terminal:
$ nbdinfo --list 'nbd+unix:///?socket=/run/fairlift.sock'
Tenants, disks and weights from a file, which is checked first:
$ fairlift config > fairlift.toml
$ fairlift serve --config fairlift.toml --check
$ fairlift serve --config fairlift.toml
Measure a disk by reading it, and get settings for it:
$ fairlift iostune /dev/sdb --quick
[fairlift-serve]
One image file, at a unix socket in the run directory:
$ fairlift serve disk.img
Two tenants, three to one:
$ fairlift serve a=a.img b=b.img --weight a=300 --listen unix:/run/nbd.sock
To other machines, encrypted:
$ fairlift serve a=a.img --listen tcp:0.0.0.0:10809 --tls require --tls-certificates /etc/fairlift/pki
Check whether a server with this file would start now:
$ fairlift serve --config /etc/fairlift/fairlift.toml --check
A shell that finds the image at "$uri"; it is served until the shell ends:
$ fairlift serve disk.img --run bash
Have a running server re-read its config file:
$ kill -HUP $(pidof fairlift)
Attach an export to this machine:
$ nbd-client -unix /run/nbd.sock -N a /dev/nbd0
[fairlift-config]
A file to start from:
$ fairlift config > fairlift.toml
[fairlift-tunables]
The settings of the scheduler fair:
$ fairlift tunables fair
[fairlift-iostest]
The shares of four groups of readers on a modelled disk, with 1, 2, 4 and 8 readers each:
$ fairlift iostest --device sim:sata-7200 --scheduler bfq -w bsr -m 8 -G --nrgrp 4 --weights 100,200,300,400
A real disk, read only, with two values of a tunable, as a page with plots:
$ fairlift iostest /dev/sdb -w drr --sweep slice_idle=0,8ms --html page.html
[fairlift-iostune]
Measure a disk in a minute, reading only:
$ fairlift iostune /dev/sdb --quick
A modelled disk, for a program to read:
$ fairlift iostune sim:nvme-plp --json -
[fairlift-models]
The parameters of a modelled disk:
$ fairlift models sata-7200
[fairlift-completions]
Completions for all users of bash:
$ fairlift completions bash > /etc/bash_completion.d/fairlift
[fairlift-token]
A file that the client reads (--control unix:PATH,token=token), and the line for its table:
$ fairlift token > token
$ sed -n 2p token
[fairlift-version]
The version and commit, for a bug report:
$ fairlift version
[fairlift-man]
Install all pages:
$ fairlift man /usr/local/share/man/man1
[fairlift-units]
Install a service that starts this program:
$ fairlift units /etc/systemd/system
[fairlift-status]
The share of each tenant, on each disk:
$ fairlift status
[fairlift-top]
All tenants, live:
$ fairlift top
The tenants below /tenants, printed, the worst score first:
$ fairlift top --once --sort score --filter /tenants
[fairlift-gateways]
The requests that each gateway may have in the cluster, and its share and due there:
$ fairlift gateways
[fairlift-why]
The cause of each tenant's waits, a line each:
$ fairlift why
All causes for the tenant of one export:
$ fairlift why alice
The same, by the tenant's path:
$ fairlift why /tenants/alice
[fairlift-trace]
Five seconds of one export, for blkparse -i alice:
$ fairlift trace --export alice -o alice
One second of all requests, for ui.perfetto.dev:
$ fairlift trace --seconds 1 -o trace.json
[fairlift-get]
The settings of a group:
$ fairlift get group /tenants/alice
[fairlift-set]
Give a tenant three times the usual share:
$ fairlift set group /alice weight=300
Limit its reads, with ten times as many for five seconds once it has saved them:
$ fairlift set group /alice max=riops=3000 burst="riops=30000 seconds=5"
Serve a disk's tenants by weight:
$ fairlift set disk ssd0 scheduler=fair
[fairlift-add]
Serve one more image, in a group of its own:
$ fairlift add export carol=carol.img group=/tenants/carol
[fairlift-fork]
A disk with alice's present content, while alice is in use:
$ fairlift fork alice bob
The same, for another tenant:
$ fairlift fork alice bob --group /tenants/bob
A fork that disappears when it is removed, or when the server ends:
$ fairlift fork alice bob --ephemeral
[fairlift-remove]
Remove an export once its clients have their answers:
$ fairlift remove export carol
[fairlift-ublk]
An image file as the block device /dev/ublkb0, also found as /dev/fairlift/alice:
$ fairlift serve alice=alice.img --ublk
List the devices, with those that wait for a server:
$ fairlift ublk list
Serve a device whose server is gone for good, to unmount it:
$ fairlift ublk recover 3 alice=/srv/alice.img
[fairlift-overlay]
A disk that begins as debian.img and keeps its writes in alice.top:
$ fairlift serve alice=overlay:base=debian.img,top=alice.top
The size of the top, and its base:
$ fairlift overlay info alice.top
Check that the top is whole, and its base unchanged:
$ fairlift overlay check alice.top
Shorten the long chain that its forks have made, to the image alone:
$ fairlift overlay flatten alice.top
Move it to a new version of the image; alice's disk keeps its content:
$ fairlift overlay rebase alice.top new.img
Write alice's disk into debian.img, which no other disk lies over:
$ fairlift overlay commit --write-to-base alice.top
[fairlift-events]
Show events as they happen:
$ fairlift events
[fairlift-acknowledge]
Allow flushes again after one has failed, once the lost writes are known:
$ fairlift acknowledge
[fairlift-reload]
Have a running server re-read its config file:
$ fairlift reload
[fairlift-upgrade]
Check whether a new server could take over, and list what it would receive:
$ fairlift upgrade --dry-run
Have another program serve from now on:
$ fairlift upgrade --program /usr/local/bin/fairlift
"#;

/// Entries of `.TP`: a term, and its text.
type Terms = &'static [(&'static str, &'static str)];

const SIGNALS: Terms = &[
    (
        "SIGTERM, SIGINT",
        "Accept no new clients, finish the requests in flight, flush, and exit with status 0. A second one stops at once.",
    ),
    (
        "SIGHUP",
        "Read the config file again and apply the differences, all or none; the log lists the changes, or the mistake with its line. \
         Without a config file, as SIGTERM.",
    ),
];

const STATUS: Terms = &[
    ("0", "Success."),
    ("1", "A failure at run time: a backing cannot be opened, an address is taken, a report cannot be written."),
    ("2", "A mistake on the command line or in the config file. Each is reported with its place."),
    ("128+N", "Stopped at once by signal N."),
];

/// Those that do not stand for a flag.
const ENVIRONMENT: Terms = &[
    ("NO_COLOR", "Disables colors if it is not empty."),
    (
        "XDG_RUNTIME_DIR, TMPDIR",
        "The directory of the sockets for NBD clients and for control if no address is given; TMPDIR if the first is not set.",
    ),
];

const SERVE_ENVIRONMENT: Terms = &[
    ("RUST_LOG", "The level of the log: error, warn, info (the default), debug or trace."),
    ("LISTEN_FDS, LISTEN_PID", "Sockets that the service manager passes; they are served beside those of --listen."),
    ("LISTEN_FDNAMES", "Their names: fairlift-learned is the previous server's learned state."),
    ("NOTIFY_SOCKET", "The socket on which the server tells the service manager that it is ready, reloads, or stops."),
    ("RUNTIME_DIRECTORY", "The directory of control.sock if --control is not given; systemd sets it."),
    ("JOURNAL_STREAM", "If it names standard error, the log goes to the journal, with fields and without times."),
];

const FILES: Terms = &[
    (
        "$XDG_RUNTIME_DIR/fairlift.sock, /run/fairlift.sock",
        "The socket if no address is given; the second one for root.",
    ),
    ("/etc/fairlift/fairlift.toml", "The config file of the service; see fairlift.toml(5)."),
    (
        "server-cert.pem, server-key.pem, ca-cert.pem, ca-crl.pem",
        "Certificate, key and, to verify clients, the authority and its revocation list, in the directory of --tls-certificates.",
    ),
];

/// The page of the command itself; or all of them, in `directory`.
pub(crate) fn man(directory: Option<&Path>) -> io::Result<Vec<u8>> {
    super::files(directory, pages())
}

/// All pages, by the names of their files: that of `fairlift`, those of its commands, that of the config file.
fn pages() -> Vec<(String, String)> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut commands = Vec::new();
    collect(&root, &mut commands);
    let names: Vec<_> = commands.iter().map(name).collect();
    let mut pages: Vec<_> =
        commands.iter().map(|command| (format!("{}.1", name(command)), page(command, &names))).collect();
    pages.push(("fairlift.toml.5".into(), config_page()));
    pages
}

fn collect(command: &Command, into: &mut Vec<Command>) {
    into.push(command.clone());
    command.get_subcommands().for_each(|below| collect(below, into));
}

fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

fn page(command: &Command, all: &[String]) -> String {
    let own = name(command);
    let man = clap_mangen::Man::new(command.clone());
    let text = |sections: &dyn Fn(&mut Vec<u8>) -> std::io::Result<()>| {
        let mut out = Vec::new();
        sections(&mut out).expect("memory takes it");
        String::from_utf8(out).expect("roff is text")
    };
    let mut out = text(&|out| man.render_title(out).and_then(|()| man.render_name_section(out)));
    heading(&mut out, "SYNOPSIS");
    let usage = command.clone().render_usage().to_string();
    as_written(&mut out, usage.trim_start_matches("Usage: "));
    out += &text(&|out| {
        man.render_description_section(out)?;
        man.render_options_section(out)?;
        if command.has_subcommands() { man.render_subcommands_section(out) } else { Ok(()) }
    });
    let examples = examples(&own);
    if !examples.is_empty() {
        heading(&mut out, "EXAMPLES");
    }
    for (why, typed) in examples {
        let _ = writeln!(out, ".PP\n{}", escaped(why));
        as_written(&mut out, &typed);
    }
    let is_serve = own == "fairlift-serve";
    if is_serve {
        terms(&mut out, "SIGNALS", SIGNALS);
    }
    terms(&mut out, "EXIT STATUS", STATUS);
    heading(&mut out, "ENVIRONMENT");
    for (variable, flag) in flags_of_environment(command) {
        term(&mut out, &variable, &format!("The value of --{flag} if the flag is not given."));
    }
    let of_serve = if is_serve || own == "fairlift" { SERVE_ENVIRONMENT } else { &[] };
    ENVIRONMENT.iter().chain(of_serve).for_each(|(name, says)| term(&mut out, name, says));
    terms(&mut out, "FILES", FILES);
    let others = all.iter().filter(|name| **name != own).map(|name| (name.as_str(), 1));
    see_also(&mut out, others.chain([("fairlift.toml", 5), ("nbdinfo", 1), ("nbdcopy", 1), ("nbd-client", 8)]));
    out
}

/// The examples of a page: what each is for, and the lines that are typed.
fn examples(page: &str) -> Vec<(&'static str, String)> {
    let section = EXAMPLES.split("\n[").find_map(|section| section.strip_prefix(page)?.strip_prefix("]\n"));
    let mut all: Vec<(&str, String)> = Vec::new();
    for line in section.into_iter().flat_map(str::lines) {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(typed), Some((_, lines))) => *lines += &format!("{typed}\n"),
            _ => all.push((line, String::new())),
        }
    }
    all
}

/// fairlift.toml(5), from the keys.
fn config_page() -> String {
    let mut out = format!(".TH fairlift.toml 5 \"\" \"fairlift {}\"\n", env!("CARGO_PKG_VERSION"));
    heading(&mut out, "NAME");
    out += "fairlift.toml \\- the config file of fairlift serve\n";
    heading(&mut out, "DESCRIPTION");
    let says = "The file is TOML. Sizes are numbers of bytes, or text with k, m, g, t or p, which are powers of 1024. Times have a \
                unit: \"10s\", \"250ms\", \"20us\". Relative paths start at the directory of the file. Flags override the file, \
                and exports of both are served. A running server reads the file again on SIGHUP.";
    let _ = writeln!(out, "{}", escaped(says));
    for sort in SORTS {
        heading(&mut out, sort.header);
        let _ = writeln!(out, "{}", escaped(sort.says));
        for key in sort.keys() {
            let plain = |text: &str| escaped(&text.replace(['`'], "").replace("\\|", "|"));
            let _ = writeln!(out, ".TP\n\\fB{}\\fR", escaped(key.name));
            let _ = writeln!(
                out,
                "{}.\n.br\nTakes: {}\n.br\nDefault: {}",
                plain(key.says),
                plain(&key.takes),
                plain(key.default)
            );
        }
    }
    heading(&mut out, "EXAMPLES");
    as_written(&mut out, EXAMPLE.trim_end());
    terms(&mut out, "FILES", FILES);
    see_also(&mut out, [("fairlift", 1), ("fairlift-serve", 1), ("fairlift-config", 1)].into_iter());
    out
}

fn heading(out: &mut String, text: &str) {
    let _ = writeln!(out, ".SH \"{}\"", escaped(text).replace('"', "\\(dq"));
}

/// The variables that stand for flags of a command and of those below it, and these flags.
fn flags_of_environment(command: &Command) -> BTreeMap<String, String> {
    let own = command.get_arguments().filter_map(|flag| Some((flag.get_env()?.to_str()?, flag.get_long()?)));
    let own = own.map(|(variable, flag)| (variable.to_owned(), flag.to_owned()));
    own.chain(command.get_subcommands().flat_map(flags_of_environment)).collect()
}

fn terms(out: &mut String, header: &str, all: Terms) {
    heading(out, header);
    all.iter().for_each(|(name, says)| term(out, name, says));
}

fn term(out: &mut String, name: &str, says: &str) {
    let _ = writeln!(out, ".TP\n\\fB{}\\fR\n{}", escaped(name), escaped(says));
}

fn see_also<'a>(out: &mut String, pages: impl Iterator<Item = (&'a str, u8)>) {
    heading(out, "SEE ALSO");
    let pages: Vec<_> = pages.map(|(name, section)| format!("\\fB{}\\fR({section})", escaped(name))).collect();
    let _ = writeln!(out, "{}", pages.join(",\n"));
}

/// Text that is not to be filled: every line as it is typed.
fn as_written(out: &mut String, text: &str) {
    out.push_str(".PP\n.RS 4\n.EX\n");
    for line in text.lines() {
        let _ = writeln!(out, "{}", escaped(line));
    }
    out.push_str(".EE\n.RE\n");
}

/// As roff prints it: a hyphen can be copied as one, and nothing at the start of a line is a request.
fn escaped(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    if escaped.starts_with('.') { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command as Program, Stdio};

    use super::*;
    use clap::Parser as _;

    #[test]
    fn every_command_has_a_page_with_what_people_look_for() {
        let pages = pages();
        let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names[0], names[1], *names.last().unwrap()), ("fairlift.1", "fairlift-serve.1", "fairlift.toml.5"));
        assert!(!names.contains(&"fairlift-help.1"));
        for (name, page) in &pages {
            let mut sections = vec!["NAME", "FILES", "SEE ALSO"];
            if name != "fairlift.toml.5" {
                sections.extend(["SYNOPSIS", "EXIT STATUS", "ENVIRONMENT"]);
            }
            if name.matches('-').count() <= 1 {
                sections.push("EXAMPLES");
            }
            if name == "fairlift-serve.1" {
                sections.push("SIGNALS");
            }
            for section in sections {
                let heads = [format!(".SH {section}\n"), format!(".SH \"{section}\"\n")];
                assert_eq!(
                    heads.iter().map(|head| page.matches(head.as_str()).count()).sum::<usize>(),
                    1,
                    "{name}: {section}"
                );
            }
            // The pages that a page points at exist.
            let pointers = page.lines().filter_map(|line| line.strip_prefix("\\fBfairlift")?.split_once("\\fR("));
            for (other, section) in pointers {
                let other = format!("fairlift{}.{}", other.replace("\\-", "-"), &section[..1]);
                assert!(!other.contains("help") && names.contains(&other.as_str()), "{name} points at {other}");
            }
        }
    }

    #[test]
    fn each_variable_that_the_program_reads_is_in_its_manual_page() {
        let page = man(None).map(|page| String::from_utf8(page).unwrap()).unwrap();
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut read = Vec::new();
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let text = std::fs::read_to_string(path).unwrap();
                    let calls = ["env::var(\"", "env::var_os(\"", "env = \""];
                    let after = calls.iter().flat_map(|call| text.split(call).skip(1));
                    read.extend(after.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
                }
            }
        }
        read.retain(|name| !["_CLAP_COMPLETE_INDEX", "UPDATE_DOCS"].contains(&name.as_str()));
        assert!(read.len() >= 6, "{read:?}");
        for name in read {
            assert!(page.contains(&name), "{name} is not in the page");
        }
    }

    /// Examples of this build's commands are parsed by them; those of other programs, or of commands of other builds, are not tried.
    #[test]
    fn examples_are_right() {
        let known: Vec<_> = Cli::command().get_subcommands().map(|below| below.get_name().to_owned()).collect();
        let mut tried = 0;
        for line in EXAMPLES.lines().filter_map(|line| line.strip_prefix("$ ")) {
            let words: Vec<_> = line.split(" > ").next().unwrap().split(' ').collect();
            if words[0] == "fairlift" && known.iter().any(|name| *name == words[1]) {
                Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
                tried += 1;
            }
        }
        assert!(tried >= 15, "{tried}");
    }

    #[test]
    fn groff_has_nothing_to_say_of_any_page_and_examples_are_as_typed() {
        for (name, page) in pages() {
            let mut groff = Program::new("groff");
            groff.args(["-man", "-Tutf8", "-k", "-ww", "-rLL=100n", "-P-c"]);
            let groff = groff.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let Ok(mut groff) = groff else {
                eprintln!("skipped: groff is not installed");
                return;
            };
            groff.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
            let output = groff.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
            let shown = String::from_utf8_lossy(&output.stdout);
            let examples = examples(name.trim_end_matches(".1"));
            for line in examples.iter().flat_map(|(_, typed)| typed.lines()) {
                assert!(shown.lines().any(|one| one.trim() == line), "{name}: {line} is not in\n{shown}");
            }
        }
    }
}
