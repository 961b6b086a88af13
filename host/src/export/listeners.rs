//! The places where clients connect.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::listen::Listening;
use crate::sync::{Mutex, lock};

pub(crate) struct Listeners {
    /// By numbers that do not come again.
    list: Mutex<BTreeMap<usize, Arc<Listening>>>,
    tls: Mutex<Option<Arc<rustls::ServerConfig>>>,
}

impl Listeners {
    pub(crate) fn new(list: Vec<Listening>, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        Self {
            list: Mutex::new(list.into_iter().map(Arc::new).enumerate().collect()),
            tls: Mutex::new(tls.map(with_keys)),
        }
    }

    /// The certificate for a connection that becomes encrypted.
    pub(crate) fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        lock(&self.tls).clone()
    }

    /// Puts another certificate in place. A certificate is only ever replaced: clients of a listener which has gone may still want one.
    pub(crate) fn set_tls(&self, tls: Arc<rustls::ServerConfig>) {
        *lock(&self.tls) = Some(with_keys(tls));
    }

    pub(crate) fn list(&self) -> BTreeMap<usize, Arc<Listening>> {
        lock(&self.list).clone()
    }

    /// One more; [`Service::changed`](super::service::Service::changed) is to be called then.
    pub(crate) fn add(&self, listening: Listening, number: usize) {
        lock(&self.list).insert(number, Arc::new(listening));
    }

    /// One less; [`Service::changed`](super::service::Service::changed) is to be called then. The place is free when the returned listener
    /// is dropped.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Listening>> {
        lock(&self.list).extract_if(.., |_, place| place.name == name).next().map(|(_, place)| place)
    }
}

/// The same, so that the kernel can be given the keys of a connection ([`kernel::ktls`](crate::kernel::ktls)).
fn with_keys(tls: Arc<rustls::ServerConfig>) -> Arc<rustls::ServerConfig> {
    let mut tls = Arc::unwrap_or_clone(tls);
    tls.enable_secret_extraction = true;
    tls.into()
}
