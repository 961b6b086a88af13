//! CFQ as those see it who ask: in virtual time, on devices that are as dull as they can be.

#[path = "../anything/mod.rs"]
mod anything;
mod auto;
mod bounds;
mod random;
mod rules;
mod shares;
mod sim;
