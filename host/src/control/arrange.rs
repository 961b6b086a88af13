//! The backings to open, once each, and their disks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use fairlift_core::{Sector, sched};

use crate::Error;
use crate::config::{self, Config};
use crate::control::{naming, tenants};
use crate::device::roots::Roots;
use crate::device::{Backing, Device, Sharing};
use crate::disk::{Disk, Registered};
use crate::export::Export;

/// [`Backing::open`] to serve it, [`Backing::try_open`] to see whether it could be served.
pub(crate) type OpenBacking = fn(&Backing, bool, &Roots) -> Result<Arc<dyn Device>, Error>;

/// Opens the backings of exports, in their order and each once; the files of all lie in the roots.
pub(crate) fn open_all(
    exports: &[config::Export],
    roots: &Roots,
    open: OpenBacking,
) -> impl Iterator<Item = Result<Arc<dyn Device>, Error>> {
    let written = written(exports);
    let mut shared: HashMap<Sharing, Arc<dyn Device>> = HashMap::new();
    exports.iter().map(move |export| {
        roots.check(&export.backing)?;
        let sharing = export.backing.sharing(export.disk);
        if let Some(known) = shared.get(&sharing) {
            return Ok(Arc::clone(known));
        }
        // A backing that any of its exports may write is opened for writing.
        let read_only = export.read_only && !written.contains(&sharing);
        roots.opens(&export.name);
        let device = open(&resolved(export, exports)?, read_only, roots)?;
        if sharing != Sharing::None {
            shared.insert(sharing, Arc::clone(&device));
        }
        Ok(device)
    })
}

/// The backing of an export, with the backing of another export if it is named as that one's.
///
/// # Errors
/// There is no such export, or nothing can lie over its backing: it is written, or is a part of something.
pub(crate) fn resolved(export: &config::Export, exports: &[config::Export]) -> Result<Backing, Error> {
    let of_export = |name: &str| {
        let there = exports.iter().find(|one| one.name == name && one.name != export.name);
        let named =
            there.ok_or_else(|| format!("its base export:{name} is none: there is no other export \"{name}\""))?;
        let sharing = named.backing.sharing(None);
        let writes = |one: &&config::Export| {
            !one.read_only && (one.name == name || sharing != Sharing::None && one.backing.sharing(None) == sharing)
        };
        if let Some(writer) = exports.iter().find(writes) {
            return Err(format!(
                "its base export:{name} is written (export \"{}\"), and a base must not be: fork it (fairlift fork {} NEW), or have it \
                 read only (read_only=true)",
                writer.name, writer.name
            ));
        }
        if named.offset != 0 || named.size.is_some() {
            return Err(format!(
                "its base export:{name} shows a part of its backing (offset, size), and a base is all of one"
            ));
        }
        Ok(named.backing.clone())
    };
    export.backing.resolved(&of_export).map_err(|why| Error::Export { name: export.name.clone(), why })
}

/// The shared backings that some of these exports may write.
pub(crate) fn written(exports: &[config::Export]) -> HashSet<Sharing> {
    let some = exports.iter().any(|export| export.read_only); // or nobody asks
    let writable = exports.iter().filter(|export| some && !export.read_only);
    writable.map(|export| export.backing.sharing(export.disk)).filter(|sharing| *sharing != Sharing::None).collect()
}

/// A device that exports show.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) sharing: Sharing,
    pub(crate) disk: usize,
    pub(crate) start: Sector,
    /// The number under which its file is registered with every ring, if it is a file.
    pub(crate) file: Option<u32>,
    pub(crate) read_only: bool,
}

pub(crate) struct Arranged {
    pub(crate) disks: Vec<Arc<Disk>>,
    /// The disk that each export is on, and where its backing is there.
    pub(crate) placed: Vec<(usize, Sector)>,
    /// Each device once; the files are numbered from 0 on.
    pub(crate) opened: Vec<Opened>,
    /// The configuration of a server made from it: each export names its disk, and each disk has the scheduler that suits it.
    pub(crate) in_force: Config,
}

