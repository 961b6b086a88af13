//! The settings of an export as a block device of this machine: `true`, or words such as `id=3,queues=2`.

use fairlift_core::suggestion;

use crate::config::{SocketMode, WayIn};

/// An export as a block device of this machine, `/dev/ublkb0`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ublk {
    /// Its number; `None`: the kernel chooses, or it is the one that a previous server had for this export.
    pub id: Option<u32>,
    /// How many queues, 1 to 64; `None`: one for each worker. The kernel makes no more than it has CPUs.
    pub queues: Option<u16>,
    /// How many requests each queue may have, 1 to 4096; `None`: 128.
    pub depth: Option<u16>,
    /// Whether it is made without `CAP_SYS_ADMIN`, where a udev rule lets this user: such a device does not outlive its server, and no
    /// partitions are looked for on it.
    pub unprivileged: bool,
    /// Whether it outlives a killed server, and waits for the next one. A device in RAM never does.
    pub recover: bool,
    /// Whether it is left to the next server when this one ends in order, too.
    pub leave: bool,
    /// Whether the device of that [`id`](Self::id) is taken over whichever export it was.
    pub adopt: bool,
    /// Whether the server goes on, with a warning, where the device cannot be had.
    pub optional: bool,
    /// Whether the kernel looks for partitions when the device starts.
    pub partitions: bool,
    /// Its permissions; `None`: as the kernel, or udev, makes its file.
    pub file: Option<SocketMode>,
}

impl Default for Ublk {
    fn default() -> Self {
        let (id, queues, depth, unprivileged, leave, adopt, optional, file) = Default::default();
        Self { id, queues, depth, unprivileged, recover: true, leave, adopt, optional, partitions: true, file }
    }
}

impl Ublk {
    /// The words, as they are written in flags and in the config file. (`adopt` takes over a device whose server has died. The last three,
    /// which are those of a socket, are parsed where users are known by name.)
    const WORDS: &str = "id, queues, depth, unprivileged, recover, leave, optional, partitions, mode, owner, group";

    /// Reads `true`, `false`, or words with commas between them; `None`: it is no block device.
    ///
    /// # Errors
    /// The part that is not understood, and the possible ones.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        match text {
            "" | "true" | "on" => return Ok(Some(Self::default())),
            "false" | "off" => return Ok(None),
            _ => {}
        }
        let mut ublk = Self::default();
        for word in text.split(',') {
            let (word, value) = word.split_once('=').unwrap_or((word, "true"));
            ublk.set(word.trim(), value.trim())?;
        }
        ublk.check().map_err(|why| why.strip_prefix("ublk: ").unwrap_or(&why).to_owned())?;
        Ok(Some(ublk))
    }

    fn set(&mut self, word: &str, value: &str) -> Result<(), String> {
        let number = |most: u32| {
            let number = value.parse().ok().filter(|number| *number <= most);
            number.ok_or_else(|| format!("{word} takes a number up to {most}, not \"{}\"", value.escape_debug()))
        };
        let switch = || match value {
            "true" | "on" | "yes" | "1" => Ok(true),
            "false" | "off" | "no" | "0" => Ok(false),
            _ => Err(format!("{word} takes true or false, not \"{}\"", value.escape_debug())),
        };
        match word {
            "id" => self.id = Some(number((1 << 20) - 1)?),
            "queues" => self.queues = Some(number(64)? as u16),
            "depth" => self.depth = Some(number(4096)? as u16),
            "unprivileged" => self.unprivileged = switch()?,
            "recover" => self.recover = switch()?,
            "leave" => self.leave = switch()?,
            "optional" => self.optional = switch()?,
            "adopt" => self.adopt = switch()?,
            "partitions" => self.partitions = switch()?,
            _ => {
                let hint = match suggestion(word, Self::WORDS.split(", ")) {
                    hint if hint.is_empty() => format!("; there are {}", Self::WORDS),
                    hint => hint,
                };
                return Err(format!("unknown word \"{}\"{hint}", word.escape_debug()));
            }
        }
        Ok(())
    }
}

