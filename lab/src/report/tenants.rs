//! Situations of tenants as tables: the result of each tenant beside its entitlement.

use super::summary::{RunRow, Sets, rows, workloads};
use super::{heading, printable};
use crate::result::{Group, Results, Tenant, Together};

/// The headings of a situation's table.
pub(super) const COLUMNS: [&str; 8] = ["tenant", "weight", "does", "alone", "entitled", "rate", "achieved", "p99 us"];

/// The headings of the table of all situations.
pub(super) const OVERVIEW: [&str; 4] = ["situation", "isolation", "use", "share error"];

/// Whether a row is of a situation.
pub(super) fn is_situation(row: &RunRow<'_>) -> bool {
    row.runs.together.is_some()
}

/// A line for each tenant.
pub(super) fn lines(row: &RunRow<'_>) -> Vec<[String; 8]> {
    let line = |group: &Sets<'_, Group>| {
        let tenant = group.part(|group| group.tenant.as_ref())?;
        Some([
            heading(&group.path),
            group.weight.to_string(),
            printable(&tenant.does),
            format!("{:.0}", tenant.over(alone).mean),
            format!("{:.3}", tenant.over(|one| one.entitled).mean),
            format!("{:.0}", group.over(|one| one.iops).mean),
            format!("{:.2}", tenant.over(|one| one.achieved).mean),
            format!("{:.0}", group.over(|one| one.lat_p99_us).mean),
        ])
    };
    row.groups().iter().filter_map(line).collect()
}

/// Operations a second of a tenant alone.
pub(super) fn alone(tenant: &Tenant) -> f64 {
    tenant.demand * tenant.capacity
}

/// Isolation, use and share error of a situation: `0.21`, `0.69`, and `1.2 %` if there is one.
pub(super) fn figures(row: &RunRow<'_>) -> Option<(String, String, Option<String>)> {
    let together = row.runs.part(|run| run.together.as_ref())?;
    let mean = |figure| format!("{:.2}", together.over(figure).mean);
    let error = together.part(|one| one.share_error_1s.as_ref());
    let error = error.map(|error| format!("{:.1} %", error.over(|error| *error).mean * 100.0));
    Some((mean(|one: &Together| one.isolation), mean(|one| one.used), error))
}

/// `isolation 0.21  use 0.69  share error 1.2 %`.
pub(super) fn says(row: &RunRow<'_>) -> String {
    let Some((isolation, used, error)) = figures(row) else { return String::new() };
    let error =
        error.map_or(String::new(), |error| format!("  share error of saturating tenants over any second {error}"));
    format!("isolation {isolation}  use {used}{error}")
}

/// A line for each situation of the results, if there are several.
pub(super) fn overview(results: &Results) -> Vec<[String; 4]> {
    let all = workloads(results).into_iter().flat_map(|workload| rows(results, workload));
    let line = |row: RunRow<'_>| {
        let (isolation, used, error) = figures(&row)?;
        Some([row.name(), isolation, used, error.unwrap_or("-".into())])
    };
    let lines: Vec<_> = all.filter_map(line).collect();
    if lines.len() > 1 { lines } else { Vec::new() }
}

/// Lines as text: columns as wide as they must be; those of names to the left, of figures to the right.
pub(super) fn laid_out<const N: usize>(heads: [&str; N], lines: &[[String; N]], names: &[usize]) -> String {
    let length = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..N)
        .map(|column| lines.iter().map(|line| length(&line[column])).chain([length(heads[column])]).max().unwrap_or(0))
        .collect();
    let shown = |cells: [&str; N]| {
        let cells = cells.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if names.contains(&column) { format!("{cell:width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let heads = shown(heads);
    let mut out = format!("{heads}\n{}\n", "-".repeat(length(&heads)));
    for line in lines {
        out.push_str(&shown(std::array::from_fn(|column| line[column].as_str())));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::report::fixture::{results, situation};
    use crate::report::html::html;
    use crate::report::table::table;

    #[test]
    fn a_situation_is_a_table_with_a_row_for_each_tenant_and_several_have_a_table_of_all() {
        let mut results = results(&[]);
        results.runs = vec![situation("tenants:a")];
        let text = table(&results, false);
        let expected = "\
tenants:a
tenant  weight  does             alone  entitled  rate  achieved  p99 us
------------------------------------------------------------------------
cgrp1      100  randread 4k x32    900     0.250    25      1.50    1000
cgrp2      300  randread 4k x32    900     0.750    75      0.50    2000
isolation 0.50  use 0.75  share error of saturating tenants over any second 50.0 %
";
        assert!(text.ends_with(expected), "{text}");
        results.runs.push(situation("tenants:b"));
        let text = table(&results, false);
        let expected = "\
situation  isolation   use  share error
---------------------------------------
tenants:a       0.50  0.75       50.0 %
tenants:b       0.50  0.75       50.0 %
";
        assert!(text.ends_with(expected), "{text}");
        assert_eq!(text.matches("WEIGHTS=").count(), 0, "each situation has weights of its own: {text}");
    }

    #[test]
    fn the_page_has_a_bar_for_each_tenant_and_compares_isolation() {
        let mut results = results(&[]);
        results.runs = vec![situation("tenants:a"), situation("tenants:b")];
        let page = html(std::slice::from_ref(&results));
        assert_eq!(page.matches(": achieved 0.50: ").count(), 2, "the second tenant of each");
        assert!(page.contains("Achieved by each tenant") && page.contains("All situations"));
        assert!(html(&[results.clone(), results]).contains("<td>0.50 / 0.75</td>"));
    }
}