/// Puts the devices on disks: as the configuration says, else one disk for each file system or device. `before`: the schedulers that disks have come
/// to have at a server from which this one takes over, where nobody named one; a disk that is not among them was named one there, by a
/// command if not by the configuration, and keeps it.
pub(crate) fn arrange(
    config: &Config,
    opened: &[Arc<dyn Device>],
    workers: usize,
    before: Option<&BTreeMap<String, sched::Kind>>,
) -> Result<Arranged, Error> {
    let mut in_force = config.clone();
    let settings = Arc::make_mut(&mut in_force.disks);
    let mut homes: HashMap<u64, usize> = HashMap::new();
    // Exports that share a device share its disk, even if only one of them names it.
    let mut disk_of: HashMap<*const (), usize> = HashMap::new();
    for (export, device) in config.exports.iter().zip(opened) {
        export.disk.iter().for_each(|disk| _ = disk_of.entry(address(device)).or_insert(*disk));
    }
    let mut on_disk: Vec<usize> = Vec::new();
    for (export, device) in config.exports.iter().zip(opened) {
        let earlier = disk_of.get(&address(device)).copied();
        if let (Some(own), Some(first)) = (export.disk, earlier)
            && own != first
        {
            let why = format!(
                "its backing is on disk \"{}\" already, by another export; one backing has one queue",
                settings[first].name
            );
            return Err(Error::Export { name: export.name.clone(), why });
        }
        let home = device.facts().home;
        let disk = earlier.or_else(|| homes.get(&home?).copied()).unwrap_or_else(|| {
            settings.push(config::Disk { name: device.called(), ..config.disk_default.clone() });
            settings.len() - 1
        });
        let is_made = disk >= config.disks.len();
        homes.extend(home.filter(|_| is_made).map(|home| (home, disk)));
        disk_of.insert(address(device), disk);
        on_disk.push(disk);
    }
    for (export, disk) in Arc::make_mut(&mut in_force.exports).iter_mut().zip(&on_disk) {
        export.disk = Some(*disk);
    }
    let mut first: HashMap<usize, &str> = HashMap::new();
    for (export, disk) in config.exports.iter().zip(&on_disk) {
        first.entry(*disk).and_modify(|first| *first = (*first).min(&export.name)).or_insert(&export.name);
    }
    let (named, made) = Arc::make_mut(&mut in_force.disks).split_at_mut(config.disks.len());
    let homes: HashSet<_> = homes.into_values().collect();
    let called = |(disk, made): (usize, &config::Disk)| naming::Called {
        device: made.name.clone(),
        is_alone: !homes.contains(&disk),
        export: first[&disk],
    };
    let called: Vec<_> = (named.len()..).zip(&*made).map(called).collect();
    let names = naming::names(named.iter().map(|disk| &*disk.name).collect(), &called);
    made.iter_mut().zip(names).for_each(|(made, name)| made.name = name);
    check_shared(config.exports.iter().zip(opened))?;
    let (mut each, mut files, written) = (Vec::new(), 0.., written(&in_force.exports));
    let mut contents: Vec<Vec<Registered>> = in_force.disks.iter().map(|_| Vec::new()).collect();
    let mut put: HashSet<*const ()> = HashSet::new();
    for ((export, device), disk) in in_force.exports.iter().zip(opened).zip(on_disk.iter().copied()) {
        if put.insert(address(device)) {
            let file = device.descriptor().and_then(|_| files.next());
            contents[disk].push((Arc::clone(device), file));
            let sharing = export.backing.sharing(export.disk);
            let read_only = device.facts().read_only || (export.read_only && !written.contains(&sharing));
            each.push(Opened { device: Arc::clone(device), sharing, disk, start: Sector(0), file, read_only });
        }
    }
    for (disk, devices) in contents.iter().enumerate() {
        tenants::settle(&mut in_force, disk, devices.iter().any(|(device, _)| device.facts().rotational));
        let there = &mut Arc::make_mut(&mut in_force.disks)[disk];
        match before.filter(|_| there.is_usual).map(|before| before.get(&there.name)) {
            Some(Some(scheduler)) if *scheduler != there.scheduler => tenants::turn(there, *scheduler),
            Some(None) => there.is_usual = false,
            _ => {}
        }
    }
    let disks: Vec<_> = in_force
        .disks
        .iter()
        .zip(&contents)
        .map(|(settings, devices)| Ok(Arc::new(Disk::new(settings, devices, &config.groups, workers)?)))
        .collect::<Result<_, Error>>()?;
    let mut starts: HashMap<*const (), Sector> = HashMap::new();
    for place in disks.iter().flat_map(|disk| disk.places().to_vec()) {
        place.device.iter().for_each(|device| _ = starts.insert(address(device), place.start));
    }
    each.iter_mut().for_each(|one| one.start = starts[&address(&one.device)]);
    let placed = on_disk.iter().zip(opened).map(|(disk, device)| (*disk, starts[&address(device)])).collect();
    Ok(Arranged { disks, placed, opened: each, in_force })
}

