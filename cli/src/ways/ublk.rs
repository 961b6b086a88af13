//! Block devices of this machine: `--ublk`, and the key `ublk` of an export.

use clap::Args;
use fairlift::config::{SocketMode, WayIn as _, Ways};
use fairlift::export::ublk::Ublk;

use super::Flags;
use crate::config::given::Given;
use crate::config::row::Put::Other;
use crate::config::row::Row;
use crate::syntax::place::take_mode;

pub(super) const ROW: Row<Ways> = Row::<Ways>::new("ublk", Other(put))
    .takes("true, false, or a table of `id`, `queues`, `depth`, `unprivileged`, `recover`, `leave`, `optional`, `partitions`, `mode`, `owner`, `group`")
        .fixed("`--ublk`, else false",
            "whether the export is a block device of this machine, /dev/ublkbN; see `docs/ublk.md`");

fn put(ways: &mut Ways, given: &Given) -> Result<(), String> {
    let ublk = match given {
        Given::Switch(is) => is.then(Ublk::default),
        Given::Word(text) | Given::Text(text) => parse(text)?,
        Given::Table(table) => {
            // Each is one word, and its value one.
            let is_odd = |text: &str| text.contains([',', '=']);
            if let Some((word, value)) =
                table.iter().find(|(word, value)| is_odd(word) || value.plain().is_some_and(|text| is_odd(&text)))
            {
                return Err(format!("{word} = {}: takes one word for each", value.show()));
            }
            let word = |(word, value): &(String, Given)| {
                let switch = matches!(value, Given::Switch(_)).then(|| value.show());
                let fits = match &**word {
                    // 0o660 of TOML is another number than the one that it is written as.
                    "mode" => !matches!(value, Given::Number(..)),
                    "owner" | "group" => true,
                    _ => !matches!(value, Given::Text(_)),
                };
                let text = switch.or_else(|| value.plain().filter(|_| fits));
                format!("{word}={}", text.unwrap_or_else(|| "something else".into()))
            };
            parse(&table.iter().map(word).collect::<Vec<_>>().join(","))?
        }
        _ => return Err(format!("takes true, false or a table such as {{ queues = 2 }}, not {}", given.show())),
    };
    ublk.into_iter().for_each(|ublk| ways.set(ublk));
    Ok(())
}

/// Reads the words, with those that say who may open the device.
fn parse(text: &str) -> Result<Option<Ublk>, String> {
    let mut file = SocketMode::default();
    let mut others = Vec::new();
    for word in text.split(',') {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        if !take_mode(&mut file, name.trim(), value.trim())? {
            others.push(word);
        }
    }
    let Some(mut ublk) = Ublk::parse(&others.join(","))? else { return Ok(None) };
    ublk.file = Some(file).filter(|file| *file != SocketMode::default());
    ublk.check().map_err(|why| why.trim_start_matches("ublk: ").to_owned())?;
    Ok(Some(ublk))
}

#[derive(Clone, Default, Debug, Args)]
#[group(skip)]
pub(super) struct Flag {
    /// Make each export a block device of this machine, /dev/ublkbN, also found as /dev/fairlift/NAME; its kernel module is ublk_drv
    ///
    /// OPTIONS, with commas between them: queues=N, depth=N, id=N (of a single export), unprivileged, recover=off, leave, optional,
    /// partitions=off, mode=0660, owner=NAME, group=NAME.
    /// A device whose export is a file outlives a server that is killed: started again in the same way, `fairlift serve` takes it over. It is
    /// removed when the server ends, unless `leave` is given.
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = parse_flag)]
    ublk: Option<Ublk>,
}

impl super::Flag for Flag {
    const IS_OF_ADDED: bool = false;

    fn put(&self, _export: &str, to: &mut Ways) -> Result<(), String> {
        self.ublk.iter().for_each(|ublk| to.set(ublk.clone()));
        Ok(())
    }
}

impl Flags {
    /// Those of a server whose exports are this block device.
    pub(crate) fn of_block_device(ublk: Ublk) -> Self {
        Self { ublk: Flag { ublk: Some(ublk) }, ..Self::default() }
    }
}

/// The words of the flag, which says that exports are block devices.
fn parse_flag(text: &str) -> Result<Ublk, String> {
    parse(text)?
        .ok_or_else(|| "takes words such as queues=2,leave, or nothing; leave the flag out for no block devices".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_open_the_device_is_said_as_of_a_socket() {
        let written = |text: &str| parse(text).map(|ublk| ublk.unwrap().written());
        assert_eq!(written("queues=2,group=0,mode=0660"), Ok("queues=2,mode=0660,group=0".into()));
        assert_eq!(written("owner=7"), Ok("owner=7".into()));
        assert_eq!(parse("queues=2").unwrap().unwrap().file, None);
        for (text, why) in [
            ("mode=9", "octal"),
            ("owner=nobody-of-that-name", "there is no"),
            ("onwer=x", "did you mean \"owner\""),
            ("unprivileged,mode=0660", "udev rule"),
        ] {
            assert!(written(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn the_flag_says_only_that_exports_are_block_devices() {
        assert!(parse_flag("off").unwrap_err().contains("leave the flag out"));
        assert_eq!(parse_flag("id=3").map(|ublk| ublk.id), Ok(Some(3)));
    }
}
