//! `fairlift token`: a token for a client of control.

use std::io;

use fairlift::access::Token;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::terminal::output::hex;

/// A token that nobody has, and in the next line what a config file says of it.
pub(crate) fn token() -> io::Result<Vec<u8>> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no randomness"))?;
    let token = hex(&bytes);
    let digest = hex(ring::digest::digest(&ring::digest::SHA256, token.as_bytes()).as_ref());
    let line = format!("sha256:{digest}");
    assert_eq!(line.parse(), Ok(Token::new(&token)), "the file knows the token");
    Ok(format!("{token}\ntoken = \"{line}\"\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_another_each_time_and_the_file_has_its_digest_alone() {
        let [one, other] = [(); 2].map(|()| String::from_utf8(token().unwrap()).unwrap());
        assert_ne!(one, other);
        let [token, line] = one.lines().collect::<Vec<_>>()[..] else { panic!("two lines: {one}") };
        assert_eq!((token.len(), line.contains(token)), (64, false));
        let digest = line.strip_prefix("token = \"").and_then(|rest| rest.strip_suffix('"')).unwrap();
        assert_eq!(digest.parse(), Ok(Token::new(token)));
    }
}
