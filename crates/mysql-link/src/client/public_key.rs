//! Looks at an RSA public key before it is used. It may come from the network, and what uses it
//! afterwards trusts its lengths.

/// The smallest and largest modulus taken, in bytes. OAEP padding needs 42 bytes beside the password.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 128..=2048;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;

/// Whether `pem` holds an RSA public key (PKCS#1 or PKCS#8) of a usable size.
pub(crate) fn check(pem: &[u8]) -> Result<(), &'static str> {
    use mysql_common::crypto::der::{PubKeyFileType, pem_to_der};

    let (der, kind) = pem_to_der(pem).map_err(|_| "it is not a PEM public key")?;
    let key = match kind {
        PubKeyFileType::Pkcs1 => &der[..],
        PubKeyFileType::Pkcs8 => rsa_key_of_pkcs8(&der).ok_or("its PKCS#8 structure is damaged")?,
    };
    let (modulus, exponent) = integers_of_pkcs1(key).ok_or("its RSA structure is damaged")?;
    let modulus = without_leading_zeros(modulus);
    if !MODULUS_BYTES.contains(&modulus.len()) {
        return Err("its modulus is smaller than 1024 or larger than 16384 bits");
    }
    let odd = modulus.last().is_some_and(|byte| byte & 1 == 1);
    let exponent = without_leading_zeros(exponent);
    if odd && (1..=8).contains(&exponent.len()) {
        Ok(())
    } else {
        Err("its numbers are not those of an RSA key")
    }
}

fn rsa_key_of_pkcs8(der: &[u8]) -> Option<&[u8]> {
    let (fields, _) = element(der, SEQUENCE)?;
    let (_, fields) = element(fields, SEQUENCE)?;
    let (bits, _) = element(fields, BIT_STRING)?;
    let (unused_bits, key) = bits.split_first()?;
    (*unused_bits == 0).then_some(key)
}

fn integers_of_pkcs1(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (fields, _) = element(der, SEQUENCE)?;
    let (modulus, fields) = element(fields, INTEGER)?;
    let (exponent, _) = element(fields, INTEGER)?;
    Some((modulus, exponent))
}

/// The contents of the first element, which must have this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = der.split_first()?;
    let (length, rest) = length(rest)?;
    if *found != tag {
        None
    } else {
        rest.split_at_checked(length)
    }
}

fn length(der: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = der.split_first()?;
    if first & 0x80 == 0 {
        return Some((usize::from(*first), rest));
    }
    let width = usize::from(first & 0x7f);
    if !(1..=4).contains(&width) {
        return None;
    }
    let (bytes, rest) = rest.split_at_checked(width)?;
    Some((
        bytes
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte)),
        rest,
    ))
}

fn without_leading_zeros(mut number: &[u8]) -> &[u8] {
    while let [0, rest @ ..] = number {
        number = rest;
    }
    number
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A public key made for this test; 2048 bits, as mysqld makes them.
    const KEY: &str = include_str!("../../tests/keys/public_key.pem");

    fn pem_of(der: &[u8]) -> String {
        // The alphabet is base64's, the rest of the encoding does not matter to the test.
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for group in der.chunks(3) {
            let mut bits = [0; 3];
            bits[..group.len()].copy_from_slice(group);
            let word = u32::from(bits[0]) << 16 | u32::from(bits[1]) << 8 | u32::from(bits[2]);
            for i in 0..4 {
                let symbol = alphabet[(word >> (18 - 6 * i)) as usize & 63] as char;
                text.push(if i <= group.len() { symbol } else { '=' });
            }
        }
        format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
    }

    fn der_of(pem: &str) -> Vec<u8> {
        mysql_common::crypto::der::pem_to_der(pem).unwrap().0
    }

    #[test]
    fn a_real_key_passes_and_can_be_used() {
        assert_eq!(check(KEY.as_bytes()), Ok(()));
        assert_eq!(check(pem_of(&der_of(KEY)).as_bytes()), Ok(()));
        assert_eq!(
            mysql_common::crypto::encrypt(b"secret\0", KEY.as_bytes())
                .unwrap()
                .len(),
            256
        );
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for pem in [
            "",
            "hello",
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        ] {
            assert!(check(pem.as_bytes()).is_err(), "{pem}");
        }
    }

    proptest! {
        /// What passes the check must not make the user of the key panic.
        #[test]
        fn damaged_keys_never_panic(at in 0_usize..294, with in any::<u8>(), cut in 0_usize..294) {
            let mut der = der_of(KEY);
            let place = at % der.len();
            der[place] = with;
            der.truncate(der.len() - cut / 20);
            let pem = pem_of(&der);
            if check(pem.as_bytes()).is_ok() {
                let _ = mysql_common::crypto::encrypt(b"secret\0", pem.as_bytes());
            }
        }
    }
}
