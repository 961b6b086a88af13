//! A trace as it comes from a server, and as files for those who read traces.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fairlift_core::trace::Item;
use fairlift_core::{Group, GroupId, Instant};
use serde_json::{Value, json};

use super::Record;

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
    /// The end of a run on one disk, whose items need not be in order.
    pub(crate) fn of(disk: &str, groups: &[Group], mut items: Vec<Item>) -> Self {
        items.sort_by_key(Item::at);
        let began = items.first().map_or(Instant::ZERO, Item::at);
        let names = (0..).zip(groups).map(|(id, group)| Record::name(GroupId(id), &group.path));
        let heads = names.chain([Record::disk_name(0, disk)]).collect();
        let events = items.iter().filter_map(|item| Record::of(item, 0, began, 0)).collect();
        Self { heads, events, ..Self::default() }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.rest.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((record, len)) = Record::decode(&self.rest[at..])? {
            at += len;
            match record.says().and_then(|says| says.strip_prefix("lost=")) {
                Some(lost) => self.lost = lost.parse().unwrap_or_default(),
                None if record.event().is_some() || is_scheduler_message(&record) => self.events.push(record),
                None => self.heads.push(record),
            }
        }
        self.rest.drain(..at);
        Ok(())
    }

    pub(crate) fn events(&self) -> usize {
        self.events.len()
    }

    /// Takes out the new records, and returns the schedulers' messages: each with its seconds, disk, tenant and text.
    pub(crate) fn take_messages(&mut self) -> Vec<(f64, String, String, String)> {
        let events = std::mem::take(&mut self.events);
        let message = |record: &Record| {
            let (disk, tenant) = (self.disk(record.disk()), self.tenant(record.pid));
            Some((record.time as f64 / 1e9, disk, tenant, record.says()?.to_owned()))
        };
        events.iter().filter_map(message).collect()
    }

    fn disk(&self, number: u32) -> String {
        let name = self.heads.iter().find_map(|head| head.disk_named().filter(|_| head.disk() == number));
        name.map_or_else(|| format!("disk {number}"), str::to_owned)
    }

    fn tenant(&self, pid: u32) -> String {
        let name = self.heads.iter().find_map(|head| head.named().filter(|(of, _)| *of == pid));
        name.map_or_else(|| "?".into(), |(_, name)| name.to_owned())
    }

    /// How many events the server could not keep.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Writes it in the format that the name says; which files.
    pub(crate) fn write(&mut self, output: &Path) -> io::Result<Vec<String>> {
        self.events.sort_by_key(|record| record.time);
        if is_json(output) {
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
                // The events of one turn of a worker have one time; blkrawverify wants each to be later than the one before.
                let time = record.time.max(last + 1);
                last = time;
                let mut record = Record { cpu, time, ..record.clone() };
                if is_scheduler_message(&record) {
                    // blkparse tells no process of a message.
                    record.pdu = format!("{} {}", self.tenant(record.pid), record.says().unwrap_or_default()).into();
                }
                record.encode(number, &mut bytes);
            }
            let name = of_worker(output, cpu);
            fs::write(&name, bytes)?;
            Ok(name.display().to_string())
        };
        files.into_iter().map(write).collect()
    }

    /// The format of Chrome and Perfetto: a process for each disk, a thread for each tenant, for each request how long it waited and how
    /// long the device had it, and the scheduler's messages.
    pub(crate) fn chrome(&self) -> Value {
        let mut all: Vec<Value> = Vec::new();
        let mut threads = BTreeSet::new();
        // By disk, worker and first sector: when it got a request of its own.
        let mut waiting: HashMap<(u32, u32, u64), u64> = HashMap::new();
        let mut in_device: HashMap<(u32, u32, u64), (u64, usize)> = HashMap::new();
        let mut busy: BTreeMap<u32, u32> = BTreeMap::new();
        for (id, record) in self.events.iter().enumerate() {
            let (disk, key) = (record.disk(), (record.disk(), record.cpu, record.sector));
            threads.insert((disk, record.pid));
            if let Some(says) = record.says() {
                let ts = record.time as f64 / 1000.0;
                all.push(json!({"name": says, "cat": "scheduler", "ph": "i", "s": "t", "pid": disk, "tid": record.pid, "ts": ts}));
                continue;
            }
            let Some((letter, op)) = record.event() else { continue };
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
            all.push(name("process_name", self.disk(disk)));
            all.push(name("thread_name", self.tenant(pid)));
        }
        json!({"displayTimeUnit": "ns", "otherData": {"lost": self.lost}, "traceEvents": all})
    }
}

/// The first file that [`Taken::write`] makes.
pub(crate) fn first_file(output: &Path) -> PathBuf {
    if is_json(output) { output.to_owned() } else { of_worker(output, 0) }
}

fn is_json(output: &Path) -> bool {
    output.extension().is_some_and(|extension| extension == "json")
}

fn of_worker(output: &Path, cpu: u32) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(format!(".blktrace.{cpu}"));
    name.into()
}

fn is_scheduler_message(record: &Record) -> bool {
    record.says().is_some() && record.disk_named().is_none()
}
