//! CFQ as those see it who ask: in virtual time, on devices that are as dull as they can be.

mod auto;
mod bounds;
mod random;
mod rules;
mod shares;
mod sim;
