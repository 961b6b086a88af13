//! A qcow2 image as people write it: `qcow2:PATH`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::device::backing::{About, BackingKind, Outside, Sharing, Syntax, path_of};
use crate::device::roots::Roots;
use crate::device::{Backing, Device, Layer};

/// A qcow2 image, with the files below it. It is read, and not written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Qcow2 {
    /// Where it is.
    pub path: PathBuf,
}

pub(in crate::device) const SYNTAX: Syntax =
    Syntax { schemes: &["qcow2"], form: "qcow2:PATH", takes: "qcow2:PATH", parse };

impl BackingKind for Qcow2 {
    fn about(&self) -> About<'_> {
        let own_name = self.path.file_stem().map_or("qcow2".into(), |name| name.to_string_lossy());
        About {
            shown: format!("{}, a qcow2 image", self.path.display()),
            outlives: true,
            file: Some(&self.path),
            ..About::new(format!("qcow2:{}", self.path.display()), own_name)
        }
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        vec![&mut self.path]
    }

    /// Exports share an image, whatever they call it; one that has the file's bare bytes is another.
    fn sharing(&self, _disk: Option<usize>) -> Sharing {
        fs::metadata(&self.path)
            .map_or(Sharing::None, |metadata| Sharing::Name(format!("qcow2:{}:{}", metadata.dev(), metadata.ino())))
    }

    fn open(&self, read_only: bool, roots: &Roots) -> Result<Arc<dyn Device>, String> {
        let path = self.path.display();
        if read_only {
            return Ok(self.open_below(roots)?);
        }
        Err(format!(
            "a qcow2 image is read, and not written: write over it (overlay:base=qcow2:{path},top=NEW.top), or export it read-only"
        ))
    }

    fn open_below(&self, roots: &Roots) -> Result<Arc<dyn Layer>, String> {
        opened(&self.path, roots)
    }
}

#[cfg(feature = "qcow2")]
fn opened(path: &Path, roots: &Roots) -> Result<Arc<dyn Layer>, String> {
    Ok(Arc::new(super::image::QcowImage::open(path, roots)?))
}

#[cfg(not(feature = "qcow2"))]
fn opened(path: &Path, _roots: &Roots) -> Result<Arc<dyn Layer>, String> {
    let path = path.display();
    Err(format!(
        "this program was built without qcow2 (cargo's feature \"qcow2\"): use one that has it, or convert the image (qemu-img convert -O raw {path} NEW.img)"
    ))
}

fn parse(text: &str, _: &Outside) -> Result<Backing, String> {
    Ok(Qcow2 { path: path_of(text, || "qcow2: needs a path: qcow2:PATH".into())? }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::backing::tests::OUTSIDE;

    #[test]
    fn an_image_is_named_by_its_path_and_is_read_only() {
        let parsed = Backing::parse("qcow2:images/debian,12.qcow2", &OUTSIDE).unwrap();
        let about = parsed.about();
        assert_eq!((&*about.written, &*about.own_name), ("qcow2:images/debian,12.qcow2", "debian,12"));
        assert!(parse("", &OUTSIDE).unwrap_err().contains("needs a path"));
        let Err(error) = parsed.open(false, &Roots::default()) else { panic!("it is not written") };
        assert!(error.to_string().contains("overlay:base=qcow2:images/debian,12.qcow2,top="), "{error}");
    }
}
