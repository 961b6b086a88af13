//! The page as a whole.

use super::*;
use crate::report::fixture::{results, run, swept};
use crate::result::Host;

fn filled() -> Results {
    let mut results = results(&[100, 200]);
    for jobs in [1, 2, 4, 8] {
        for set in 1..=2 {
            let more = f64::from(jobs * set);
            results.runs.push(run("bsr", set, jobs, &[(100, 100_000.0 + more), (200, 200_000.0)]));
        }
    }
    results.baseline = vec![run("bsr", 1, 8, &[(100, 200_000.0), (200, 200_000.0)])];
    results
}

/// page.2: every tag that opens is closed in its turn, attributes are in quotes, and entities are known.
#[track_caller]
fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>\n").expect("a document type");
    while let Some(at) = rest.find('<') {
        let (text, tag) = rest.split_at(at);
        assert!(!text.contains('>'), "a stray > in {text:?}");
        for entity in text.split('&').skip(1) {
            let known = ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|name| entity.starts_with(name));
            assert!(known, "a stray & in {text:?}");
        }
        let end = tag.find('>').unwrap_or_else(|| panic!("{tag:.40} has no end"));
        let inside = &tag[1..end];
        rest = &tag[end + 1..];
        assert!(!inside.contains('<') && inside.matches('"').count() % 2 == 0, "<{inside}>");
        let name = inside.split([' ', '/']).find(|word| !word.is_empty()).unwrap_or_default();
        if inside.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes");
        } else if !inside.ends_with('/') {
            open.push(name);
        }
        if name == "style" && !inside.starts_with('/') {
            rest = &rest[rest.find("</style>").expect("styles end")..];
        }
    }
    assert_eq!(open, Vec::<&str>::new(), "never closed");
}

#[test]
fn a_sweep_is_shown_as_results_beside_each_other_with_what_fairness_costs() {
    let swept = swept();
    let page = html(std::slice::from_ref(&swept));
    assert_well_formed(&page);
    for phrase in [
        "<b>Frontier of bsr</b>",
        "<title>cfq slice_idle=0, 1 job: 0.5 MiB/s, largest share error 100.0 %</title>",
        "<title>cfq slice_idle=8ms, 4 jobs: 0.4 MiB/s, largest share error 0.0 %</title>",
        "<h2>sim:eva-raid5-12 with cfq slice_idle=8ms</h2>",
    ] {
        assert!(page.contains(phrase), "{phrase}");
    }
    let parts = swept.by_settings();
    let settings: Vec<_> = parts.iter().map(|part| part.settings["slice_idle"].as_str()).collect();
    assert_eq!(settings, ["0", "8ms"]);
    assert_eq!(parts[1].runs, swept.runs[2..]);
    assert!(!html(&[filled()]).contains("Frontier"), "one result costs nothing");
}

#[test]
fn the_page_is_well_formed_and_has_every_plot_and_table() {
    let page = html(&[filled()]);
    assert_well_formed(&page);
    for phrase in ["Throughput by jobs", "Shares against weights", "Latency", "Groups in service", "AVERAGE", "SPREAD"]
    {
        assert!(page.contains(phrase), "{phrase}");
    }
    // Four numbers of jobs and the baseline: a bar for each group in two plots.
    assert_eq!(page.matches("<rect class=\"bar ").count(), 2 * 5 * 2);
    assert_eq!(page.matches("<path class=\"curve ").count(), 5);
    assert_eq!(page.matches("<path class=\"area ").count(), 4 * 2);
    assert!(page.contains("fairlift iostest --device sim:eva-raid5-12 -G --weights 100,200 --seed 1"));
}

/// page.1
#[test]
fn the_page_refers_to_nothing_outside() {
    let page = html(&[filled()]);
    for word in ["http", "src=", "href", "@import", "url(", "<script", "<link"] {
        assert!(!page.contains(word), "{word}");
    }
}

