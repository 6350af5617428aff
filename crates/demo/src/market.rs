//! Prices that follow a random walk. `web/ticker/CONTRACT.md` describes their purpose and the format of the payloads.

use std::fmt::Write as _;

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};

/// Symbols with their opening prices in cents.
const LISTINGS: [(&str, u32); 12] = [
    ("ACME", 10_120),
    ("DUNL", 8_810),
    ("KNOT", 8_040),
    ("PLVR", 9_000),
    ("SNIP", 9_770),
    ("REDS", 10_510),
    ("GODW", 11_420),
    ("TURN", 13_100),
    ("WHIM", 13_350),
    ("CURL", 14_500),
    ("STNT", 15_850),
    ("OYST", 16_650),
];

/// Number of symbols.
pub const SYMBOLS: usize = LISTINGS.len();

/// A price stays between a fifth of its opening price and five times that.
const DRIFT_MAX: f64 = 5.0;

/// Maximum relative change of a price per step.
const STEP_MAX: f64 = 0.002;

/// Maximum volume traded per step.
const TRADED_MAX: u32 = 400;

/// Twelve symbols.
pub struct Market {
    random: ChaCha8Rng,
    listings: [Listing; SYMBOLS],
}

struct Listing {
    symbol: &'static str,
    opening: f64,
    price: f64,
    volume: u64,
    /// The number of the newest publication.
    number: u64,
}

impl Market {
    /// Creates a market with opening prices. The same seed leads to the same prices.
    pub fn open(seed: [u8; 32]) -> Self {
        let listings = LISTINGS.map(|(symbol, cents)| {
            let opening = f64::from(cents) / 100.0;
            Listing { symbol, opening, price: opening, volume: 0, number: 0 }
        });
        Self { random: ChaCha8Rng::from_seed(seed), listings }
    }

    /// The channel of a symbol.
    pub fn channel(index: usize) -> Option<String> {
        LISTINGS.get(index).map(|(symbol, _)| format!("ticker:{symbol}"))
    }

    /// Continues after a payload that another publisher has published. Returns whether the payload is of this symbol.
    pub fn continue_after(&mut self, index: usize, payload: &[u8]) -> bool {
        let (Some(listing), Ok(last)) = (self.listings.get_mut(index), serde_json::from_slice::<LastTick>(payload))
        else {
            return false;
        };
        if last.symbol != listing.symbol || !last.price.is_finite() {
            return false;
        }
        (listing.price, listing.volume, listing.number) = (last.price, last.volume, last.number);
        true
    }

    /// Moves the price of one symbol. Returns its channel and the payload to publish.
    pub fn step(&mut self, index: usize, time_ms: u64) -> Option<(String, String)> {
        let listing = self.listings.get_mut(index)?;
        // The sum of two random numbers makes small steps more likely than large ones.
        let step = STEP_MAX * (unit(&mut self.random) + unit(&mut self.random) - 1.0);
        let (least, most) = (listing.opening / DRIFT_MAX, listing.opening * DRIFT_MAX);
        listing.price = (listing.price * (1.0 + step)).clamp(least, most);
        listing.volume = listing.volume.saturating_add(u64::from(1 + self.random.next_u32() % TRADED_MAX));
        listing.number = listing.number.saturating_add(1);
        let Listing { symbol, opening, price, volume, number } = listing;
        let change_pct = (*price / *opening - 1.0) * 100.0;
        let payload = format!(
            r#"{{"symbol":"{symbol}","number":{number},"price":{price:.2},"change_pct":{change_pct:.2},"volume":{volume},"time_ms":{time_ms}}}"#
        );
        Some((format!("ticker:{symbol}"), payload))
    }

