//! A trace as it comes from a server, and as files for those who read traces.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::blktrace::Record;

/// What came.
#[derive(Default)]
pub(crate) struct Taken {
    /// The part of a record that is not whole.
    rest: Vec<u8>,
    /// Names and the time of day: for the beginning of each file.
    heads: Vec<Record>,
    events: Vec<Record>,
    lost: u64,
}

impl Taken {
    /// Adds what came.
    ///
    /// # Errors
    /// These are no records.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.rest.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((record, len)) = Record::decode(&self.rest[at..])? {
            at += len;
            match record.says().and_then(|says| says.strip_prefix("lost=")) {
                Some(lost) => self.lost = lost.parse().unwrap_or_default(),
                None if record.event().is_none() => self.heads.push(record),
                None => self.events.push(record),
            }
        }
        self.rest.drain(..at);
        Ok(())
    }

    pub(crate) fn events(&self) -> usize {
        self.events.len()
    }

    /// How many events the server could not keep.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Writes it in the format that the name says; which files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn write(&mut self, output: &Path) -> io::Result<Vec<String>> {
        self.events.sort_by_key(|record| record.time);
        if output.extension().is_some_and(|extension| extension == "json") {
            let mut file = io::BufWriter::new(fs::File::create(output)?);
            serde_json::to_writer(&mut file, &self.chrome())?;
            file.flush()?;
            return Ok(vec![output.display().to_string()]);
        }
        let mut files = BTreeMap::<u32, Vec<&Record>>::from([(0, Vec::new())]);
        for record in &self.events {
            files.entry(record.cpu).or_default().push(record);
        }
        let write = |(cpu, records): (u32, Vec<&Record>)| {
            let (mut bytes, mut last) = (Vec::new(), 0);
            for (number, record) in (1..).zip(self.heads.iter().chain(records)) {
                // What happens in one turn of a worker has one time; blkrawverify wants each to be later than the one before.
                let time = record.time.max(last + 1);
                last = time;
                Record { cpu, time, ..record.clone() }.encode(number, &mut bytes);
            }
            let mut name = output.as_os_str().to_owned();
            name.push(format!(".blktrace.{cpu}"));
            fs::write(&name, bytes)?;
            Ok(PathBuf::from(name).display().to_string())
        };
        files.into_iter().map(write).collect()
    }

    /// The format of Chrome and Perfetto: a process for each disk, a thread for each tenant, and for each request how long it
    /// waited and how long the device had it.
    pub(crate) fn chrome(&self) -> Value {
        let mut all: Vec<Value> = Vec::new();
        let names: BTreeMap<u32, &str> = self.heads.iter().filter_map(Record::named).collect();
        let mut threads = BTreeSet::new();
        // By disk, worker and first sector: when it got a request of its own.
        let mut waiting: HashMap<(u32, u32, u64), u64> = HashMap::new();
        let mut in_device: HashMap<(u32, u32, u64), (u64, usize)> = HashMap::new();
        let mut busy: BTreeMap<u32, u32> = BTreeMap::new();
        for (id, record) in self.events.iter().enumerate() {
            let Some((letter, op)) = record.event() else { continue };
            let (disk, key) = (record.disk(), (record.disk(), record.cpu, record.sector));
            threads.insert((disk, record.pid));
            let mut part = |what: &str, from: u64, id: usize| {
                let name = format!("{op} {}", record.bytes);
                let event = |phase: &str, time: u64| {
                    json!({
                        "name": name, "cat": what, "ph": phase, "id": id, "pid": disk, "tid": record.pid,
                        "ts": time as f64 / 1000.0,
                        "args": {"what": what, "sector": record.sector, "worker": record.cpu},
                    })
                };
                all.extend([event("b", from), event("e", record.time)]);
            };
            match letter {
                'G' => drop(waiting.insert(key, record.time)),
                'D' => {
                    if let Some(since) = waiting.remove(&key) {
                        part("waits", since, id);
                    }
                    in_device.insert(key, (record.time, id));
                    *busy.entry(disk).or_default() += 1;
                }
                'C' | 'R' => {
                    if let Some((since, id)) = in_device.remove(&key) {
                        part("device", since, id);
                        *busy.entry(disk).or_default() -= 1;
                    }
                }
                _ => continue,
            }
            if letter != 'G' {
                let count = busy.get(&disk).copied().unwrap_or_default();
                let ts = record.time as f64 / 1000.0;
                all.push(json!({"name": "in flight", "ph": "C", "pid": disk, "ts": ts, "args": {"requests": count}}));
            }
        }
        for (disk, pid) in threads {
            let name = |what: &str, name: String| json!({"name": what, "ph": "M", "pid": disk, "tid": pid, "args": {"name": name}});
            all.push(name("process_name", format!("disk {disk}")));
            all.push(name("thread_name", names.get(&pid).copied().unwrap_or("?").to_owned()));
        }
        json!({"displayTimeUnit": "ns", "otherData": {"lost": self.lost}, "traceEvents": all})
    }
}
