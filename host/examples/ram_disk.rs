//! Serves a RAM disk from a program of your own: `cargo run --example ram_disk -- /tmp/ram.sock`, then
//! `nbdinfo 'nbd+unix:///?socket=/tmp/ram.sock'`. Ends when its standard input does.

use fairlift::Server;
use fairlift::config::{Address, Backing, Config, Disk, Export, FileAt, Listener, Ram, Tls};
use fairlift_core::sched;

fn main() -> Result<(), fairlift::Error> {
    let arg = |n, default: &str| std::env::args().nth(n).unwrap_or_else(|| default.into());
    let backing = match arg(2, "").as_str() {
        "" => Backing::from(Ram { size: 1 << 30 }),
        path => FileAt::new(path).into(),
    };
    let disk = Disk::new("ram", sched::Kind::from_name(&arg(3, "none")).expect("the name of a scheduler"));
    let export = Export { description: "a gibibyte of RAM".into(), ..Export::new("ram", backing) };
    let server = Server::bind(Config {
        disk_default: disk,
        exports: vec![export].into(),
        listeners: vec![Listener::new(Address::Unix(arg(1, "/tmp/ram.sock").into()), Tls::Off)],
        ..Config::default()
    })?;
    let handle = server.handle();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        handle.drain();
    });
    server.run()
}
