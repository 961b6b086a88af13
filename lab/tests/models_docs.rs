//! The tables of parameters in `docs/models.md` are those of the code: `UPDATE_DOCS=1 cargo test -p fairlift-lab` writes them.

use std::fmt::Write as _;
use std::path::Path;

use fairlift_lab::model::{Profile, Settings, profiles};

const BEGIN: &str = "<!-- parameters: made from the rows in lab/src/model -->\n";
const END: &str = "<!-- end of parameters -->\n";

fn table(title: &str, of: impl Fn(&Settings) -> bool) -> String {
    let profiles: Vec<&Profile> = profiles().filter(|profile| of(&(profile.settings)())).collect();
    let names: Vec<_> = profiles.iter().map(|profile| format!("`{}`", profile.name)).collect();
    let mut table = format!("### {title}\n\n| name | {} | takes | meaning |\n", names.join(" | "));
    table += &format!("|---{}|---|---|\n", "|---".repeat(names.len()));
    for info in (profiles[0].settings)().infos() {
        let values: Vec<_> = profiles.iter().map(|profile| (profile.settings)().get(info.name).unwrap()).collect();
        writeln!(table, "| `{}` | {} | {} | {} |", info.name, values.join(" | "), info.range, info.says).unwrap();
    }
    table + "\n"
}

#[test]
fn the_parameters_in_the_docs_are_those_of_the_code() {
    let tables = table("Hard disks", |settings| matches!(settings, Settings::HardDisk(_)))
        + &table("Arrays", |settings| matches!(settings, Settings::Raid(_)))
        + &table("Solid-state disks", |settings| matches!(settings, Settings::Ssd(_)))
        + &table("Virtual disks", |settings| matches!(settings, Settings::Virtio(_)))
        + &table("Clusters", |settings| matches!(settings, Settings::Networked(_)));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/models.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the tables have their place");
    let (_, after) = rest.split_once(END).expect("the tables have an end");
    let made = format!("{before}{BEGIN}\n{tables}{END}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &made).unwrap();
    } else {
        assert!(made == text, "docs/models.md is out of date: UPDATE_DOCS=1 cargo test -p fairlift-lab");
    }
}