/// Whether each byte of a file is written by one export only, as far as nobody allows more: an export and the device that it shows
/// each.
///
/// # Errors
/// The export that comes second, and the first.
pub(crate) fn check_shared<'a>(
    exports: impl Iterator<Item = (&'a config::Export, &'a Arc<dyn Device>)>,
) -> Result<(), Error> {
    let mut written: HashMap<*const (), Vec<&config::Export>> = HashMap::new();
    let end = |export: &config::Export| export.size.map_or(u64::MAX, |size| export.offset.saturating_add(size));
    for (export, device) in exports.filter(|(export, _)| !export.read_only) {
        let config::Backing::File(file) = &export.backing else { continue };
        let others = written.entry(address(device)).or_default();
        let is_beside = |other: &&&config::Export| other.offset < end(export) && export.offset < end(other);
        let is_shared =
            |other: &config::Export| matches!(&other.backing, config::Backing::File(file) if file.access.is_shared);
        if let Some(other) = others.iter().find(is_beside)
            && !file.access.is_shared
            && !is_shared(other)
        {
            let path = file.path.display();
            let why = format!(
                "export {:?} writes to {path} already, and two clients that write to one file system destroy it; make one of them \
                 read-only, or if they know of each other: file:{path},shared",
                other.name
            );
            return Err(Error::Export { name: export.name.clone(), why });
        }
        others.push(export);
    }
    Ok(())
}

pub(crate) fn address(device: &Arc<dyn Device>) -> *const () {
    Arc::as_ptr(device).cast()
}

pub(crate) fn export(
    (config, path): (&config::Export, &str),
    device: &Arc<dyn Device>,
    (disk, start): (usize, Sector),
    id: u64,
) -> Result<Export, Error> {
    let fail = |why: String| Error::Export { name: config.name.clone(), why };
    let facts = device.facts();
    let block = u64::from(facts.block());
    if !config.offset.is_multiple_of(block) || config.size.is_some_and(|size| size % block != 0) {
        return Err(fail(format!("its offset and size must be multiples of {block}, the block of its backing")));
    }
    let size = match config.size {
        Some(size) => size,
        None => facts.size.saturating_sub(config.offset),
    };
    if size == 0 || config.offset.checked_add(size).is_none_or(|end| end > facts.size) {
        return Err(fail(format!(
            "it would show bytes {} to {} of a backing that has {}",
            config.offset,
            config.offset.saturating_add(size),
            facts.size
        )));
    }
    Ok(Export {
        id,
        name: config.name.clone(),
        description: config.description.clone(),
        disk,
        device: Arc::clone(device),
        start: Sector(start.0 + config.offset / Sector::SIZE),
        offset: config.offset,
        size,
        read_only: config.read_only || facts.read_only,
        group: config.group,
        path: path.into(),
        priority: config.priority,
        facts,
        stats: Default::default(),
    })
}
