//! A trace as it comes from a server.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    fairlift_cli::hostile::trace(input);
});
