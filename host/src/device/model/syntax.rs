//! A modelled disk, as people write it: `sim:PROFILE[,size=SIZE][,parameter=VALUE…]`.

use std::sync::Arc;

use fairlift_core::model::Model;
use fairlift_core::units::show_size;

use super::Modelled;
use crate::device::Device;
use crate::device::backing::{About, BackingKind, Opaque, Sharing, Syntax};
use crate::device::roots::Roots;

/// RAM that takes as long as a modelled disk would.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sim {
    /// The model, as the user wrote it: `sata-7200,size=100G`.
    pub name: String,
    /// Its size in bytes, as the model's limits say it.
    pub size: u64,
    /// Makes the model, at rest.
    pub model: Factory,
}

/// Makes the model of a [`Sim`]: each time that the backing is opened, a new one, at rest.
pub type Factory = Opaque<Arc<dyn Fn() -> Box<dyn Model> + Send + Sync>>;

impl Factory {
    /// A factory that calls `build`.
    pub fn new(build: impl Fn() -> Box<dyn Model> + Send + Sync + 'static) -> Self {
        Self(Arc::new(build))
    }

    /// A new model.
    #[must_use]
    pub fn build(&self) -> Box<dyn Model> {
        (self.0)()
    }
}

pub(in crate::device) const SYNTAX: Syntax = Syntax {
    schemes: &["sim"],
    form: "sim:PROFILE",
    takes: "sim:PROFILE[,size=SIZE]",
    parse: |text, outside| {
        let (size, model) = (outside.model)(text)?;
        Ok(Sim { name: text.into(), size, model }.into())
    },
};

impl BackingKind for Sim {
    fn about(&self) -> About<'_> {
        let profile = self.name.split(',').next().unwrap_or_default();
        let shown = format!("modelled {profile}, {}", show_size(self.size));
        About { shown, size: Some(self.size), ..About::new(format!("sim:{}", self.name), profile) }
    }

    fn sharing(&self, disk: Option<usize>) -> Sharing {
        disk.map_or(Sharing::None, |disk| Sharing::Name(format!("sim:{} on disk {disk}", self.name)))
    }

    fn open(&self, _read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, String> {
        let opened = Modelled::new(&self.name, self.model.build(), roots.unnamed()?);
        Ok(Arc::new(opened.map_err(|error| error.to_string())?))
    }
}
