//! "Did you mean": the known word nearest to one that nobody knows, or the one that begins so.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// `; did you mean "…"?` if one of `known` begins with `word` or is near it, else nothing.
#[must_use]
pub fn suggestion<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let folded = fold_case(word);
    // A word that was not finished; a single letter says too little.
    let begun =
        known.iter().filter(|one| folded.len() > 1 && fold_case(one).starts_with(&folded)).min_by_key(|one| one.len());
    if let Some(one) = begun {
        return format!("; did you mean \"{one}\"?");
    }
    // A path's root is no misspelt path.
    let near = known
        .into_iter()
        .filter(|one| *one != "/")
        .map(|one| (distance(word, one), one.len().abs_diff(word.len()), one))
        .min();
    match near {
        // A third of the letters may differ: more is another word.
        Some((steps, _, one)) if steps <= one.chars().count().max(word.chars().count()).div_ceil(3) => {
            format!("; did you mean \"{one}\"?")
        }
        _ => String::new(),
    }
}

/// How many letters must be put in, left out, replaced, or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (fold_case(a), fold_case(b));
    // Three rows of the usual table: of the letter before last, of the last, and of this one.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = core::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Case and the sort of dash do not make a word another one; and nobody's typing errors are longer than this.
fn fold_case(word: &str) -> Vec<char> {
    word.chars().take(64).map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        let known = ["weight", "scheduler", "read_only", "size"];
        for (word, hint) in [
            ("wieght", "; did you mean \"weight\"?"),
            ("sheduler", "; did you mean \"scheduler\"?"),
            ("read-only", "; did you mean \"read_only\"?"),
            ("Size", "; did you mean \"size\"?"),
            ("sched", "; did you mean \"scheduler\"?"),
            ("s", ""),
            ("colour", ""),
            ("", ""),
        ] {
            assert_eq!(suggestion(word, known), hint, "{word}");
        }
        assert_eq!(suggestion("x", []), "");
        assert_eq!(suggestion("/y", ["/", "/alice"]), "");
        assert_eq!(suggestion("/y", ["/", "/x", "x", "/xy"]), "; did you mean \"/x\"?", "the one of its length");
    }

    #[test]
    fn swapped_letters_are_one_step() {
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
