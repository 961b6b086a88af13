//! Mail: the thread that reads and writes reports, so that a carrier that hangs stops nobody else (exchange.1).
//!
//! A report that could not be written is told of by the next reading: others do not hear of this gateway then, and it is not to go by their
//! reports (gateway.3).

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use super::Carrier;

type Heard = io::Result<Reports>;
type Reports = Vec<(String, Vec<u8>)>;

enum Task {
    Read,
    Write(Vec<u8>),
}

pub(super) struct Mail {
    tasks: Sender<Task>,
    heard: Receiver<Heard>,
    is_asked: bool,
    is_late: bool,
}

impl Mail {
    pub(super) fn new(gateway: &str, carrier: Box<dyn Carrier>) -> io::Result<Self> {
        let (tasks, work) = mpsc::channel();
        let (tell, heard) = mpsc::channel();
        let gateway = gateway.to_owned();
        thread::Builder::new().name("reports".into()).spawn(move || carry(carrier, &gateway, &work, &tell))?;
        Ok(Self { tasks, heard, is_asked: false, is_late: false })
    }

    /// All reports, for which it waits so long. Where a carrier takes longer, those of the reading before, if they have come since.
    pub(super) fn read(&mut self, patience: Duration) -> Result<Heard, RecvTimeoutError> {
        let late = self.is_asked.then(|| self.heard.try_recv().ok()).flatten();
        if !self.is_asked || late.is_some() {
            self.is_asked = self.tasks.send(Task::Read).is_ok();
        }
        let heard = self.heard.recv_timeout(patience);
        self.is_asked &= heard.is_err();
        let heard = heard.or_else(|error| late.ok_or(error));
        self.is_late = heard.is_err();
        heard
    }

    /// Leaves this gateway's report, and does not wait for it. Where nothing came of the last reading it is left out: the carrier hangs, and
    /// there would be ever more of them.
    pub(super) fn write(&self, report: Vec<u8>) {
        if !self.is_late {
            let _ = self.tasks.send(Task::Write(report)); // A thread that has ended is told of by the next reading.
        }
    }

    /// Leaves the last report, and waits for so long until all is done.
    pub(super) fn end(self, report: Vec<u8>, patience: Duration) {
        let _ = self.tasks.send(Task::Write(report));
        drop(self.tasks);
        while self.heard.recv_timeout(patience).is_ok() {}
    }
}

fn carry(mut carrier: Box<dyn Carrier>, gateway: &str, work: &Receiver<Task>, tell: &Sender<Heard>) {
    let mut written = Ok(());
    for task in work {
        match task {
            Task::Write(report) => written = carrier.write(gateway, &report),
            Task::Read => {
                let heard = carrier.read();
                if tell.send(std::mem::replace(&mut written, Ok(())).and(heard)).is_err() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A carrier in memory, which fails to write what is empty.
    struct Memory(Arc<Mutex<Reports>>);

    impl Carrier for Memory {
        fn write(&mut self, gateway: &str, report: &[u8]) -> io::Result<()> {
            if report.is_empty() {
                return Err(io::Error::other("no space"));
            }
            self.0.lock().unwrap().push((gateway.into(), report.into()));
            Ok(())
        }

        fn read(&mut self) -> io::Result<Vec<(String, Vec<u8>)>> {
            Ok(self.0.lock().unwrap().clone())
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    /// A carrier that reads once for each word that it is given.
    struct Slow(Memory, Receiver<()>);

    impl Carrier for Slow {
        fn write(&mut self, gateway: &str, report: &[u8]) -> io::Result<()> {
            self.0.write(gateway, report)
        }

        fn read(&mut self) -> io::Result<Reports> {
            self.1.recv().unwrap();
            self.0.read()
        }
    }

    /// exchange.1
    #[test]
    fn a_slow_carrier_is_heard_of_a_period_later_and_a_report_is_left_where_something_came() {
        let (go, waits) = mpsc::channel();
        let mut mail = Mail::new("gw1", Box::new(Slow(Memory(Arc::default()), waits))).unwrap();
        assert!(mail.read(Duration::ZERO).is_err(), "nothing has come yet");
        mail.write(b"left out".to_vec());
        let next = |mail: &mut Mail| {
            go.send(()).unwrap();
            thread::sleep(Duration::from_millis(20)); // so that it has mostly come before it is looked for
            let mut looks = (0..60_000).map(|_| mail.read(Duration::from_millis(1)));
            looks.find_map(Result::ok).expect("it comes within a minute").unwrap().len()
        };
        assert_eq!(next(&mut mail), 0);
        mail.write(b"own".to_vec());
        // The second reading may have been asked for before that, as the first one was heard of.
        assert!(next(&mut mail) <= 1);
        assert_eq!(next(&mut mail), 1);
    }

    /// exchange.1
    #[test]
    fn what_another_gateway_left_meanwhile_is_heard_and_a_report_that_was_not_written_is_told_of_once() {
        let there = Arc::new(Mutex::new(Vec::new()));
        let mut mail = Mail::new("gw1", Box::new(Memory(Arc::clone(&there)))).unwrap();
        mail.write(b"own".to_vec());
        assert_eq!(mail.read(LONG).unwrap().unwrap(), [("gw1".to_owned(), b"own".to_vec())]);
        there.lock().unwrap().push(("gw2".into(), b"new".to_vec()));
        assert_eq!(mail.read(LONG).unwrap().unwrap()[1], ("gw2".to_owned(), b"new".to_vec()));
        mail.write(Vec::new());
        assert_eq!(mail.read(LONG).unwrap().unwrap_err().to_string(), "no space");
        assert_eq!(mail.read(LONG).unwrap().unwrap().len(), 2);
        mail.end(b"last".to_vec(), LONG);
        assert_eq!(there.lock().unwrap()[2], ("gw1".to_owned(), b"last".to_vec()));
    }
}
