//! An image of a Ceph cluster, as people write it: `rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT][,user=USER][,conf=PATH][,timeout=TIME]`.

use std::path::Path;

use fairlift::config::{Backing, Rbd};
use fairlift_core::Duration;
use fairlift_core::time::secs;
use fairlift_lab::suggestion;

use super::units::parse_time;

/// As long as a request may be in a device by default (`io_timeout`).
const TIMEOUT: Duration = secs(30);

const OPTIONS: [&str; 4] = ["user", "conf", "namespace", "timeout"];

/// Reads a backing, without its `rbd:`.
///
/// # Errors
/// It is malformed: what, and what is possible.
pub(crate) fn parse(text: &str) -> Result<Backing, String> {
    const FORM: &str = "rbd:POOL/IMAGE, with @SNAPSHOT behind it if one is meant";
    let mut parts = text.split(',');
    let place = parts.next().unwrap_or_default();
    let (path, snapshot) = place.split_once('@').map_or((place, None), |(path, snapshot)| (path, Some(snapshot)));
    let names: Vec<&str> = path.split('/').collect();
    let (pool, namespace, image) = match names[..] {
        [pool, image] => (pool, None, image),
        [pool, namespace, image] => (pool, Some(namespace), image),
        _ => return Err(format!("rbd: \"{place}\" names no pool and image: {FORM}")),
    };
    if [Some(pool), namespace, Some(image), snapshot].iter().flatten().any(|name| name.is_empty()) {
        return Err(format!("rbd: \"{place}\" has an empty name: {FORM}"));
    }
    let mut rbd = Rbd {
        name: format!("rbd:{place}"),
        pool: pool.into(),
        namespace: namespace.map(str::to_owned),
        image: image.into(),
        snapshot: snapshot.map(str::to_owned),
        user: None,
        conf: None,
        timeout: TIMEOUT,
    };
    let mut given = Vec::new();
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if given.contains(&key) {
            return Err(format!("rbd: {key} is given twice"));
        }
        given.push(key);
        match key {
            "timeout" => rbd.timeout = parse_time(value).map_err(|why| format!("rbd: timeout: {why}"))?,
            _ if !OPTIONS.contains(&key) => {
                let other = suggestion(key, OPTIONS);
                return Err(format!("unknown option \"{key}\": rbd: takes {}{other}", OPTIONS.join(", ")));
            }
            _ if value.is_empty() => return Err(format!("rbd: {key} needs a value")),
            "user" => rbd.user = Some(value.strip_prefix("client.").unwrap_or(value).into()),
            "conf" => rbd.conf = Some(value.into()),
            _ => rbd.namespace = Some(value.into()),
        }
    }
    Ok(Backing::Rbd(Box::new(rbd)))
}

/// As it is written.
pub(crate) fn write(rbd: &Rbd) -> String {
    let mut text = rbd.name.clone();
    if let Some(user) = &rbd.user {
        text += &format!(",user={user}");
    }
    if let Some(conf) = &rbd.conf {
        text += &format!(",conf={}", conf.display());
    }
    if let Some(namespace) = rbd.namespace.as_ref().filter(|_| rbd.name.matches('/').count() == 1) {
        text += &format!(",namespace={namespace}");
    }
    if rbd.timeout != TIMEOUT {
        text += &format!(",timeout={}ms", rbd.timeout.as_millis());
    }
    text
}

/// With its path starting at `dir`.
pub(crate) fn rooted(mut rbd: Rbd, dir: &Path) -> Rbd {
    rbd.conf = rbd.conf.map(|conf| dir.join(conf));
    rbd
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rbd(text: &str) -> Rbd {
        match parse(text) {
            Ok(Backing::Rbd(rbd)) => *rbd,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_image_is_named_as_ceph_names_it() {
        let plain = rbd("vms/alice");
        assert_eq!((plain.name.as_str(), plain.pool.as_str(), plain.image.as_str()), ("rbd:vms/alice", "vms", "alice"));
        assert_eq!((plain.namespace, plain.snapshot, plain.user, plain.conf), (None, None, None, None));
        let odd = rbd("vms/tenant/alice@monday,user=client.gateway,conf=/etc/c.conf,timeout=5s");
        assert_eq!((odd.namespace.as_deref(), odd.snapshot.as_deref()), (Some("tenant"), Some("monday")));
        assert_eq!((odd.user.as_deref(), odd.timeout), (Some("gateway"), secs(5)));
        for text in ["vms/alice", "vms/t/alice@s,user=g,conf=/c,timeout=5s", "vms/alice,namespace=t"] {
            assert_eq!(rbd(write(&rbd(text)).strip_prefix("rbd:").unwrap()), rbd(text), "{text}");
        }
        assert_eq!(rooted(rbd("vms/a,conf=c.conf"), Path::new("/etc")).conf, Some("/etc/c.conf".into()));
    }

    #[test]
    fn a_bad_image_is_refused_with_what_is_possible() {
        for (text, why) in [
            ("", "names no pool and image: rbd:POOL/IMAGE"),
            ("alice", "names no pool and image"),
            ("a/b/c/d", "names no pool and image"),
            ("vms/", "an empty name"),
            ("vms/alice@", "an empty name"),
            ("vms/alice,usr=x", "did you mean \"user\"?"),
            ("vms/alice,user=", "user needs a value"),
            ("vms/alice,user=a,user=b", "given twice"),
            ("vms/alice,timeout=5", "a time needs a unit"),
        ] {
            let says = parse(text).expect_err(text);
            assert!(says.contains(why), "{text}: {says}");
        }
    }
}
