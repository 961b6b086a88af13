//! The tables of parameters in `docs/models.md` and `docs/models-flash.md` are those of the code: `UPDATE_DOCS=1 cargo test -p fairlift-lab` writes them.

use std::fmt::Write as _;
use std::path::Path;

use fairlift_lab::model::{Profile, Settings, profiles};

const BEGIN: &str = "<!-- parameters: made from the rows in lab/src/model -->\n";
const END: &str = "<!-- end of parameters -->\n";

fn profiles_of(of: impl Fn(&Settings) -> bool) -> Vec<&'static Profile> {
    profiles().filter(|profile| of(&(profile.settings)())).collect()
}

/// The names of the parameters of some profiles of one kind.
fn names(profiles: &[&Profile]) -> Vec<&'static str> {
    (profiles[0].settings)().infos().iter().map(|info| info.name).collect()
}

/// A row for each parameter of the first profile that is not in another table; a column for each profile.
fn table(title: &str, says: &str, profiles: &[&Profile], elsewhere: &[&str]) -> String {
    let names: Vec<_> = profiles.iter().map(|profile| format!("`{}`", profile.name)).collect();
    let mut table = format!("### {title}\n\n{says}| name | {} | takes | meaning |\n", names.join(" | "));
    table += &format!("|---{}|---|---|\n", "|---".repeat(names.len()));
    for info in (profiles[0].settings)().infos().iter().filter(|info| !elsewhere.contains(&info.name)) {
        let values: Vec<_> = profiles.iter().map(|profile| (profile.settings)().get(info.name).unwrap()).collect();
        let takes = info.range.to_string().replace(" (a bare number counts ms)", "");
        writeln!(table, "| `{}` | {} | {takes} | {} |", info.name, values.join(" | "), info.says).unwrap();
    }
    table + "\n"
}

fn check(name: &str, tables: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the tables have their place");
    let (_, after) = rest.split_once(END).expect("the tables have an end");
    let made = format!("{before}{BEGIN}\n{tables}{END}{after}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &made).unwrap();
    } else {
        assert!(made == text, "docs/{name} is out of date: UPDATE_DOCS=1 cargo test -p fairlift-lab");
    }
}

#[test]
fn the_parameters_in_the_docs_are_those_of_the_code() {
    let hard_disks = profiles_of(|settings| matches!(settings, Settings::HardDisk(_)));
    let arrays = profiles_of(|settings| matches!(settings, Settings::Raid(_)));
    let of_disks = names(&hard_disks);
    let disks = "An array is made of such disks; its column has theirs.\n\n";
    let of_array = "Besides those of its disks:\n\n";
    check(
        "models.md",
        &(table("Hard disks", disks, &[&hard_disks[..], &arrays].concat(), &[])
            + &table("Arrays", of_array, &arrays, &of_disks)),
    );

    let plain = |title, of: fn(&Settings) -> bool| table(title, "", &profiles_of(of), &[]);
    let flash = plain("Solid-state disks", |settings| matches!(settings, Settings::Ssd(_)))
        + &plain("Virtual disks", |settings| matches!(settings, Settings::Virtio(_)))
        + &plain("Clusters", |settings| matches!(settings, Settings::Networked(_)));
    check("models-flash.md", &flash);
}
