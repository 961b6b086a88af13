//! A protocol that answers one request: an export tells its first sector to a channel. It shows what a protocol needs, with its row.

use std::io;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use fairlift_core::{Bio, Extent, Flags, Op, Outcome, Sector, Stream, Token};

use crate::control::{Edit, Leave, Refused, State};
use crate::disk::engine::{Engine, News};
use crate::export::Export;
use crate::export::front::{Clients, Front, OF_TICKET, Opening, Protocol};
use crate::export::present::Newcomers;
use crate::export::service::{Exports, Service};
use crate::kernel::ring::Choice;
use crate::kernel::ticket::Memory;
use crate::{Error, Server, config};

/// The export's setting for it: the receiver of reports; `None`: nobody receives any.
#[derive(Clone, Debug)]
struct Listening(Option<mpsc::Sender<Vec<u8>>>);

impl config::WayIn for Listening {
    fn key(&self) -> &'static str {
        "first_sector"
    }

    fn written(&self) -> String {
        "true".into()
    }

    fn makes(&self) -> &'static str {
        "an ear"
    }
}

type Ear = (Arc<Export>, Listening);

/// The ears to be told, of a server, and the exports for which none came.
pub(super) struct Ears(Newcomers<Ear>, Mutex<Vec<u64>>);

/// Those of a worker: that of a request has the request's number.
pub(super) struct WorkerEars {
    all: Arc<Ears>,
    ears: Vec<Ear>,
}

impl Protocol for Ears {
    const NUMBER: u64 = 15;

    type Clients = WorkerEars;

    fn new(service: &Arc<Service>) -> Self {
        Self(Newcomers::new(service.notifiers.workers()), Mutex::default())
    }

    fn clients(self: &Arc<Self>, _engine: &mut Engine) -> io::Result<WorkerEars> {
        Ok(WorkerEars { all: Arc::clone(self), ears: Vec::new() })
    }

    fn prepare(
        self: &Arc<Self>,
        settings: &config::Export,
        _export: &Export,
        _engine: &Choice,
    ) -> Result<Option<Opening>, Error> {
        let Some(ear) = settings.ways.get::<Listening>().cloned() else { return Ok(None) };
        let all = Arc::clone(self);
        Ok(Some(Box::new(move |export| match ear.0 {
            Some(_) => all.0.send(all.0.place(), (Arc::clone(export), ear)),
            None => all.1.lock().unwrap().push(export.id),
        })))
    }

    fn wait(&self, export: u64) -> Result<(), String> {
        if self.1.lock().unwrap().contains(&export) { Err("no ear came".into()) } else { Ok(()) }
    }
}

impl Front for WorkerEars {
    fn look_at_clock(&mut self, engine: &mut Engine) {
        for (export, ear) in self.all.0.take(engine.context) {
            let memory = Memory::Pool(engine.pool.get(Sector::SIZE as usize).expect("nobody else has memory"));
            let ticket = engine.admit(Ears::NUMBER << OF_TICKET | self.ears.len() as u64, memory);
            let (group, priority, context) = (export.group, export.priority, engine.context);
            let stream = engine.add_stream(export.disk, Stream { group, priority, context });
            let (extent, flags) = (Extent::new(export.start, 1), Flags::NONE);
            engine.submit(export.disk, Bio { op: Op::Read, flags, extent, stream, token: Token(ticket as u64) });
            self.ears.push((export, ear));
        }
    }

    fn news(&mut self, engine: &mut Engine, ticket: usize, news: News) {
        assert_eq!(news, News::Ended(Outcome::Done));
        let number = engine.owner(ticket) & !(Ears::NUMBER << OF_TICKET);
        let (_, Listening(ear)) = &self.ears[number as usize];
        let Memory::Pool(buffer) = engine.memory(ticket) else { panic!("it was given a buffer") };
        ear.iter().for_each(|ear| ear.send(buffer.bytes().to_vec()).unwrap());
        engine.release(ticket);
    }

    fn go_on(&mut self, _engine: &mut Engine) -> bool {
        false
    }

    fn is_over(&self, engine: &Engine) -> bool {
        engine.open() == 0
    }
}

impl Clients for WorkerEars {
    fn follow(&mut self, _engine: &mut Engine, _exports: &Exports) {}

