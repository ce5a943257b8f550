//! What shows a receiver that a request comes from here, by the rules of Standard Webhooks.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferrata::clock::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::WebhookError;

/// What a secret begins with that is written as text.
const PREFIX: &str = "whsec_";
/// What the specification asks for at least: what is shorter can be guessed.
const BYTES_MIN: usize = 24;
/// The only version of signatures that a shared secret makes.
const VERSION: &str = "v1";

/// What sender and receiver of webhooks share, and nobody else knows.
///
/// It signs and verifies as the [Standard Webhooks](https://www.standardwebhooks.com) specification says: HMAC-SHA256 over `id.timestamp.body`. It is in no debug
/// output.
///
/// A receiver verifies what came before it looks at it, over the bytes of the body as they came, and does what a notice asks for once for each id:
///
/// ```
/// use ferrata::clock::{Clock, SystemClock};
/// use ferrata_nodes::{VerifyError, WebhookSecret};
/// use std::time::Duration;
///
/// let secret = WebhookSecret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
///
/// // What stands in the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`, and the body.
/// let now = SystemClock.now();
/// let (id, timestamp, body) = ("msg_1", (now.0 / 1_000).to_string(), br#"{"kind":"asked"}"#);
/// let signature = secret.sign(id, now, body);
///
/// let tolerance = Duration::from_secs(300);
/// assert_eq!(secret.verify(id, &timestamp, body, &signature, now, tolerance), Ok(()));
/// assert_eq!(secret.verify(id, &timestamp, b"{}", &signature, now, tolerance), Err(VerifyError::Signature));
/// assert_eq!(secret.verify("msg_2", &timestamp, body, &signature, now, tolerance), Err(VerifyError::Signature));
/// // Somebody has kept it, and sends it again.
/// assert_eq!(secret.verify(id, &timestamp, body, &signature, now.plus_ms(400_000), tolerance), Err(VerifyError::Time));
/// # Ok::<(), ferrata_nodes::WebhookError>(())
/// ```
#[derive(Clone)]
pub struct WebhookSecret(Hmac<Sha256>);

impl WebhookSecret {
    /// A secret as it is handed out: `whsec_` and then base64.
    ///
    /// # Errors
    ///
    /// What does not begin so, is no base64, or is shorter than 24 bytes.
    pub fn new(text: &str) -> Result<Self, WebhookError> {
        let Some(encoded) = text.trim().strip_prefix(PREFIX) else {
            return Err(WebhookError::Secret(
                "does not begin with `whsec_`; give any other bytes with `secret_bytes` or `from_bytes`",
            ));
        };
        let bytes = STANDARD.decode(encoded);
        Self::from_bytes(
            &bytes.map_err(|_| {
                WebhookError::Secret("is no base64 behind `whsec_`; copy the whole of it, with nothing around it")
            })?,
        )
    }

    /// A secret of any bytes: those that `whsec_` stands before in base64.
    ///
    /// # Errors
    ///
    /// Fewer than 24 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WebhookError> {
        if bytes.len() < BYTES_MIN {
            return Err(WebhookError::Secret("is shorter than 24 bytes; make one of 24 to 64 random bytes"));
        }
        // Any length will do for it.
        Hmac::new_from_slice(bytes).map(Self).map_err(|_| WebhookError::Secret("has a length that cannot be used"))
    }

    /// The value of the header `webhook-signature` for a request that is sent at that time. Its header `webhook-timestamp` has the whole seconds of it.
    pub fn sign(&self, id: &str, at: Timestamp, body: &[u8]) -> String {
        let signature = self.over(id, at.0 / 1_000, body).finalize().into_bytes();
        format!("{VERSION},{}", STANDARD.encode(signature))
    }

    /// Whether a request comes from somebody who has this secret, and was sent about now.
    ///
    /// `id`, `timestamp` and `signature` are the texts of the headers `webhook-id`, `webhook-timestamp` and `webhook-signature`. Where the last one has several signatures, as it does while a
    /// secret is being replaced, one has to be right. Signatures are compared in constant time. `tolerance`: how far the time of sending may lie from `now`, before or behind; five minutes are
    /// usual. Within it the request can be repeated by whoever has seen it: remember the ids for so long.
    ///
    /// # Errors
    ///
    /// [`VerifyError`]; nothing of the request is to be believed then.
    pub fn verify(
        &self,
        id: &str,
        timestamp: &str,
        body: &[u8],
        signature: &str,
        now: Timestamp,
        tolerance: Duration,
    ) -> Result<(), VerifyError> {
        let is_number = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let seconds: u64 = timestamp.parse().ok().filter(|_| is_number).ok_or(VerifyError::Malformed)?;
        // A dot would let a part of the id pass for the time.
        if id.is_empty() || id.contains('.') {
            return Err(VerifyError::Malformed);
        }
        let is_right = |encoded: &str| {
            let bytes = STANDARD.decode(encoded);
            bytes.is_ok_and(|bytes| self.over(id, seconds, body).verify_slice(&bytes).is_ok())
        };
        let mut signatures = signature.split(' ').filter_map(|one| one.split_once(','));
        if !signatures.any(|(version, encoded)| version == VERSION && is_right(encoded)) {
            return Err(VerifyError::Signature);
        }
        if Duration::from_secs(seconds.abs_diff(now.0 / 1_000)) > tolerance {
            return Err(VerifyError::Time);
        }
        Ok(())
    }

    fn over(&self, id: &str, seconds: u64, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{seconds}.").as_bytes());
        mac.update(body);
        mac
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(..)")
    }
}

