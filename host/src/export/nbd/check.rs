//! Checks of a client's request: everything that can be wrong with it before anything is done about it.

use fairlift_core::{Errno, Op};

use super::handshake::Session;
use super::proto::{self, Command as Verb, RequestHeader};
use crate::export::Export;

/// A mistake in a request: the error, and the reason for people.
pub(super) fn check(
    header: &RequestHeader,
    export: &Export,
    session: &Session,
    request_max: u32,
) -> Result<(), (Errno, String)> {
    let invalid = |why: String| Err((Errno::EINVAL, why));
    let RequestHeader { flags, command, offset, length, .. } = *header;
    // FUA is taken on any command once offered; the others belong to theirs.
    let allowed = proto::CMD_FLAG_FUA
        | match command {
            Verb::Read if session.structured => proto::CMD_FLAG_DF,
            Verb::Write if session.extended => proto::CMD_FLAG_PAYLOAD_LEN,
            Verb::WriteZeroes => proto::CMD_FLAG_NO_HOLE | proto::CMD_FLAG_FAST_ZERO,
            Verb::BlockStatus => proto::CMD_FLAG_REQ_ONE,
            Verb::Unknown(number) => return invalid(format!("unknown command {number}")),
            _ => 0,
        };
    if flags & !allowed != 0 {
        return invalid(format!("unknown flags {:#x} for {command:?}", flags & !allowed));
    }
    if command == Verb::Write && header.payload_len(session.extended) != length {
        return invalid(
            "with extended headers a write says by NBD_CMD_FLAG_PAYLOAD_LEN that its payload follows".into(),
        );
    }
    let writes = matches!(command, Verb::Write | Verb::Trim | Verb::WriteZeroes);
    if writes && export.read_only {
        return Err((Errno::EPERM, format!("export \"{}\" is read-only", export.name)));
    }
    let most = match command {
        Verb::Flush => return Ok(()),
        Verb::Trim => export.facts.limits.max(Op::Discard),
        Verb::WriteZeroes => export.facts.limits.max(Op::WriteZeroes),
        _ => u64::MAX,
    };
    if most == 0 {
        return Err((Errno::ENOTSUP, format!("{command:?} was not offered: the disk of this export cannot do it")));
    }
    if offset.checked_add(length).is_none_or(|end| end > export.size) {
        // The protocol wants these two told apart.
        let errno = if writes && command != Verb::Trim { Errno::ENOSPC } else { Errno::EINVAL };
        return Err((errno, format!("{length} bytes at {offset} asked of an export of {}", export.size)));
    }
    if length == 0 && command == Verb::BlockStatus {
        return invalid("a status of nothing".into());
    }
    if matches!(command, Verb::Read | Verb::Write) && length > u64::from(request_max) {
        let most = request_max >> 10;
        return invalid(format!("{length} bytes refused: this export serves at most {most} KiB at once (request_max)"));
    }
    if command == Verb::BlockStatus && session.contexts.is_none() {
        return invalid("no metadata context was negotiated".into());
    }
    Ok(())
}