    /// The payload for [`QUOTES_CHANNEL`].
    pub fn quotes(&self, time_ms: u64) -> String {
        let mut payload = String::from(r#"{"quotes":{"#);
        for (index, Listing { symbol, price, .. }) in self.listings.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            let _ = write!(payload, r#"{separator}"{symbol}":{price:.2}"#);
        }
        let _ = write!(payload, r#"}},"time_ms":{time_ms}}}"#);
        payload
    }
}

/// The fields of a symbol's newest publication that a publisher needs to continue.
#[derive(serde::Deserialize)]
struct LastTick {
    symbol: String,
    number: u64,
    price: f64,
    volume: u64,
}

/// The channel with all prices.
pub const QUOTES_CHANNEL: &str = "quotes:all";

/// A random number from 0 to 1.
fn unit(random: &mut ChaCha8Rng) -> f64 {
    f64::from(random.next_u32()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn payloads_have_the_documented_form() {
        let mut market = Market::open([7; 32]);
        let (channel, payload) = market.step(0, 1_699_999_999_999).expect("a symbol");
        assert_eq!(channel, "ticker:ACME");
        let tick: Value = serde_json::from_str(&payload).expect("JSON");
        let fields: Vec<_> = tick.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(fields, ["change_pct", "number", "price", "symbol", "time_ms", "volume"]);
        assert_eq!((&tick["symbol"], &tick["time_ms"]), (&"ACME".into(), &1_699_999_999_999_u64.into()));
        let price = tick["price"].as_f64().expect("a number");
        assert!((price - 101.20).abs() <= 101.20 * STEP_MAX + 0.01, "{price}");

        let quotes: Value = serde_json::from_str(&market.quotes(5)).expect("JSON");
        assert_eq!(quotes["quotes"].as_object().expect("an object").len(), SYMBOLS);
        assert_eq!((&quotes["quotes"]["ACME"], &quotes["time_ms"]), (&tick["price"], &5.into()));
        assert!(market.step(SYMBOLS, 0).is_none());
    }

    #[test]
    fn a_new_publisher_continues_the_sequence() {
        let (mut one, mut other) = (Market::open([1; 32]), Market::open([2; 32]));
        let mut last = String::new();
        for _ in 0..3 {
            (_, last) = one.step(4, 0).expect("a symbol");
        }
        assert!(other.continue_after(4, last.as_bytes()));
        let (_, next) = other.step(4, 0).expect("a symbol");
        let (last, next): (Value, Value) =
            (serde_json::from_str(&last).expect("JSON"), serde_json::from_str(&next).expect("JSON"));
        assert_eq!((&last["number"], &next["number"]), (&3.into(), &4.into()));
        assert!(next["volume"].as_u64() > last["volume"].as_u64(), "{next}");
        let (before, after) = (last["price"].as_f64().expect("a price"), next["price"].as_f64().expect("a price"));
        assert!((after - before).abs() <= before * STEP_MAX + 0.01, "{before} {after}");
    }

    #[test]
    fn foreign_payloads_are_ignored() {
        let mut market = Market::open([1; 32]);
        for payload in [
            "",
            "7",
            "{}",
            r#"{"symbol":"DUNL","number":9,"price":5,"volume":1}"#,
            r#"{"symbol":"ACME","number":-1,"price":5,"volume":1}"#,
        ] {
            assert!(!market.continue_after(0, payload.as_bytes()), "{payload}");
        }
        assert!(!market.continue_after(SYMBOLS, br#"{"symbol":"ACME","number":9,"price":5,"volume":1}"#));
        assert!(market.step(0, 0).expect("a symbol").1.contains(r#""number":1,"#));
    }

    #[test]
    fn the_symbols_match_the_page() {
        let contract = include_str!("../../../web/ticker/CONTRACT.md");
        let symbols = LISTINGS.map(|(symbol, _)| symbol).join(" ");
        assert!(contract.contains(&symbols), "{symbols}");
    }

    #[test]
    fn prices_stay_within_bounds_and_the_day_can_be_repeated() {
        let (mut one, mut other) = (Market::open([1; 32]), Market::open([1; 32]));
        for step in 0..20_000 {
            assert_eq!(one.step(step % SYMBOLS, 0), other.step(step % SYMBOLS, 0));
        }
        for Listing { opening, price, .. } in one.listings {
            assert!((opening / DRIFT_MAX..=opening * DRIFT_MAX).contains(&price), "{price} from {opening}");
        }
    }
}
