//! Fair as tenants see it: in virtual time, on devices that are as dull as they can be.

mod random;
mod rules;
