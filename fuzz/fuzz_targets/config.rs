//! Two config files as a server reads them: what is wrong is told in lines, and what has changed can be made.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input) {
        fairlift_cli::hostile::config(text);
    }
});