    fn drain(&mut self, _engine: &mut Engine) {}
}

fn config(export: config::Export) -> config::Config {
    config::Config { exports: vec![export].into(), workers: Some(2), ..config::Config::default() }
}

fn ways(tell: Option<mpsc::Sender<Vec<u8>>>) -> config::Ways {
    let mut ways = config::Ways::default();
    ways.set(Listening(tell));
    ways
}

#[test]
fn a_protocol_is_served_by_its_row_and_nothing_else() {
    let path = std::env::temp_dir().join(format!("fairlift-row-{}", std::process::id()));
    let content: Vec<u8> = (0..4096_u32).map(|byte| (byte % 251) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let (tell, hear) = mpsc::channel();
    let ways = ways(Some(tell));
    let export = config::Export { ways, offset: 512, ..config::Export::new("a", config::FileAt::new(&path)) };
    let server = Server::bind(config(export));
    let server = server.unwrap();
    let handle = server.handle();
    let serving = std::thread::spawn(move || server.run());
    assert_eq!(hear.recv_timeout(Duration::from_secs(20)).unwrap(), content[512..1024]);
    handle.drain();
    serving.join().unwrap().unwrap();
    std::fs::remove_file(path).unwrap();
}

/// A part of a change that is to come after it was made, and does not: groups, listeners, exports and disks are as they were.
#[test]
fn a_change_of_which_something_does_not_come_is_undone() {
    let image = std::env::temp_dir().join(format!("fairlift-undo-{}", std::process::id()));
    std::fs::write(&image, [7; 4096]).unwrap();
    let socket = image.with_extension("sock");
    let server = Server::bind(config(config::Export::new("a", config::FileAt::new(&image)))).unwrap();
    let handle = server.handle();
    let serving = std::thread::spawn(move || server.run());
    let answers = || {
        let State { version, config } = handle.state().unwrap();
        (version, format!("{:?}", (&config.groups, &config.bounds, &config.disks, &config.exports, &config.listeners)))
    };
    let before = answers();
    let deaf = |version| {
        let edit = |edit: &mut Edit| {
            let ways = ways(None);
            let ram = config::Export::new("deaf", config::Ram { size: 1 << 20 });
            edit.add_group("/b")?;
            let disk = edit.config.disks[0].name.clone();
            edit.disk(&disk)?.depth = Some(7);
            edit.add_listener(config::Listener::new(config::Address::Unix(socket.clone()), config::Tls::Off))?;
            edit.export("a")?.description = "another".into();
            edit.add_export(config::Export { ways, ..ram }, None, "/b")
        };
        handle.change(edit, version, false).unwrap_err().to_string()
    };
    assert_eq!(deaf(Some(0)), "export \"deaf\": no ear came");
    let after = answers();
    assert_eq!(after, (2, before.1), "it was made, and undone");
    while handle.sweep() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let view = handle.view(false).unwrap();
    assert!(
        !socket.exists() && view.listeners.is_empty() && view.exports.len() == 1 && view.disks.len() == 1,
        "{view:?}"
    );
    assert_ne!(view.disks[0].depth, 7);
    // No export shrinks.
    std::fs::write(&image, [7; 8192]).unwrap();
    handle.change(|edit| edit.grow("a", Some(4096)), None, false).unwrap();
    let edit = |edit: &mut Edit| {
        let ways = ways(None);
        edit.grow("a", Some(8192))?;
        edit.add_export(
            config::Export { ways, ..config::Export::new("deaf", config::Ram { size: 1 << 20 }) },
            None,
            "/",
        )
    };
    let Err(Refused::InPart { why, not, made }) = handle.change(edit, None, false) else { panic!("it is undone") };
    assert_eq!((&*why, &*made), ("export \"deaf\": no ear came", "export \"a\": size 8 KiB"));
    assert!(not.contains("cannot shrink from 8 KiB to 4 KiB"), "{not}");
    assert_eq!(handle.view(false).unwrap().exports, [("a".to_owned(), 8192)]);
    handle.change(|edit| edit.remove_export("a", Leave::Drain), None, false).unwrap();
    assert_eq!(handle.state().unwrap().config.disks.len(), 0, "a disk that nobody named goes with its last export");
    handle.drain();
    serving.join().unwrap().unwrap();
    std::fs::remove_file(image).unwrap();
}
