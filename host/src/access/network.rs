//! Network: an address, or all that begin as it does.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// Addresses that have the first bits in common, as in `192.0.2.0/24`; of one address it is all bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network(IpNet);

impl Network {
    /// Whether an address is in it. One of IPv4 that a socket for both shows as IPv6 is that of IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
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
        let one = IpNet::from(address);
        let Some(bits) = bits else { return Ok(Self(one)) };
        let (bits, most) = (bits.parse().map_err(|_| form())?, one.max_prefix_len());
        let network = IpNet::new(address, bits)
            .map_err(|_| format!("an address has {most} bits here, and \"{text}\" wants {bits} of them"))?;
        if network != network.trunc() {
            return Err(format!("has bits beyond the first {bits}; did you mean \"{}\"?", network.trunc()));
        }
        Ok(Self(network))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.prefix_len() == self.0.max_prefix_len() {
            true => write!(f, "{}", self.0.addr()),
            false => write!(f, "{}", self.0),
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
