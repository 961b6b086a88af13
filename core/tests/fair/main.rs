//! Fair as tenants see it: in virtual time, on devices that are as dull as they can be.

#[path = "../anything/mod.rs"]
mod anything;
mod bounds;
mod costs;
mod exact;
mod handed;
mod hardship;
mod latency;
mod random;
mod rules;
mod shares;
mod sim;
