//! An image of a Ceph cluster, as people write it: `rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT][,user=USER][,conf=PATH][,timeout=TIME]`.

use std::path::PathBuf;
use std::sync::Arc;

use fairlift_core::Duration;
use fairlift_core::time::secs;

use crate::ceph::Login;
use crate::device::backing::{About, BackingKind, Options, Outside, Sharing, Syntax};
use crate::device::roots::Roots;
use crate::device::{Backing, Device};

/// As long as a request may be in a device by default (`io_timeout`).
const TIMEOUT: Duration = secs(30);

/// An image of a Ceph cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rbd {
    /// `rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT]`, however the namespace was written.
    pub name: String,
    /// The pool.
    pub pool: String,
    /// The namespace within it.
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// A snapshot of it, which cannot be written.
    pub snapshot: Option<String>,
    /// How the cluster is reached.
    pub login: Login,
}

pub(in crate::device) const SYNTAX: Syntax = Syntax {
    schemes: &["rbd"],
    form: "rbd:POOL/IMAGE",
    takes: "rbd:POOL/IMAGE[@SNAPSHOT][,user=USER][,conf=PATH][,namespace=NAME][,timeout=TIME]",
    parse,
};

impl BackingKind for Rbd {
    fn about(&self) -> About<'_> {
        let written = self.name.clone() + &self.login.written(TIMEOUT);
        About { written, outlives: true, ..About::new(self.name.clone(), self.image.as_str()) }
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        self.login.conf.iter_mut().collect()
    }

    fn sharing(&self, _disk: Option<usize>) -> Sharing {
        // Another cluster may have an image of that name, too.
        Sharing::Name(format!("{} of {}", self.name, self.login.conf().display()))
    }

    fn open(&self, read_only: bool, _roots: &Roots) -> Result<Arc<dyn Device>, String> {
        Ok(Arc::new(super::Rbd::open(self, read_only)?))
    }
}

fn parse(text: &str, _: &Outside) -> Result<Backing, String> {
    const FORM: &str = "rbd:POOL/IMAGE, with @SNAPSHOT behind it if one is meant";
    let options = Options::new("rbd", &["user", "conf", "namespace", "timeout"], text)?;
    let place = options.main;
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
    let namespace = match (namespace, options.text("namespace")?) {
        (Some(_), Some(_)) => return Err(format!("rbd: \"{place}\" has a namespace already")),
        (one, other) => one.or(other),
    };
    let path: Vec<&str> = [Some(pool), namespace, Some(image)].into_iter().flatten().collect();
    let behind = snapshot.map_or(String::new(), |snapshot| format!("@{snapshot}"));
    Ok(Rbd {
        name: format!("rbd:{}{behind}", path.join("/")),
        pool: pool.into(),
        namespace: namespace.map(str::to_owned),
        image: image.into(),
        snapshot: snapshot.map(str::to_owned),
        login: Login::new(options.text("user")?, options.text("conf")?, options.get("timeout"), TIMEOUT)
            .map_err(|why| format!("rbd: {why}"))?,
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::backing::tests::OUTSIDE;

    fn rbd(text: &str) -> Rbd {
        match parse(text, &OUTSIDE) {
            Ok(Backing::Rbd(rbd)) => *rbd,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_image_is_named_as_ceph_names_it() {
        let plain = rbd("vms/alice");
        assert_eq!((plain.name.as_str(), plain.pool.as_str(), plain.image.as_str()), ("rbd:vms/alice", "vms", "alice"));
        assert_eq!((plain.namespace, plain.snapshot, plain.login.user, plain.login.conf), (None, None, None, None));
        let odd = rbd("vms/tenant/alice@monday,user=client.gateway,conf=/etc/c.conf,timeout=5s");
        assert_eq!((odd.namespace.as_deref(), odd.snapshot.as_deref()), (Some("tenant"), Some("monday")));
        assert_eq!((odd.login.user.as_deref(), odd.login.timeout), (Some("gateway"), secs(5)));
        for text in ["vms/alice", "vms/t/alice@s,user=g,conf=/c,timeout=1500us", "vms/alice,namespace=t"] {
            assert_eq!(rbd(rbd(text).about().written.strip_prefix("rbd:").unwrap()), rbd(text), "{text}");
        }
        assert_eq!(rbd("vms/a,conf=c.conf").paths(), [&PathBuf::from("c.conf")]);
    }

    /// One image is one device for all its exports, and nothing else is.
    #[test]
    fn images_of_one_name_in_two_namespaces_or_clusters_are_two() {
        let sharing = |text: &str| rbd(text).sharing(None);
        let all = ["vms/alice", "vms/alice,namespace=t1", "vms/alice,namespace=t2", "vms/alice,conf=/etc/ceph/b.conf"];
        for (at, one) in all.iter().enumerate() {
            all[at + 1..].iter().for_each(|other| assert_ne!(sharing(one), sharing(other), "{one}, {other}"));
        }
        assert_eq!(sharing("vms/t1/alice"), sharing("vms/alice,namespace=t1"));
        assert_eq!(sharing("vms/alice,user=x,timeout=5s"), sharing("vms/alice,conf=/etc/ceph/ceph.conf"));
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
            ("vms/alice,timeout=0s", "takes 1ms or more"),
            ("vms/t/alice,namespace=u", "has a namespace already"),
        ] {
            let says = parse(text, &OUTSIDE).expect_err(text);
            assert!(says.contains(why), "{text}: {says}");
        }
    }
}