/// Why a request is not believed. Answer it with status 401 or 400, and say no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The id or the time is none.
    #[error("the webhook's headers cannot be read; it is none by Standard Webhooks")]
    Malformed,
    /// No signature is that of the secret over id, time and body.
    #[error("the webhook's signature is wrong; somebody has changed it, or it was signed with another secret")]
    Signature,
    /// It was sent too long ago, or at a time that has not come.
    #[error("the webhook was sent too long ago, or the clocks differ; it may be one that is repeated")]
    Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// The example of the specification's own libraries.
    #[test]
    fn the_known_signature_comes_out() {
        let secret = WebhookSecret::new(SECRET).unwrap();
        let (id, at, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", Timestamp(1_614_265_330_000), br#"{"test": 2432232314}"#);
        let signature = secret.sign(id, at, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let both = format!("v1a,AAAA v1,AAAA v1,!! {signature}");
        assert_eq!(secret.verify(id, "1614265330", body, &both, at, Duration::ZERO), Ok(()));
    }

    #[test]
    fn times_count_in_both_directions() {
        let secret = WebhookSecret::from_bytes(&[7; 24]).unwrap();
        let signature = secret.sign("a", Timestamp(1_000_000), b"x");
        let at = |seconds: u64| secret.verify("a", "1000", b"x", &signature, Timestamp(seconds * 1_000), Duration::from_secs(60));
        assert_eq!([at(939), at(940), at(1_060), at(1_061)], [Err(VerifyError::Time), Ok(()), Ok(()), Err(VerifyError::Time)]);
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let secret = WebhookSecret::new(SECRET).unwrap();
        let now = Timestamp(5_000);
        let signature = secret.sign("a", now, b"6.x");
        let ask = |id: &str, time: &str, body: &[u8]| secret.verify(id, time, body, &signature, now, Duration::from_secs(9));
        assert_eq!(ask("a", "5", b"6.x"), Ok(()));
        for (id, time) in [("a", ""), ("a", "+5"), ("a", "5.0"), ("a", "99999999999999999999"), ("", "5")] {
            assert_eq!(ask(id, time, b"6.x"), Err(VerifyError::Malformed), "{id} {time}");
        }
        // The same bytes are signed.
        assert_eq!(ask("a.5", "6", b"x"), Err(VerifyError::Malformed));
        for other in ["", "v1", "v1,", "v2,AAAA", &signature[1..], &signature[..20]] {
            assert_eq!(secret.verify("a", "5", b"6.x", other, now, Duration::ZERO), Err(VerifyError::Signature), "{other}");
        }
    }

    #[test]
    fn bad_secrets_are_told_and_not_shown() {
        for bad in ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_???", "whsec_c2hvcnQ="] {
            let error = WebhookSecret::new(bad).unwrap_err().to_string();
            assert!(error.contains(';') && (bad.len() < 8 || !error.contains(bad)), "{error}");
        }
        assert_eq!(format!("{:?}", WebhookSecret::new(SECRET).unwrap()), "WebhookSecret(..)");
    }
}
