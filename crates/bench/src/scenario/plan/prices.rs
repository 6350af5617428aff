//! The price list: which machines, and how many of them, carry a load.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The user's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceList {
    /// What prices are in, such as `EUR a month`.
    pub unit: String,
    pub machine: Vec<MachineType>,
}

/// A machine that can be rented.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineType {
    pub name: String,
    pub cores: f64,
    pub memory_gib: f64,
    pub network_mbit: f64,
    pub price: f64,
}

/// What a load needs.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    pub cores: f64,
    pub memory_bytes: f64,
    pub network_mbit: f64,
}

/// Machines of one type for a load.
#[derive(Debug, PartialEq, Serialize)]
pub struct Offer {
    pub machine: String,
    pub count: u64,
    pub price: f64,
    /// What decides about their number: `cores`, `memory` or `network`.
    pub decided_by: &'static str,
}

impl PriceList {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |why: String| Error::Setting { name: "prices", value: path.display().to_string(), remedy: why };
        let text = std::fs::read_to_string(path).map_err(|err| wrong(format!("could not read it: {err}")))?;
        let list: PriceList = toml::from_str(&text).map_err(|err| wrong(err.to_string().trim().to_owned()))?;
        let is_wrong = |machine: &&MachineType| {
            [machine.cores, machine.memory_gib, machine.network_mbit]
                .iter()
                .any(|size| *size <= 0.0 || !size.is_finite())
                || machine.price < 0.0
        };
        if let Some(machine) = list.machine.iter().find(is_wrong) {
            return Err(wrong(format!("machine {}: give sizes above 0 and a price", machine.name)));
        }
        Ok(list)
    }

    /// What each type costs, the cheapest first. At most this share of a machine is used.
    pub fn offers(&self, need: Need, share: f64) -> Vec<Offer> {
        let offer = |machine: &MachineType| {
            let parts = [
                ("cores", need.cores / machine.cores),
                ("memory", need.memory_bytes / 1_073_741_824.0 / machine.memory_gib),
                ("network", need.network_mbit / machine.network_mbit),
            ];
            let (decided_by, most) =
                parts.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)).expect("there are three");
            let count = crate::report::whole((most / share).ceil()).max(1);
            Offer { machine: machine.name.clone(), count, price: count as f64 * machine.price, decided_by }
        };
        let mut offers: Vec<Offer> = self.machine.iter().map(offer).collect();
        offers.sort_by(|one, other| one.price.total_cmp(&other.price));
        offers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_machines_that_carry_the_load_come_first() {
        let machine = |name: &str, cores, memory_gib, price| MachineType {
            name: name.to_owned(),
            cores,
            memory_gib,
            network_mbit: 1000.0,
            price,
        };
        let machines = vec![machine("large", 16.0, 64.0, 90.0), machine("small", 2.0, 4.0, 8.0)];
        let list = PriceList { unit: "EUR a month".to_owned(), machine: machines };
        let need = Need { cores: 6.0, memory_bytes: 2.0 * 1_073_741_824.0, network_mbit: 100.0 };
        let offers = list.offers(need, 0.5);
        assert_eq!((offers[0].machine.as_str(), offers[0].count, offers[0].decided_by), ("small", 6, "cores"));
        assert_eq!((offers[1].machine.as_str(), offers[1].count), ("large", 1));
        let wide = list.offers(Need { network_mbit: 4_000.0, ..need }, 0.5);
        assert_eq!((wide[0].machine.as_str(), wide[0].count, wide[0].decided_by), ("small", 8, "network"));
    }
}