impl WayIn for Ublk {
    fn key(&self) -> &'static str {
        "ublk"
    }

    fn written(&self) -> String {
        let Self { id, queues, depth, unprivileged, recover, leave, adopt, optional, partitions, file } = *self;
        let number = |word: &str, number: Option<u32>| number.map(|number| format!("{word}={number}"));
        let switch = |word: &str, is: bool| is.then(|| word.to_owned());
        let all = [
            number("id", id),
            number("queues", queues.map(u32::from)),
            number("depth", depth.map(u32::from)),
            switch("unprivileged", unprivileged),
            switch("recover=false", !recover),
            switch("leave", leave),
            switch("adopt", adopt),
            switch("optional", optional),
            switch("partitions=false", !partitions),
            file.map(|file| file.to_string().trim_start_matches(',').to_owned()),
        ];
        let all: Vec<_> = all.into_iter().flatten().collect();
        if all.is_empty() { "true".into() } else { all.join(",") }
    }

    fn makes(&self) -> &'static str {
        "a block device"
    }

    fn check(&self) -> Result<(), String> {
        let numbers = [
            ("queues", self.queues.map(u32::from), 1..=64),
            ("depth", self.depth.map(u32::from), 1..=4096),
            ("id", self.id, 0..=(1 << 20) - 1),
        ];
        for (word, number, range) in numbers {
            if let Some(number) = number.filter(|number| !range.contains(number)) {
                let (least, most) = range.into_inner();
                return Err(format!("ublk: {word} takes a number from {least} to {most}, not {number}"));
            }
        }
        let wrong = [
            (
                self.leave && !self.recover,
                "leave needs recover: a device that does not outlive its server cannot be left to the next",
            ),
            (
                self.leave && self.unprivileged,
                "the kernel leaves no unprivileged device to another server: leave cannot be",
            ),
            (
                self.unprivileged && self.file.is_some(),
                "a udev rule sets the owner of an unprivileged device: mode, owner and group cannot be set here",
            ),
            (self.adopt && self.id.is_none(), "adopt needs id: which device is meant"),
        ];
        if let Some((_, why)) = wrong.iter().find(|(is, _)| *is) {
            return Err(format!("ublk: {why}"));
        }
        Ok(())
    }

    fn sole(&self) -> Option<String> {
        self.id.map(|id| format!("/dev/ublkb{id}"))
    }

    /// Its devices know (`Protocol::stays`).
    fn stays(&self) -> Option<String> {
        None
    }

    fn gives_away(&self) -> bool {
        self.file.is_some()
    }

    fn is_block_device(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Ublk>, String> {
        Ublk::parse(text)
    }

    #[test]
    fn what_is_shown_is_what_was_said() {
        for text in [
            "true",
            "id=3,queues=2,depth=64",
            "unprivileged,recover=false",
            "leave,optional",
            "id=0,adopt",
            "partitions=false",
        ] {
            assert_eq!(parse(text).unwrap().unwrap().written(), text);
        }
        assert_eq!([parse("false"), parse("off")], [Ok(None), Ok(None)]);
        assert_eq!(parse(""), parse("true"));
    }

    #[test]
    fn mistakes_say_what_is_possible() {
        let why = |text| parse(text).unwrap_err();
        assert!(why("queue=2").contains("did you mean \"queues\""), "{}", why("queue=2"));
        assert!(why("nonsense").contains("there are id, queues"), "{}", why("nonsense"));
        assert!(why("depth=0").contains("1 to 4096"), "{}", why("depth=0"));
        assert!(why("queues=65").contains("up to 64"), "{}", why("queues=65"));
        assert!(why("leave,recover=off").contains("leave needs recover"));
        assert!(why("adopt").contains("needs id"));
    }
}
