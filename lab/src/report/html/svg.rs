//! The drawing of plots.

use std::fmt::Write as _;

/// Text that cannot be taken for a tag, an entity or the end of an attribute.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // They are no characters of XML.
            c if (c.is_control() && c != '\n') || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Units across a drawing, and down one, unless it is a low one.
pub(super) const WIDTH: f64 = 560.0;
pub(super) const HEIGHT: f64 = 320.0;

/// Figures of results are in 1024 bytes, those of plots in 1024 of these.
pub(super) const MIB: f64 = 1024.0;

/// The class of a group's or line's colour; after eight they come again.
pub(super) fn colour(place: usize) -> String {
    format!("c{}", place % 8)
}

/// The classes of a drawn group or line: its kind, its colour, and whether it is without Fairlift.
pub(super) fn coloured(kind: &str, place: usize, raw: bool) -> String {
    format!("{kind} {}{}", colour(place), if raw { " raw" } else { "" })
}

/// The place of a point of a line, and the text that shows when it is pointed at.
pub(super) type Point = ((f64, f64), String);

/// Microseconds in the unit that suits: `250 µs`, `8.5 ms`, `2 s`.
pub(super) fn time(us: f64) -> String {
    let (figure, unit) = match us {
        0.0 => return "0".into(),
        us if us < 1e3 => (us, "µs"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    let shown = if figure < 10.0 { format!("{figure:.1}") } else { format!("{figure:.0}") };
    format!("{} {unit}", shown.strip_suffix(".0").unwrap_or(&shown))
}

/// A drawing: the origin is at the upper left, and a unit is about a pixel.
pub(super) struct Svg {
    out: String,
    /// The names of its lines, below it.
    legend: String,
}

impl Svg {
    /// An empty one of that height. `says` is for readers who cannot see it.
    pub(super) fn new(height: f64, says: &str) -> Self {
        let says = escaped(says);
        let out = format!("<svg viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{says}\">\n");
        Self { out, legend: String::new() }
    }

    /// A rectangle, with the text that shows when it is pointed at.
    pub(super) fn bar(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), title: &str) {
        let _ = writeln!(
            self.out,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{}</title></rect>",
            escaped(title)
        );
    }

    /// A point, with the text that shows when it is pointed at.
    pub(super) fn dot(&mut self, class: &str, (x, y): (f64, f64), title: &str) {
        let title = escaped(title);
        let _ = writeln!(
            self.out,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{title}</title></circle>"
        );
    }

    /// A straight line.
    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ =
            writeln!(self.out, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
    }

    /// A line through points, or an area if `class` fills it.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)], title: &str) {
        let mut steps = String::new();
        for (place, (x, y)) in points.iter().enumerate() {
            let _ = write!(steps, "{}{x:.1} {y:.1}", if place == 0 { "M" } else { "L" });
        }
        let _ = writeln!(self.out, "<path class=\"{class}\" d=\"{steps}\"><title>{}</title></path>", escaped(title));
    }

    /// Text; `class` has `start`, `middle` or `end` for the part of it at `x`.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let _ = writeln!(self.out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(text));
    }

    /// A line through points, and its name in the legend.
    pub(super) fn line_through(&mut self, place: usize, raw: bool, name: &str, points: &[(f64, f64)]) {
        self.path(&coloured("curve", place, raw), points, name);
        let _ = writeln!(self.legend, "<li><i class=\"{}\"></i>{}</li>", colour(place), escaped(name));
    }

    /// The same, with a dot at each point.
    pub(super) fn curve(&mut self, place: usize, raw: bool, name: &str, points: &[Point]) {
        self.line_through(place, raw, name, &points.iter().map(|(at, _)| *at).collect::<Vec<_>>());
        points.iter().for_each(|(at, title)| self.dot(&coloured("dot", place, raw), *at, title));
    }

    /// The drawing, and the legend of its lines.
    pub(super) fn finish(self) -> String {
        let Self { out, legend } = self;
        let legend = if legend.is_empty() { legend } else { format!("<ul class=\"legend\">\n{legend}</ul>\n") };
        format!("{out}</svg>\n{legend}")
    }
}

