//! Mail: the thread that writes and reads reports, so that a carrier that hangs stops nobody else (exchange.1).
//!
//! In a round a report is written, and all are read later. Where it could not be written nothing is heard: others do not hear of this gateway
//! then, and it is not to go by their reports (gateway.3).

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use super::Carrier;

type Heard = io::Result<Reports>;
type Reports = Vec<(String, Vec<u8>)>;

pub(super) struct Mail {
    /// A report to be written; `None`: all are to be read.
    work: Sender<Option<Vec<u8>>>,
    heard: Receiver<Heard>,
    is_reading: bool,
    /// The end of a round that came after it was waited for.
    late: Option<Heard>,
}

impl Mail {
    pub(super) fn new(gateway: &str, carrier: Box<dyn Carrier>) -> io::Result<Self> {
        let (work, asked) = mpsc::channel();
        let (tell, heard) = mpsc::channel();
        let gateway = gateway.to_owned();
        thread::Builder::new().name("reports".into()).spawn(move || carry(carrier, &gateway, &asked, &tell))?;
        Ok(Self { work, heard, is_reading: false, late: None })
    }

    /// Leaves this gateway's report, and does not wait for it. Where the last round has not ended it is left out: the carrier hangs, and
    /// there would be ever more of them.
    pub(super) fn begin(&mut self, report: Vec<u8>) {
        self.late = self.heard.try_recv().ok();
        self.is_reading &= self.late.is_none();
        if !self.is_reading {
            _ = self.work.send(Some(report)); // `hear` finds out that the thread has ended
        }
    }

    /// Has all reports read, and waits so long for them. Where a carrier takes longer, those of the round before, if they have come since.
    pub(super) fn hear(&mut self, patience: Duration) -> Result<Heard, RecvTimeoutError> {
        if !self.is_reading {
            self.is_reading = self.work.send(None).is_ok();
        }
        let heard = self.heard.recv_timeout(patience);
        self.is_reading &= heard.is_err();
        heard.or_else(|error| self.late.take().ok_or(error))
    }

    /// Leaves the last report, and waits for so long until all is done.
    pub(super) fn end(self, report: Vec<u8>, patience: Duration) {
        let _ = self.work.send(Some(report));
        drop(self.work);
        while self.heard.recv_timeout(patience).is_ok() {}
    }
}

fn carry(mut carrier: Box<dyn Carrier>, gateway: &str, asked: &Receiver<Option<Vec<u8>>>, tell: &Sender<Heard>) {
    let mut written = Ok(());
    for report in asked {
        match report {
            Some(report) => written = carrier.write(gateway, &report),
            None => {
                let written = std::mem::replace(&mut written, Ok(()));
                if tell.send(written.and_then(|()| carrier.read())).is_err() {
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
        mail.begin(b"first".to_vec());
        assert!(mail.hear(Duration::ZERO).is_err(), "nothing has come yet");
        mail.begin(b"left out".to_vec());
        assert!(mail.hear(Duration::ZERO).is_err());
        go.send(()).unwrap();
        let heard = |mail: &mut Mail| {
            let mut looks = (0..60_000).map(|_| {
                mail.begin(b"next".to_vec());
                mail.hear(Duration::from_millis(1))
            });
            looks.find_map(Result::ok).expect("it comes within a minute").unwrap()
        };
        assert_eq!(heard(&mut mail), [("gw1".to_owned(), b"first".to_vec())]);
        go.send(()).unwrap();
        assert_eq!(heard(&mut mail)[1], ("gw1".to_owned(), b"next".to_vec()));
    }

    /// exchange.1
    #[test]
    fn what_another_gateway_left_meanwhile_is_heard_and_a_report_that_was_not_written_is_told_of_once() {
        let there = Arc::new(Mutex::new(Vec::new()));
        let mut mail = Mail::new("gw1", Box::new(Memory(Arc::clone(&there)))).unwrap();
        let mut round = |report: &[u8]| {
            mail.begin(report.to_vec());
            mail.hear(LONG).unwrap()
        };
        assert_eq!(round(b"own").unwrap(), [("gw1".to_owned(), b"own".to_vec())]);
        there.lock().unwrap().push(("gw2".into(), b"new".to_vec()));
        assert_eq!(round(b"own").unwrap()[1], ("gw2".to_owned(), b"new".to_vec()));
        assert_eq!(round(b"").unwrap_err().to_string(), "no space");
        assert_eq!(round(b"own").unwrap().len(), 4);
        mail.end(b"last".to_vec(), LONG);
        assert_eq!(there.lock().unwrap()[4], ("gw1".to_owned(), b"last".to_vec()));
    }

    /// exchange.4: the time until reports are read passes at the exchange, and none of it before the last report.
    #[test]
    fn the_last_report_does_not_wait_until_others_are_to_be_read() {
        let there = Arc::new(Mutex::new(Vec::new()));
        let (_go, waits) = mpsc::channel();
        let mut mail = Mail::new("gw1", Box::new(Slow(Memory(Arc::clone(&there)), waits))).unwrap();
        mail.begin(b"own".to_vec());
        mail.end(b"last".to_vec(), LONG);
        assert_eq!(there.lock().unwrap()[1], ("gw1".to_owned(), b"last".to_vec()));
    }
}
