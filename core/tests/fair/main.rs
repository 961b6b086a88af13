//! Fair as tenants see it: in virtual time, on devices that are as dull as they can be.

mod bounds;
mod hardship;
mod random;
mod rules;
mod shares;
mod sim;