/// Where the plotted area lies in a drawing.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// The height of a figure on the upright axis, which ends at `max`.
    pub(super) fn y(&self, figure: f64, max: f64) -> f64 {
        if max <= 0.0 { self.bottom } else { self.bottom - (self.bottom - self.top) * figure / max }
    }

    /// How far to the right a figure lies on the axis along the bottom, which ends at `max`.
    pub(super) fn x(&self, figure: f64, max: f64) -> f64 {
        if max <= 0.0 { self.left } else { self.left + (self.right - self.left) * figure / max }
    }

    /// Draws the axis along the bottom from zero: a line and a label at each round figure. Returns where it ends.
    pub(super) fn along(&self, svg: &mut Svg, largest: f64, shown: fn(f64) -> String) -> f64 {
        let (step, max) = rounded(largest);
        for number in 0..=((max / step).round() as u32).min(STEPS_MAX) {
            let at = f64::from(number) * step;
            svg.line("grid", (self.x(at, max), self.top), (self.x(at, max), self.bottom));
            svg.text("tick middle", (self.x(at, max), self.bottom + 18.0), &shown(at));
        }
        max
    }

    /// Draws a line across at a height, with a label.
    pub(super) fn level(&self, svg: &mut Svg, y: f64, label: &str) {
        svg.line("grid", (self.left, y), (self.right, y));
        svg.text("tick end", (self.left - 6.0, y + 4.0), label);
    }

    /// Draws the upright axis from zero: a line and a label at each round figure. Returns where it ends.
    pub(super) fn upright(&self, svg: &mut Svg, largest: f64, unit: &str, shown: fn(f64) -> String) -> f64 {
        let (step, max) = rounded(largest);
        for number in 0..=((max / step).round() as u32).min(STEPS_MAX) {
            let at = f64::from(number) * step;
            self.level(svg, self.y(at, max), &shown(at));
        }
        if !unit.is_empty() {
            svg.text("unit end", (self.left - 6.0, self.top - 10.0), unit);
        }
        max
    }
}

/// An axis has no more: about five are meant.
const STEPS_MAX: u32 = 10;

/// A round step and a round end for an axis that holds `largest`: about five steps.
fn rounded(largest: f64) -> (f64, f64) {
    if !largest.is_finite() || largest <= 0.0 {
        return (1.0, 1.0);
    }
    let power = 10_f64.powf((largest / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| step * 5.0 >= largest);
    let step = step.unwrap_or(10.0 * power);
    let max = (largest / step).ceil() * step;
    if max.is_finite() { (step, max) } else { (1.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_is_no_markup() {
        assert_eq!(escaped("<b a=\"1\" b='2'>&\u{0}\n"), "&lt;b a=&quot;1&quot; b=&#39;2&#39;&gt;&amp;\u{fffd}\n");
    }

    #[test]
    fn an_axis_has_about_five_round_steps() {
        for (largest, expected) in [(347.0, (100.0, 400.0)), (1.0, (0.2, 1.0)), (5.1, (2.0, 6.0)), (0.0, (1.0, 1.0))] {
            assert_eq!(rounded(largest), expected, "{largest}");
        }
        assert_eq!(rounded(f64::NAN), (1.0, 1.0));
        assert_eq!(rounded(1.7e308), (1.0, 1.0), "its end would be beyond all numbers");
        assert_eq!(rounded(f64::INFINITY), (1.0, 1.0));
    }

    #[test]
    fn a_time_has_the_unit_that_suits() {
        for (us, shown) in
            [(0.0, "0"), (0.4, "0.4 µs"), (250.0, "250 µs"), (8500.0, "8.5 ms"), (2e6, "2 s"), (1.2e7, "12 s")]
        {
            assert_eq!(time(us), shown);
        }
    }
}
