//! How a backend recognizes that a request is from this server: HMAC-SHA256, as in the Standard Webhooks specification.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dunlin_config::WebhookKey;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The signature of a message with an id, at a time, with a body.
pub(super) fn signature(key: &WebhookKey, (id, unix_s, body): (&str, u64, &[u8])) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key.reveal()) else { unreachable!("HMAC takes any key") };
    mac.update(format!("{id}.{unix_s}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}
