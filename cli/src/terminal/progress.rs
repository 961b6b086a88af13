//! A sign that a measurement goes on.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// On a terminal only, and apart from standard output.
pub(crate) fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}
