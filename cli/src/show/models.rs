//! `fairlift models`.

use std::fmt::Write as _;

use fairlift_lab::model::{Spec, profiles};

use crate::terminal::columns::{SettingRow, pairs, write_rows};

/// The modelled disks, or one with its parameters.
pub(crate) fn models(only: Option<&str>) -> Result<String, String> {
    let mut out = String::new();
    let Some(name) = only else {
        pairs(&mut out, &profiles().map(|profile| (profile.name, profile.about)).collect::<Vec<_>>());
        out.push_str("\n`fairlift models MODEL` lists the parameters of a model, as in sim:MODEL,size=100g\n");
        return Ok(out);
    };
    let name = name.strip_prefix("sim:").unwrap_or(name);
    let spec = Spec::parse(name)?;
    let about = profiles().find(|profile| profile.name == spec.name).map_or("", |profile| profile.about);
    let _ = writeln!(out, "sim:{}: {about}", spec.name);
    let mut rows = vec![SettingRow {
        name: "size".into(),
        default: format!("{:.1} GB", spec.size as f64 / 1e9),
        takes: "bytes in whole sectors, as 500g or 1t (powers of 1024), up to 64t".into(),
        says: "the capacity".into(),
    }];
    rows.extend(spec.settings.infos().iter().map(|info| SettingRow::new(info, spec.settings.get(info.name))));
    write_rows(&mut out, &rows);
    Ok(out)
}
