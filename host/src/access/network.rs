//! Network: an address, or all that begin as it does.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that have the first bits in common, as in `192.0.2.0/24`; of one address it is all bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// The address as a number of 128 bits of which the first are the address.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(four.to_bits()) << 96,
        IpAddr::V6(six) => six.to_bits(),
    }
}

const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

impl Network {
    /// Whether an address is in it. One of IPv4 that a socket for both shows as IPv6 is that of IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && (number(address) ^ number(self.address)) & mask(self.bits) == 0
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("takes an IP address or a range such as 192.0.2.0/24, not \"{text}\"");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| form())?;
        if address.to_canonical() != address {
            return Err(format!("an IPv4 address is written as such: {}", address.to_canonical()));
        }
        let most = width(address);
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| form()))?;
        if bits > most {
            return Err(format!("an address has {most} bits here, and \"{text}\" wants {bits} of them"));
        }
        let bare = number(address) & mask(bits);
        if bare != number(address) {
            let all = match address {
                IpAddr::V4(_) => IpAddr::V4(((bare >> 96) as u32).into()),
                IpAddr::V6(_) => IpAddr::V6(bare.into()),
            };
            return Err(format!("has bits beyond the first {bits}; did you mean \"{all}/{bits}\"?"));
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits == width(self.address) {
            true => write!(f, "{}", self.address),
            false => write!(f, "{}/{}", self.address, self.bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        for (network, inside, outside) in [
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("192.0.2.0/25", "192.0.2.127", "192.0.2.128"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("2001:db8::/33", "2001:db8:7fff::9", "2001:db8:8000::"),
            ("127.0.0.1", "::ffff:127.0.0.1", "::1"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert_eq!(parsed.to_string(), network);
            assert!(parsed.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network} {outside}");
        }
    }

    #[test]
    fn what_is_no_network_is_told_what_would_be_one() {
        let says = |text: &str| text.parse::<Network>().unwrap_err();
        assert_eq!(says("192.0.2.9/24"), "has bits beyond the first 24; did you mean \"192.0.2.0/24\"?");
        assert_eq!(says("::ffff:10.0.0.1"), "an IPv4 address is written as such: 10.0.0.1");
        assert_eq!(says("10.0.0.0/33"), "an address has 32 bits here, and \"10.0.0.0/33\" wants 33 of them");
        for text in ["", "alice", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0:80", "[::1]"] {
            assert!(says(text).starts_with("takes an IP address or a range"), "{text}");
        }
    }
}
