//! The places where clients connect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::listen::Listening;

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
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another certificate in place. A certificate is only ever replaced: clients of a listener which has gone may still want one.
    pub(crate) fn set_tls(&self, tls: Arc<rustls::ServerConfig>) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = Some(with_keys(tls));
    }

    pub(crate) fn list(&self) -> BTreeMap<usize, Arc<Listening>> {
        self.places().clone()
    }

    /// One more; [`Service::changed`](super::service::Service::changed) is to be called then.
    pub(crate) fn add(&self, listening: Listening, number: usize) {
        self.places().insert(number, Arc::new(listening));
    }

    /// One less; [`Service::changed`](super::service::Service::changed) is to be called then. The place is free when the returned listener
    /// is dropped.
    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Listening>> {
        let mut places = self.places();
        let number = places.iter().find(|(_, place)| place.name == name).map(|(number, _)| *number)?;
        places.remove(&number)
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<Listening>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same, so that the kernel can be given the keys of a connection ([`kernel::ktls`](crate::kernel::ktls)).
fn with_keys(tls: Arc<rustls::ServerConfig>) -> Arc<rustls::ServerConfig> {
    let mut tls = Arc::unwrap_or_clone(tls);
    tls.enable_secret_extraction = true;
    tls.into()
}
