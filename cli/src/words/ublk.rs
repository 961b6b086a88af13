//! What an export is as a block device of this machine: `true`, or words such as `id=3,queues=2`.

use fairlift::config::Ublk;
use fairlift_lab::suggestion;

/// The words, as they are written in flags and in the config file. (`adopt` is what `fairlift ublk recover` says.)
pub(crate) const WORDS: [&str; 8] =
    ["id", "queues", "depth", "unprivileged", "recover", "leave", "optional", "partitions"];

/// Reads `true`, `false`, or words with commas between them; `None`: it is no block device.
///
/// # Errors
/// What is not understood, and what would be.
pub(crate) fn parse(text: &str) -> Result<Option<Ublk>, String> {
    match text {
        "" | "true" | "on" => return Ok(Some(Ublk::default())),
        "false" | "off" => return Ok(None),
        _ => {}
    }
    let words = text.split(',').map(|word| word.split_once('=').unwrap_or((word, "true")));
    read(words.map(|(word, value)| (word.trim(), value.trim().to_owned()))).map(Some)
}

/// Reads the words of a flag, which says that exports are block devices.
///
/// # Errors
/// What is not understood, and what would be.
pub(crate) fn parse_flag(text: &str) -> Result<Ublk, String> {
    parse(text)?
        .ok_or_else(|| "takes words such as queues=2,leave, or nothing; leave the flag out for no block devices".into())
}

/// Reads words, each with its value.
///
/// # Errors
/// What is not understood, and what would be.
pub(crate) fn read<'a>(words: impl IntoIterator<Item = (&'a str, String)>) -> Result<Ublk, String> {
    let mut ublk = Ublk::default();
    for (word, value) in words {
        let number = |most: u32| {
            let number = value.parse().ok().filter(|number| *number <= most);
            number.ok_or_else(|| format!("{word} takes a number up to {most}, not \"{}\"", value.escape_debug()))
        };
        let switch = || match value.as_str() {
            "true" | "on" | "yes" | "1" => Ok(true),
            "false" | "off" | "no" | "0" => Ok(false),
            _ => Err(format!("{word} takes true or false, not \"{}\"", value.escape_debug())),
        };
        match word {
            "id" => ublk.id = Some(number((1 << 20) - 1)?),
            "queues" => ublk.queues = Some(number(64)? as u16),
            "depth" => ublk.depth = Some(number(4096)? as u16),
            "unprivileged" => ublk.unprivileged = switch()?,
            "recover" => ublk.recover = switch()?,
            "leave" => ublk.leave = switch()?,
            "optional" => ublk.optional = switch()?,
            "adopt" => ublk.adopt = switch()?,
            "partitions" => ublk.partitions = switch()?,
            _ => {
                let hint = match suggestion(word, WORDS) {
                    hint if hint.is_empty() => format!("; there are {}", WORDS.join(", ")),
                    hint => hint,
                };
                return Err(format!("unknown word \"{}\"{hint}", word.escape_debug()));
            }
        }
    }
    ublk.check().map_err(|why| why.strip_prefix("ublk: ").unwrap_or(&why).to_owned())?;
    Ok(ublk)
}

/// As it is written.
pub(crate) fn show(ublk: &Ublk) -> String {
    let Ublk { id, queues, depth, unprivileged, recover, leave, adopt, optional, partitions } = *ublk;
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
    ];
    let all: Vec<_> = all.into_iter().flatten().collect();
    if all.is_empty() { "true".into() } else { all.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(show(&parse(text).unwrap().unwrap()), text);
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
        assert!(parse_flag("off").unwrap_err().contains("leave the flag out"));
    }
}