/// page.2, report.2
#[test]
fn text_from_outside_is_escaped_wherever_it_stands() {
    let evil = "\"'><script>alert(1)</script>&lt;\u{0}";
    let mut results = filled();
    results.device = evil.into();
    results.scheduler = evil.into();
    results.version = evil.into();
    results.host = Some(Host { name: evil.into(), kernel: evil.into() });
    results.command = evil.into();
    results.settings.insert(evil.into(), evil.into());
    for run in results.runs.iter_mut().chain(&mut results.baseline) {
        run.workload = evil.into();
        run.groups[0].path = evil.into();
    }
    let page = html(&[results.clone(), results]);
    assert_well_formed(&page);
    assert!(!page.contains("<script") && !page.contains('\u{0}'));
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn several_results_are_compared_at_the_top() {
    let mut other = filled();
    other.scheduler = "none".into();
    let page = html(&[filled(), other]);
    assert_well_formed(&page);
    let (head, _) = page.split_once("<h2>").unwrap();
    assert_eq!(head.matches("<tr>").count(), 1 + 4, "the headings, and each scheduler with its baseline");
    assert_eq!(head.matches("<path class=\"curve ").count(), 4 + 4, "and in the frontier one for each number of jobs");
    assert_eq!(head.matches("<circle ").count(), 2 * (4 + 1) + 2 * 4, "each number of jobs that was measured");
}

/// Results of one device and scheduler are told apart by their differences, or by a number.
#[test]
fn compared_results_are_called_by_what_differs() {
    let with = |value: &str| {
        let mut results = filled();
        results.settings.insert("slice_idle".into(), value.into());
        results
    };
    let distinctions = distinctions::distinctions;
    assert_eq!(distinctions(&[with("0"), with("8ms")]), [" slice_idle=0", " slice_idle=8ms"]);
    assert_eq!(distinctions(&[with("0"), with("0")]), [" no. 1", " no. 2"]);
    let other = Results { scheduler: "none".into(), ..with("8ms") };
    assert_eq!(distinctions(&[with("0"), other]), ["", ""], "the scheduler tells");
    let page = html(&[with("0"), with("8ms")]);
    assert!(page.contains("sim:eva-raid5-12, cfq slice_idle=8ms"));
    let limited = Results { limits: [("/g1".to_owned(), "max riops=300".to_owned())].into(), ..with("0") };
    assert_eq!(distinctions(&[with("0"), limited.clone()]), ["", " limits=/g1: max riops=300"]);
    assert!(html(&[limited]).contains("<dt>Limits</dt><dd>/g1: max riops=300</dd>"), "the page has them all the same");
    let host = |name: &str| Results { host: Some(Host { name: name.into(), kernel: "6.12".into() }), ..with("0") };
    assert_eq!(distinctions(&[host("a"), host("b")]), [" host=a", " host=b"]);
    let mut longer = with("0");
    longer.runs.iter_mut().for_each(|run| run.runtime_s = 60.0);
    assert_eq!(distinctions(&[with("0"), longer]), [" runtime=30s", " runtime=60s"]);
    let mut heavy = with("0");
    heavy.runs.iter_mut().for_each(|run| run.groups[1].weight = 900);
    assert_eq!(distinctions(&[with("0"), heavy]), [" weights=100,200", " weights=100,900"]);
}

#[test]
fn results_without_runs_or_figures_make_a_page() {
    assert_well_formed(&html(&[]));
    let mut empty = results(&[]);
    empty.interrupted = true;
    assert!(html(&[empty.clone()]).contains("Interrupted"));
    let mut none = run("bsr", 1, 1, &[]);
    none.timeline.clear();
    none.latencies.clear();
    empty.runs = vec![none, run("bsr", 1, 2, &[(100, 0.0), (100, 0.0)])];
    let page = html(&[empty]);
    assert_well_formed(&page);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn the_same_results_make_the_same_page() {
    assert_eq!(html(&[filled()]), html(&[filled()]));
}
