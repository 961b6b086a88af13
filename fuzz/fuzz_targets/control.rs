//! The body of a transaction: what it asks is refused in a line, or made, and is then what a file would say.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(body) = std::str::from_utf8(input) {
        fairlift_cli::hostile::control(body);
    }
});
